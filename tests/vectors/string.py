"""STRING: q and k of a pair have the product of RoPE at the distance f(i, j):

f = i - j below S; else i - j - S + W.

An et al. 2024, "Why Does the Effective Context Length of LLMs Fall Short?", section 4. Plain Python, float64.
"""

import json
import math


def f(i, j, length, shift=None, local=None):
    shift = math.floor(0.33 * length) if shift is None else shift
    local = min(128, shift // 2) if local is None else local
    return i - j if i - j < shift else i - j - shift + local


assert [f(11, 11 - d, 12, 4, 2) for d in (3, 4, 5, 11)] == [3, 2, 3, 9]


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
    (8, 64, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"shift": 9, "local": 0, "layout": "half", "base": 500.0}),
    (8, 16, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"shift": 4, "local": 3}),
    (8, 32, [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 40], {"rotary_fraction": 0.5}),
    (2, 64, [0, 5, 999_000, 1_000_000], {"shift": 64}),
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
print(json.dumps({"encoding": "STRING", "how": __doc__, "cases": cases}))
