"""The temperature of Ministral 3 and Mistral 4: 1 + strength ln(1 + floor(i / step)), i the position (0-based).

huggingface/transformers, models/ministral3 (`get_llama_4_attn_scale`). Plain Python, float64.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    return 1 + settings.get("strength", 0.1) * math.log(1 + position // settings.get("step", 16384))


cases = [
    by_hand("the last position without a factor", 16383, 1.0, {}, {}),
    by_hand("the first position with a factor", 16384, 1 + 0.1 * math.log(2), {}, {}),
    by_hand("three steps", 12, 3.0, {"strength": 2 / math.log(4), "step": 4}, {}),
    by_hand("Mistral 4", 8192, 1 + 0.1 * math.log(2), {"step": 8192}, {}),
    factor_case(factor, "near", NEAR, {"strength": 0.5, "step": 4}, {}),
    factor_case(factor, "far", FAR, {}, {}),
]

write("Ministral", __doc__, cases)
