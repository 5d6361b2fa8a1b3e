"""Llama 4's temperature: 1 + strength ln(1 + floor((i + 1) / step)), i the position (0-based).

huggingface/transformers, models/llama4, with the position ID in place of the token's index. Plain Python, float64.
Floors of whole numbers are exact.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    return 1 + settings.get("strength", 0.1) * math.log(1 + (position + 1) // settings.get("step", 8192))


cases = [
    by_hand("the last position without a factor", 8190, 1.0, {}, {}),
    by_hand("the first position with a factor", 8191, 1 + 0.1 * math.log(2), {}, {}),
    by_hand("four steps", 11, 3.0, {"strength": 2 / math.log(4), "step": 4}, {}),
    by_hand("strength 0", 10**6, 1.0, {"strength": 0.0}, {}),
    factor_case(factor, "near", NEAR, {"strength": 0.5, "step": 4}, {}),
    factor_case(factor, "steps of one", NEAR, {"step": 1}, {}),
    factor_case(factor, "far", FAR, {}, {}),
]

write("Llama4", __doc__, cases)
