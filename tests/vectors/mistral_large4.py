"""The temperature of Mistral Large 4: scale_h ln(i + 1) + bias_h, i the position (0-based).

huggingface/transformers, models/mistral_large4 (`MistralLarge4TextSoftmaxScaling`), without its rounding. Plain Python,
float64.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    return parameters["scale"][head] * math.log(position + 1) + parameters["bias"][head]


ONE, TWO = {"num_heads": 1}, {"num_heads": 2}
cases = [
    by_hand("ln 1 = 0", 0, 0.75, {}, ONE, {"scale": [3.0], "bias": [0.75]}),
    by_hand("ln 8 = 3 ln 2", 7, 7.0, {}, ONE, {"scale": [2 / math.log(2)], "bias": [1.0]}),
    factor_case(factor, "initial parameters", NEAR, {}, TWO, 2, {"scale": [0.0, 0.0], "bias": [1.0, 1.0]}),
    factor_case(factor, "near", NEAR, {}, TWO, 2, {"scale": [0.3, -0.2], "bias": [0.5, 1.5]}),
    factor_case(factor, "far", FAR, {}, TWO, 2, {"scale": [0.1, 0.43], "bias": [0.9, -1.0]}),
]

write("MistralLarge4", __doc__, cases)
