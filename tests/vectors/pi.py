"""Position Interpolation: RoPE whose every pair turns at θ / s, s the factor; pairs are dims (2p, 2p+1), or ("half") (p, p + r/2).

Plain Python, float64; the frequencies `computed` (d 8, s 4) are typed in, and a unit vector shows their cosine and sine.
"""

import json
import math


def frequencies(r, factor=4.0, base=1e4):
    return [base ** (-2 * p / r) / factor for p in range(r // 2)]


def rotate(x, position, theta, layout="interleaved"):
    out = list(x)
    for p, radians in enumerate(theta):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + len(theta))
        cos, sin = math.cos(position * radians), math.sin(position * radians)
        out[a], out[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
    return out


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def logits(q, k, scale):
    return [
        [scale * sum(a * b for a, b in zip(u, w)) if j <= i else None for j, w in enumerate(k)] for i, u in enumerate(q)
    ]


COMPUTED = [0.25, 0.025, 0.0025, 0.00025]
cases = [
    {
        "name": "d 8, s 4",
        "what": "rotated",
        "from": "computed",
        "atol": 1e-12,
        "rtol": 0.0,
        "context": {"head_dim": 8},
        "positions": [1, 400],
        "x": [[1.0, 0.0] * 4] * 2,
        "expected": [[f(m * t) for t in COMPUTED for f in (math.cos, math.sin)] for m in (1, 400)],
    }
]
for width, settings in [
    (8, {}),
    (8, {"factor": 1.0}),
    (8, {"factor": 2.5, "layout": "half"}),
    (8, {"factor": 32.0, "base": 500.0}),
    (16, {"factor": 8.0, "rotary_fraction": 0.25}),
    (2, {}),
]:
    r = int(settings.get("rotary_fraction", 1.0) * width)
    theta = frequencies(r, settings.get("factor", 4.0), settings.get("base", 1e4))
    layout = settings.get("layout", "interleaved")
    said = {"from": "formula", "context": {"head_dim": width}, "settings": settings, "rtol": 0.0}
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    # A float64 angle of 10^6 radians is off by 10^-10.
    for positions, atol in (([0, 1, 2, 3, 100], 1e-12), ([999_999, 1_000_000], 2e-9)):
        x = [vector(width, p % 7) for p in positions]
        turned = [rotate(v, p, theta, layout) for v, p in zip(x, positions)]
        cases.append(
            {"name": name, "what": "rotated", **said, "atol": atol, "positions": positions, "x": x, "expected": turned}
        )
    at, scale = [0, 1, 4, 900], 1 / math.sqrt(width)
    q, k = [vector(width, 11 + p) for p in at], [vector(width, 23 + p) for p in at]
    turned_q, turned_k = ([rotate(v, p, theta, layout) for v, p in zip(rows, at)] for rows in (q, k))
    cases.append(
        {
            "name": name,
            "what": "logits",
            **said,
            "atol": 1e-11,
            "scale": scale,
            "q": [q],
            "k": [k],
            "query": at,
            "key": at,
            "expected": [logits(turned_q, turned_k, scale)],
        }
    )
print(json.dumps({"encoding": "PI", "how": __doc__, "cases": cases}))
