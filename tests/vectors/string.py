"""STRING: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j below S; else i - j - S + W.

An et al. 2024, "Why Does the Effective Context Length of LLMs Fall Short?", section 4. Plain Python, float64.
"""

import math

from shared import distance_cases, write


def f(i, j, length, shift=None, local=None):
    shift = math.floor(0.33 * length) if shift is None else shift
    local = min(128, shift // 2) if local is None else local
    return i - j if i - j < shift else i - j - shift + local


assert [f(11, 11 - d, 12, 4, 2) for d in (3, 4, 5, 11)] == [3, 2, 3, 9]


models = [
    (8, 64, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"shift": 9, "local": 0, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"shift": 4, "local": 3}),
    (8, 32, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_000, 1_000_000], {"shift": 64}),
]
write("STRING", __doc__, distance_cases(f, models))
