"""Inkling's temperature: 1 + strength ln(max(1, (i + 1) / length)), i the position (0-based).

huggingface/transformers, models/inkling, with the position ID in place of the token's index. Plain Python, float64. Its factor
multiplies a bias too, which this encoding alone does not have.
"""

import json
import math


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def factor(position, head, settings, parameters):
    ratio = (position + 1) / settings.get("length", 8192.0)
    return 1 + settings.get("strength", 0.1) * math.log(ratio) if ratio > 1 else 1.0


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
    by_hand("the last position without a factor", 8191, 1.0, {}, {}),
    by_hand("twice as far", 16383, 1 + 0.1 * math.log(2), {}, {}),
    by_hand("four times as far", 15, 3.0, {"strength": 1 / math.log(2), "length": 4.0}, {}),
    case("near", NEAR, {"strength": 0.5, "length": 4.0}, {}),
    case("far", FAR, {}, {}),
]

print(json.dumps({"encoding": "Inkling", "how": __doc__, "cases": cases}))
