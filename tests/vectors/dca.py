"""DCA: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j in the same chunk of s = c - w tokens; min(i mod s + s, c) - j mod s if j is in the chunk before; else c - j
mod s.

An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models". With L 16, c 12 and w 2, the (25, 24),
(25, 19), (21, 19), (25, 12) and (25, 3) have the distances 1, 3, 2, 10 and 9. Plain Python, float64.
"""

from shared import distance_cases, write


def f(i, j, length, chunk=None, window=None):
    chunk = 3 * length // 4 if chunk is None else chunk
    s = chunk - (chunk // 6 if window is None else window)
    if i // s == j // s:
        return i - j
    return (min(i % s + s, chunk) if i // s - j // s == 1 else chunk) - j % s


assert [f(i, j, 16) for i, j in ((25, 24), (25, 19), (21, 19), (25, 12), (25, 3))] == [1, 3, 2, 10, 9]
assert max(f(i, j, 16) for i in range(100) for j in range(i + 1)) == 12


models = [
    (8, 16, [0, 3, 9, 10, 12, 19, 21, 24, 25, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"chunk": 8, "window": 3, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"window": 5}),
    (8, 32, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_960, 999_970, 1_000_000], {"chunk": 64}),
]
write("DCA", __doc__, distance_cases(f, models))
