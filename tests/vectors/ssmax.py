"""SSMax: s_h ln(i + 1), or s_h ln(i + 1) + b_h, i the position (0-based); softmax then has the weights n^(s z).

Nakanishi 2025. Plain Python, float64.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    bias = parameters["bias"][head] if settings.get("bias") else 0.0
    return parameters["scale"][head] * math.log(position + 1) + bias


ONE, TWO = {"num_heads": 1, "train_length": 16}, {"num_heads": 2, "train_length": 16}
BIAS = {"bias": True}
# The mean of ln 1 ... ln 4 is ln(24) / 4.
SMALL = {"num_heads": 1, "train_length": 4}
cases = [
    by_hand("ln 1 = 0", 0, 0.0, {}, ONE, {"scale": [3.0]}),
    by_hand("ln 8 = 3 ln 2", 7, 6.0, {}, ONE, {"scale": [2 / math.log(2)]}),
    # Parameters are initialized in float32.
    by_hand("the initial scale for 4 tokens, ln 4 = 2 ln 2", 3, 8 * math.log(2) / math.log(24), {}, SMALL)
    | {"atol": 1e-6},
    by_hand("a bias", 7, 5.0, BIAS, ONE, {"scale": [2 / math.log(2)], "bias": [-1.0]}),
    factor_case(factor, "near", NEAR, {}, TWO, 2, {"scale": [0.43, -0.2]}),
    factor_case(factor, "near, with a bias", NEAR, BIAS, TWO, 2, {"scale": [0.3, -0.2], "bias": [0.5, 1.5]}),
    factor_case(factor, "far", FAR, {}, TWO, 2, {"scale": [0.1, 0.43]}),
]

write("SSMax", __doc__, cases)
