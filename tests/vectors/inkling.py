"""Inkling's temperature: 1 + strength ln(max(1, (i + 1) / length)), i the position (0-based).

huggingface/transformers, models/inkling, with the position ID in place of the token's index. Plain Python, float64. Its
factor multiplies a bias too, which this encoding alone does not have.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    ratio = (position + 1) / settings.get("length", 8192.0)
    return 1 + settings.get("strength", 0.1) * math.log(ratio) if ratio > 1 else 1.0


cases = [
    by_hand("the last position without a factor", 8191, 1.0, {}, {}),
    by_hand("twice as far", 16383, 1 + 0.1 * math.log(2), {}, {}),
    by_hand("four times as far", 15, 3.0, {"strength": 1 / math.log(2), "length": 4.0}, {}),
    factor_case(factor, "near", NEAR, {"strength": 0.5, "length": 4.0}, {}),
    factor_case(factor, "far", FAR, {}, {}),
]

write("Inkling", __doc__, cases)
