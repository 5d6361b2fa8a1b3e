"""The temperature of Mistral Large 4: scale_h ln(i + 1) + bias_h, i the position (0-based).

huggingface/transformers, models/mistral_large4 (`MistralLarge4TextSoftmaxScaling`), without its rounding. Plain Python, float64.
"""

import json
import math


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def factor(position, head, settings, parameters):
    return parameters["scale"][head] * math.log(position + 1) + parameters["bias"][head]


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
ONE, TWO = {"num_heads": 1}, {"num_heads": 2}
cases = [
    by_hand("ln 1 = 0", 0, 0.75, {}, ONE, {"scale": [3.0], "bias": [0.75]}),
    by_hand("ln 8 = 3 ln 2", 7, 7.0, {}, ONE, {"scale": [2 / math.log(2)], "bias": [1.0]}),
    case("initial parameters", NEAR, {}, TWO, 2, {"scale": [0.0, 0.0], "bias": [1.0, 1.0]}),
    case("near", NEAR, {}, TWO, 2, {"scale": [0.3, -0.2], "bias": [0.5, 1.5]}),
    case("far", FAR, {}, TWO, 2, {"scale": [0.1, 0.43], "bias": [0.9, -1.0]}),
]

print(json.dumps({"encoding": "MistralLarge4", "how": __doc__, "cases": cases}))
