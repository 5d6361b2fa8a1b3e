"""Position Interpolation: RoPE whose every pair turns at θ / s, s the factor; pairs are dims (2p, 2p+1), or ("half")
(p, p + r/2).

Plain Python, float64; the frequencies `computed` (d 8, s 4) are typed in, and a unit vector shows their cosine and
sine.
"""

import math

from shared import rotary_cases, write


def frequencies(r, factor=4.0, base=1e4):
    return [base ** (-2 * p / r) / factor for p in range(r // 2)]


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
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    said = {"name": name, "from": "formula", "context": {"head_dim": width}, "settings": settings, "rtol": 0.0}
    cases += rotary_cases(said, width, theta, settings.get("layout", "interleaved"))
write("PI", __doc__, cases)
