"""PoPE: scale * sum over c of softplus(q_c) softplus(k_c) cos((j - i) base^(-c/d) + delta_c), delta clamped to -2 pi
... 0.

Gopalakrishnan et al. 2025; lucidrains/PoPE-pytorch, PoPE_pytorch/pope.py. Plain Python, float64.
"""

import math

from shared import softplus, table, write


def logit(q, k, i, j, delta, base, scale, clamp):
    d = len(q)
    if clamp:
        delta = [min(max(shift, -2 * math.pi), 0.0) for shift in delta]
    parts = [
        softplus(a) * softplus(b) * math.cos((j - i) * base ** (-c / d) + shift)
        for c, (a, b, shift) in enumerate(zip(q, k, delta))
    ]
    return scale * math.fsum(parts)


def case(name, delta, q, k, query, key, *, base=None, scale=0.5, atol=1e-12, **settings):
    how = base or 1e4, scale, settings.get("clamp", True)
    expected = [
        [[logit(qi, kj, i, j, shift, *how) if j <= i else None for j, kj in zip(key, kh)] for i, qi in zip(query, qh)]
        for shift, qh, kh in zip(delta, q, k)
    ]
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": atol,
        "rtol": 0.0,
        "context": {"num_heads": len(delta), "head_dim": len(delta[0])},
        "settings": settings | ({"base": base} if base else {}),
        "parameters": {"delta": delta},
        "query": query,
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": expected,
    }


def random_case(name, heads, d, query, key, *, seed, size=3.0, **more):
    delta = table(heads, d, seed, size)
    q, k = ([table(len(at), d, seed + 31 * h + n, 2.0) for h in range(heads)] for n, at in ((1, query), (2, key)))
    return case(name, delta, q, k, query, key, **more)


at = list(range(8))
cases = [
    # ln(2)^2 (cos 2 + cos 0.02) = 0.280418
    case("by hand", [[0.0, 0.0]], [[[0.0, 0.0]]], [[[0.0, 0.0]]], [3], [1], scale=1.0),
    case("a quarter turn", [[-math.pi / 2, 0.0]], [[[0.0, 0.0]]], [[[0.0, 0.0]]], [3], [3], scale=1.0),
    random_case("one head", 1, 4, at, at, seed=10),
    random_case("numbers past the bounds", 3, 6, at, at, seed=20, size=9.0),
    random_case("without bounds", 2, 4, at, at, seed=30, size=9.0, clamp=False),
    random_case("another base", 2, 5, at, at, seed=40, base=100.0),
    random_case("large numbers", 1, 4, at, at, seed=50, scale=2.0),
    random_case("far apart", 2, 4, [0, 7, 1000, 999_999], [0, 7, 1000, 999_999], seed=60, atol=1e-8),
    random_case("one query", 2, 4, [90], [*range(0, 90, 9), 90], seed=70),
]
write("PoPE", __doc__, cases)
