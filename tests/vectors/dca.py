"""DCA: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j in the same chunk of s = c - w tokens; min(i mod s + s, c) - j mod s if j is in the chunk before; else c - j mod s.

An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models". With L 16, c 12 and w 2, the (25, 24), (25,
19), (21, 19), (25, 12) and (25, 3) have the distances 1, 3, 2, 10 and 9. Plain Python, float64.
"""

import json
import math


def f(i, j, length, chunk=None, window=None):
    chunk = 3 * length // 4 if chunk is None else chunk
    s = chunk - (chunk // 6 if window is None else window)
    if i // s == j // s:
        return i - j
    return (min(i % s + s, chunk) if i // s - j // s == 1 else chunk) - j % s


assert [f(i, j, 16) for i, j in ((25, 24), (25, 19), (21, 19), (25, 12), (25, 3))] == [1, 3, 2, 10, 9]
assert max(f(i, j, 16) for i in range(100) for j in range(i + 1)) == 12


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def product(q, k, distance, rotated, base, layout):
    """q is turned by the distance, k stays."""
    total = sum(a * b for a, b in zip(q[rotated:], k[rotated:]))
    for p in range(rotated // 2):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + rotated // 2)
        angle = distance * base ** (-2 * p / rotated)
        x = q[a] * math.cos(angle) - q[b] * math.sin(angle)
        y = q[b] * math.cos(angle) + q[a] * math.sin(angle)
        total += x * k[a] + y * k[b]
    return total


cases = []
for width, length, positions, settings in [
    (8, 16, [0, 3, 9, 10, 12, 19, 21, 24, 25, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"chunk": 8, "window": 3, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"window": 5}),
    (8, 32, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_960, 999_970, 1_000_000], {"chunk": 64}),
]:
    rope = {"base": 1e4, "layout": "interleaved", "rotary_fraction": 1.0} | settings
    own = {name: value for name, value in settings.items() if name not in ("base", "layout", "rotary_fraction")}
    rotated, scale = int(width * rope["rotary_fraction"]), 1 / math.sqrt(width)
    q, k = [vector(width, 11 + m % 13) for m in positions], [vector(width, 23 + m % 17) for m in positions]
    logits = [
        [
            scale * product(q[a], k[b], f(i, j, length, **own), rotated, rope["base"], rope["layout"])
            if b <= a
            else None
            for b, j in enumerate(positions)
        ]
        for a, i in enumerate(positions)
    ]
    cases.append(
        {
            "name": f"d {width} L {length} " + " ".join(f"{name}={value}" for name, value in settings.items()),
            "what": "logits",
            "from": "formula",
            "context": {"head_dim": width, "train_length": length},
            "settings": settings,
            "rtol": 0.0,
            "atol": 1e-10,
            "query": positions,
            "key": positions,
            "q": [q],
            "k": [k],
            "scale": scale,
            "expected": [logits],
        }
    )
print(json.dumps({"encoding": "DCA", "how": __doc__, "cases": cases}))
