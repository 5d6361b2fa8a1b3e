"""ReRoPE: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j below W; else W, or W + (i - j - W) / factor.

Su 2023, kexue.fm/archives/9708. Plain Python, float64.
"""

from shared import distance_cases, write


def f(i, j, length, window=None, factor=None):
    window = length // 8 if window is None else window
    if i - j < window:
        return i - j
    return window if factor is None else window + (i - j - window) / factor


assert [f(40, 40 - d, 64, 8, 4) for d in (7, 8, 12, 40)] == [7, 8, 9, 16]


models = [
    (8, 64, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"window": 5, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"factor": 4.0, "window": 8}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"factor": 16.0, "rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_000, 1_000_000], {"window": 64}),
]
write("ReRoPE", __doc__, distance_cases(f, models))
