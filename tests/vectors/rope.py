"""RoPE: pair p of the first r dims turns by position base^(-2p/r); pairs are dims (2p, 2p+1), or ("half") (p, p + r/2).

Plain Python, float64; `computed` values (8 digits): d = 4, position 3; products of q and k.
"""

import json
import math


def rotate(x, position, base=1e4, fraction=1.0, layout="interleaved"):
    r = int(fraction * len(x))
    out = list(x)
    for p in range(r // 2):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + r // 2)
        angle = position * base ** (-2 * p / r)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return out


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


COMPUTED = {"from": "computed", "rtol": 0.0}
X = [1.0, 2.0, 3.0, 4.0]
cases = [
    {
        "name": "interleaved",
        "what": "rotated",
        **COMPUTED,
        "atol": 5e-9,
        "context": {"head_dim": 4},
        "positions": [3],
        "x": [X],
        "expected": [[-1.27223251, -1.83886499, 2.8786681, 4.08818664]],
    },
    {
        "name": "half",
        "what": "rotated",
        **COMPUTED,
        "atol": 5e-9,
        "context": {"head_dim": 4},
        "settings": {"layout": "half"},
        "positions": [3],
        "x": [X],
        "expected": [[-1.41335252, 1.87911807, -2.82885748, 4.05819114]],
    },
]
# <R_m q, R_n k>, two spans for one product (m, n); position n is the key's, and 3 before 5 looks ahead.
for (m, n), product in {(0, 0): 1.0, (5, 3): 1.9290961, (12, 10): 1.9290961, (3, 5): 0.07050391}.items():
    rows = [rotate([1.0, 0.0, 1.0, 0.0], m), rotate([0.0, 1.0, 1.0, 1.0], n)]
    assert abs(sum(a * b for a, b in zip(*rows)) - product) < 5e-8
    cases.append(
        {
            "name": f"product ({m}, {n})",
            "what": "logits",
            **COMPUTED,
            "atol": 5e-8,
            "context": {"head_dim": 4},
            "scale": 1.0,
            "everywhere": True,
            "q": [[[1.0, 0.0, 1.0, 0.0]]],
            "k": [[[0.0, 1.0, 1.0, 1.0]]],
            "query": [m],
            "key": [n],
            "expected": [[[product]]],
        }
    )
for width, settings in [
    (8, {}),
    (8, {"layout": "half"}),
    (8, {"base": 500.0}),
    (16, {"rotary_fraction": 0.25}),
    (16, {"rotary_fraction": 0.25, "layout": "half"}),
    (2, {}),
    (10, {"rotary_fraction": 0.6, "layout": "half", "base": 100.0}),
]:
    how = {
        "base": settings.get("base", 1e4),
        "fraction": settings.get("rotary_fraction", 1.0),
        "layout": settings.get("layout", "interleaved"),
    }
    said = {"context": {"head_dim": width}, "settings": settings, "from": "formula", "rtol": 0.0}
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    # A float64 angle of 10^6 radians is off by 10^-10.
    for positions, atol in (([0, 1, 2, 3, 100], 1e-12), ([999_999, 1_000_000], 2e-9)):
        x = [vector(width, p % 7) for p in positions]
        cases.append(
            {
                "name": name,
                "what": "rotated",
                **said,
                "atol": atol,
                "positions": positions,
                "x": x,
                "expected": [rotate(v, p, **how) for v, p in zip(x, positions)],
            }
        )
    at, scale = [0, 1, 4, 9], 1 / math.sqrt(width)
    q, k = [vector(width, 11 + p) for p in at], [vector(width, 23 + p) for p in at]
    turned_q, turned_k = [rotate(v, p, **how) for v, p in zip(q, at)], [rotate(v, p, **how) for v, p in zip(k, at)]
    cases.append(
        {
            "name": name,
            "what": "logits",
            **said,
            "atol": 1e-12,
            "scale": scale,
            "q": [q],
            "k": [k],
            "query": at,
            "key": at,
            "expected": [
                [
                    [scale * sum(a * b for a, b in zip(u, w)) if j <= i else None for j, w in enumerate(turned_k)]
                    for i, u in enumerate(turned_q)
                ]
            ],
        }
    )
print(json.dumps({"encoding": "RoPE", "how": __doc__, "cases": cases}))
