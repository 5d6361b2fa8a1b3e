"""LeRoPE: pair p is rotated by position * base^(-2p/r) * e^(alpha_p / divisor), where r of the d dims are rotated.

transformers, models/mistral_large4 (divisor 1); Zhang et al. 2025 (GRAPE-M, non-contextual: e^(log_freq / 16)). Plain Python,
float64.
"""

import json
import math


def frequencies(r, alpha, base=1e4, divisor=1.0):
    return [base ** (-2 * p / r) * math.exp(a / divisor) for p, a in enumerate(alpha)]


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


cases = []
for width, settings, alpha in [
    (8, {}, [0.0, 0.0, 0.0, 0.0]),
    (8, {}, [0.5, -1.0, 0.25, 2.0]),
    (8, {"layout": "half", "base": 500.0}, [-0.5, 1.0, 0.0, 3.0]),
    (8, {"divisor": 16.0}, [8.0, -16.0, 3.0, 40.0]),
    (8, {"rotary_fraction": 0.5, "divisor": 2.0}, [1.0, -3.0]),
    (2, {}, [-0.75]),
]:
    rotated = int(width * settings.get("rotary_fraction", 1.0))
    theta = frequencies(rotated, alpha, settings.get("base", 1e4), settings.get("divisor", 1.0))
    layout = settings.get("layout", "interleaved")
    said = {
        "from": "formula",
        "context": {"head_dim": width},
        "settings": settings,
        "parameters": {"alpha": alpha},
        "rtol": 0.0,
    }
    name = f"d {width} alpha {alpha} " + " ".join(f"{k}={v}" for k, v in settings.items())
    # A float64 angle of 10^6 radians is off by 10^-10.
    for positions, atol in (([0, 1, 2, 3, 100], 1e-12), ([999_999, 1_000_000], 1e-8)):
        x = [vector(width, m % 7) for m in positions]
        turned = [rotate(v, m, theta, layout) for v, m in zip(x, positions)]
        cases.append(
            {"name": name, "what": "rotated", **said, "atol": atol, "positions": positions, "x": x, "expected": turned}
        )
    at, scale = [0, 1, 4, 900], 1 / math.sqrt(width)
    q, k = [vector(width, 11 + m) for m in at], [vector(width, 23 + m) for m in at]
    turned_q, turned_k = ([rotate(v, m, theta, layout) for v, m in zip(rows, at)] for rows in (q, k))
    cases.append(
        {
            "name": name,
            "what": "logits",
            **said,
            "atol": 1e-11,
            "query": at,
            "key": at,
            "q": [q],
            "k": [k],
            "scale": scale,
            "expected": [logits(turned_q, turned_k, scale)],
        }
    )
print(json.dumps({"encoding": "LeRoPE", "how": __doc__, "cases": cases}))
