"""Dynamic YaRN: YaRN with s = max(1, n / L), n the furthest position + 1, L the trained length. With scale_step m, n is
L plus n - L rounded up to a multiple of m. Frequencies theta_p / s past the border high, theta_p before low, a ramp
over p between (low, high: the pairs that turn beta_fast and beta_slow times within L); queries and keys times 0.1 ln s
+ 1.

Plain Python, float64; `computed` frequencies and factor for n = 96, L = 64 (8 digits).
"""

import math

from shared import rotary_logits, rotate, write, yarn_frequencies


def scale_at(n, length, step=1):
    return 1.0 if n <= length else (length + math.ceil((n - length) / step) * step) / length


COMPUTED = [1, 0.28109135, 0.077777778, 0.021081851, 0.0066666667, 0.0021081851, 0.00066666667, 0.00021081851]
M = 1.0405465108
assert all(abs(a - b) < 5e-9 for a, b in zip(yarn_frequencies(1.5, 16, 64), COMPUTED))
cases = [
    {
        "name": "n 96, L 64",
        "what": "rotated",
        "from": "computed",
        # Position 95 turns a frequency of 8 digits into an angle of 6.
        "atol": 5e-7,
        "rtol": 0.0,
        "context": {"head_dim": 16, "train_length": 64},
        "positions": [0, 1, 14, 95],
        "x": [[1.0, 0.0] * 8] * 4,
        "expected": [[M * f(at * t) for t in COMPUTED for f in (math.cos, math.sin)] for at in (0, 1, 14, 95)],
    }
]
for width, length, settings in [
    (16, 64, {}),
    (16, 64, {"layout": "half", "ramp": "rotations"}),
    (8, 64, {"scale_step": 16, "truncate": False}),
    (16, 50, {"scale_step": 7, "beta_fast": 4.0, "beta_slow": 0.25}),
    (20, 512, {"rotary_fraction": 0.6, "base": 500.0, "scale_step": 1000}),
]:
    how = {k: v for k, v in settings.items() if k not in ("rotary_fraction", "layout", "scale_step")}
    layout, r = settings.get("layout", "interleaved"), int(settings.get("rotary_fraction", 1.0) * width + 1e-9)
    # One row of a text for every length: up to L, one past it, on both sides of a step, and far.
    for n in (length, length + 1, length + 16, 3 * length + 1, 100_000):
        s = scale_at(n, length, settings.get("scale_step", 1))
        theta, m = yarn_frequencies(s, r, length, **how), 1.0 if s <= 1 else 0.1 * math.log(s) + 1
        said = {
            "name": f"n {n} d {width} L {length} " + " ".join(f"{k}={v}" for k, v in settings.items()),
            "from": "formula",
            "atol": 2e-9 if n == 100_000 else 2e-12,
            "rtol": 0.0,
            "context": {"head_dim": width, "train_length": length},
            "settings": settings,
        }
        at = [0, n // 2, n - 1]
        case = rotary_logits(said, width, at, theta, layout, m, period=5)
        x, expected = case["q"][0], [rotate(v, p, theta, layout, m) for v, p in zip(case["q"][0], at)]
        cases += [{**said, "what": "rotated", "positions": at, "x": x, "expected": expected}, case]
write("DynamicYaRN", __doc__, cases)
