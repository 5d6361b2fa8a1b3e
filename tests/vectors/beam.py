"""Beam's temperature: (1 + (i + 1) / length)^exponent, i the position (0-based).

huggingface/transformers, models/beam writes exp(0.1 log1p((i + 1) / 2048)). Plain Python, float64, by powers.
"""

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    return (1 + (position + 1) / settings.get("length", 2048.0)) ** settings.get("exponent", 0.1)


cases = [
    by_hand("at position 0", 0, 2049**0.1 / 2048**0.1, {}, {}),
    by_hand("twice 2048", 2047, 2**0.1, {}, {}),
    by_hand("a square root", 7, 3.0, {"exponent": 0.5, "length": 1.0}, {}),
    by_hand("exponent 0", 10**6, 1.0, {"exponent": 0.0}, {}),
    factor_case(factor, "near", NEAR, {"exponent": 0.5, "length": 4.0}, {}),
    factor_case(factor, "far", FAR, {}, {}),
]

write("Beam", __doc__, cases)
