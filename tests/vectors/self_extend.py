"""SelfExtend: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j below W; else floor(i / G) - floor(j / G) + W - floor(W / G).

Jin et al. 2024, algorithm 1, with the last term rounded down. With G 4 and W 8, the distances 7, 8, 9, 12 and 40 of i = 40 become
7, 8, 9, 9 and 16. Plain Python, float64.
"""

import json
import math


def f(i, j, length, group=8, window=None):
    window = length // 4 if window is None else window
    return i - j if i - j < window else i // group - j // group + window - window // group


assert [f(40, 40 - d, 64, 4, 8) for d in (7, 8, 9, 12, 40)] == [7, 8, 9, 9, 16]


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
    (8, 64, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 4, "window": 8}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 3, "window": 7, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"group": 2, "rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_000, 1_000_000], {"window": 64}),
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
print(json.dumps({"encoding": "SelfExtend", "how": __doc__, "cases": cases}))
