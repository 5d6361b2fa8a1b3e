"""SelfExtend: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j below W; else floor(i / G) - floor(j / G) + W - floor(W / G).

Jin et al. 2024, algorithm 1, with the last term rounded down. With G 4 and W 8, the distances 7, 8, 9, 12 and 40 of i =
40 become 7, 8, 9, 9 and 16. Plain Python, float64.
"""

from shared import distance_cases, write


def f(i, j, length, group=8, window=None):
    window = length // 4 if window is None else window
    return i - j if i - j < window else i // group - j // group + window - window // group


assert [f(40, 40 - d, 64, 4, 8) for d in (7, 8, 9, 12, 40)] == [7, 8, 9, 9, 16]


models = [
    (8, 64, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 4, "window": 8}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 3, "window": 7, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 2, "rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_000, 1_000_000], {"window": 64}),
]
write("SelfExtend", __doc__, distance_cases(f, models))
