"""NTK-aware scaling: RoPE with the base times s^(r/(r-2)), r rotary dims, so that the first pair stays and the last is
θ / s.

Plain Python, float64, by the base (not by powers of s); the base and the frequencies `computed` for d 8, s 4 are typed
in, and a unit vector shows their cosine and sine.
"""

import math

from shared import rotary_cases, write


def frequencies(r, factor=4.0, base=1e4):
    changed = base * factor ** (r / (r - 2))
    return [changed ** (-2 * p / r) for p in range(r // 2)]


# Half a unit of the last digit of 0.062996052 is 5e-10, 100 times that at position 100.
COMPUTED = [1.0, 0.062996052, 0.0039685026, 0.00025]
BASE = 63496.042
cases = [
    {
        "name": name,
        "what": "rotated",
        "from": "computed",
        "atol": 6e-8,
        "rtol": 0.0,
        "context": {"head_dim": 8},
        "positions": [1, 100],
        "x": [[1.0, 0.0] * 4] * 2,
        "expected": [[f(m * t) for t in theta for f in (math.cos, math.sin)] for m in (1, 100)],
    }
    for name, theta in (("d 8, s 4", COMPUTED), ("d 8, s 4, by its base", [BASE ** (-p / 4) for p in range(4)]))
]
for width, settings in [
    (8, {}),
    (8, {"factor": 1.0}),
    (8, {"factor": 2.5, "layout": "half"}),
    (8, {"factor": 32.0, "base": 500.0}),
    (16, {"factor": 8.0, "rotary_fraction": 0.25}),
    (4, {}),
]:
    r = int(settings.get("rotary_fraction", 1.0) * width)
    theta = frequencies(r, settings.get("factor", 4.0), settings.get("base", 1e4))
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    said = {"name": name, "from": "formula", "context": {"head_dim": width}, "settings": settings, "rtol": 0.0}
    cases += rotary_cases(said, width, theta, settings.get("layout", "interleaved"))
write("NTKAware", __doc__, cases)
