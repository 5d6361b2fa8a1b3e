"""Log-n scaling: max(1, ln(i + 1) / ln L), i the position (0-based), L the trained length.

Plain Python, float64, by the change of base in two other ways: log_L(i + 1), and exact ratios where both are powers of 2.
"""

import json
import math


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def factor(position, head, settings, parameters):
    return max(1.0, math.log(position + 1, TRAINED))


TRAINED = 16


def case(name, at, settings, context, heads=1, parameters=None, width=3, scale=0.5):
    """Logits of one query at each position with every key up to it; None for keys after it."""
    rows = []
    for h in range(heads):
        q, k = ([vector(width, a + 5 * h + p % 99) for p in at] for a in (11, 23))
        gains = [factor(p, h, settings, parameters) for p in at]
        logits = [
            [gain * scale * dot(u, w) if j <= i else None for j, w in enumerate(k)]
            for i, (u, gain) in enumerate(zip(q, gains))
        ]
        rows.append((q, k, logits))
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-11,
        "rtol": 0.0,
        "context": context,
        "settings": settings,
        **({"parameters": parameters} if parameters else {}),
        "scale": scale,
        "q": [q for q, _, _ in rows],
        "k": [k for _, k, _ in rows],
        "query": at,
        "key": at,
        "expected": [logits for _, _, logits in rows],
    }


def by_hand(name, position, gain, settings, context, parameters=None):
    """One query with the logits 1 and 2 before the factor; the factor is typed in."""
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-11,
        "rtol": 0.0,
        "context": context,
        "settings": settings,
        **({"parameters": parameters} if parameters else {}),
        "scale": 0.5,
        "q": [[[2.0, 1.0]]],
        "k": [[[1.0, 0.0], [3.0, -2.0]]],
        "query": [position],
        "key": [0, position],
        "expected": [[[gain, 2 * gain]]],
    }


NEAR, FAR = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 40], [0, 8190, 8191, 8192, 16383, 16384, 100_000, 1_000_000]
cases = [
    # log2(1024) / log2(512) = 10/9, and so on: no logarithm is taken. Position 510 sees 511 keys.
    by_hand(f"L {trained}, position {position}", position, gain, {}, {"train_length": trained})
    for trained, position, gain in [
        (512, 510, 1.0),
        (512, 511, 1.0),
        (512, 1023, 10 / 9),
        (512, 32767, 15 / 9),
        (2, 3, 2.0),
        (2, 0, 1.0),
        (16, 65535, 4.0),
    ]
]
cases += [case(name, at, {}, {"train_length": TRAINED}) for name, at in (("near", NEAR), ("far", FAR))]

print(json.dumps({"encoding": "LogN", "how": __doc__, "cases": cases}))
