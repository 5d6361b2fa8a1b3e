"""NTK-by-parts: pair p turns by position theta_p (rho_p / s + 1 - rho_p), theta_p = base^(-2p/r), p = 0 ... r/2 - 1.

ramp "index": b(n) = r ln(L / (2 pi n)) / (2 ln base) is the index of the pair that turns n times within the trained
length L; low = b(beta_fast), high = b(beta_slow), rounded outwards (truncate) and moved into 0 ... r - 1; equal borders
are 0.001 apart; rho_p = (p - low) / (high - low), clipped to 0 ... 1. ramp "rotations": n_p = L theta_p / (2 pi), and 1
- rho_p = (n_p - beta_slow) / (beta_fast - beta_slow), clipped likewise.

Plain Python, float64; `computed` borders and frequencies have 8 digits.
"""

import math

from shared import clip, rotary_cases, write


def border(turns, r, length, base):
    return r * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))


def borders(r, length, base, fast, slow, truncate):
    low, high = border(fast, r, length, base), border(slow, r, length, base)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = (min(max(x, 0), r - 1) for x in (low, high))
    return low, high + 0.001 if low == high else high


def frequencies(r, length, base=1e4, factor=4.0, beta_fast=32.0, beta_slow=1.0, ramp="index", truncate=True):
    out = []
    for p in range(r // 2):
        theta = base ** (-2 * p / r)
        if ramp == "index":
            low, high = borders(r, length, base, beta_fast, beta_slow, truncate)
            rho = clip((p - low) / (high - low))
        else:
            rho = 1 - clip((length * theta / (2 * math.pi) - beta_slow) / (beta_fast - beta_slow))
        out.append(theta / factor * rho + theta * (1 - rho))
    return out


cases = []

# ---- computed: borders (checked here), frequencies (each pair alone, where it turns by about 1 radian) ----

for (d, length), raw, rounded in [
    ((8, 64), (-0.497150, 1.008000), (0, 2)),
    ((16, 64), (-0.994300, 2.016000), (0, 3)),
    ((32, 100), (-1.213319, 4.807281), (0, 5)),
    ((32, 102), (-1.178919, 4.841681), (0, 5)),
    ((64, 512), (3.247521, 15.288721), (3, 16)),
    ((128, 2048), (16.128002, 40.210401), (16, 41)),
    ((128, 4096), (20.944482, 45.026881), (20, 46)),
]:
    assert all(abs(border(n, d, length, 1e4) - x) < 1e-6 for n, x in zip((32, 1), raw))
    assert borders(d, length, 1e4, 32, 1, True) == rounded
FOR_100 = [1, 0.46393159, 0.20554805, 0.084468272, 0.03, 0.0070292666, 0.0039528471, 0.0022228493, 0.00125]
FOR_100 += [7.0292666e-4, 3.9528471e-4, 2.2228493e-4, 1.25e-4, 7.0292666e-5, 3.9528471e-5, 2.2228493e-5]
SLOW = [0.0025, 7.9056942e-4, 2.5e-4, 7.9056942e-5]
BY_ROTATIONS = [0.47223991, 0.096049616, 0.02504498, 0.0079056942, *SLOW]
gammas = [0.29631988, 0.071647406, 5.9973019e-4, 0.0]
for p, (turns, gamma) in enumerate(zip([10.185916, 3.2210696, 1.0185916, 0.32210696], gammas)):
    theta = 1e4 ** (-2 * p / 16)
    assert abs(64 * theta / (2 * math.pi) - turns) < 5e-7
    assert abs(theta * gamma + theta * (1 - gamma) / 4 - BY_ROTATIONS[p]) < 5e-9
for d, length, settings, computed in [
    (8, 64, {}, [1, 0.0625, 0.0025, 0.00025]),
    (8, 64, {"truncate": False}, [1, 0.025595246, 0.0025, 0.00025]),
    (16, 64, {}, [1, 0.23717082, 0.05, 0.0079056942, *SLOW]),
    (16, 64, {"truncate": False}, [1, 0.19858352, 0.025595246, 0.0079056942, *SLOW]),
    (32, 100, {"factor": 8.0}, FOR_100),
    (32, 102, {"factor": 8.0}, FOR_100),
    (16, 64, {"ramp": "rotations"}, BY_ROTATIONS),
]:
    positions = [round(1 / theta) for theta in computed]
    cases.append(
        {
            "name": f"d {d} L {length} {settings}",
            "what": "rotated",
            "from": "computed",
            "atol": 5e-8,
            "rtol": 0.0,
            "context": {"head_dim": d, "train_length": length},
            "settings": settings,
            "positions": positions,
            "x": [[float(n == 2 * p) for n in range(d)] for p in range(len(computed))],
            "expected": [
                [
                    math.cos(at * theta) if n == 2 * p else math.sin(at * theta) if n == 2 * p + 1 else 0.0
                    for n in range(d)
                ]
                for p, (at, theta) in enumerate(zip(positions, computed))
            ],
        }
    )

# ---- formula ----

for width, length, settings in [
    (8, 64, {}),
    (16, 16, {}),
    (16, 64, {"factor": 1.0}),
    (16, 64, {"factor": 2.5, "layout": "half"}),
    (16, 64, {"factor": 8.0, "ramp": "rotations"}),
    (16, 64, {"beta_fast": 8.0, "beta_slow": 0.25, "truncate": False}),
    (16, 4096, {"beta_fast": 8.0, "beta_slow": 2.0, "ramp": "rotations", "layout": "half"}),
    (32, 512, {"factor": 16.0, "base": 500.0}),
    (32, 512, {"factor": 16.0, "base": 500_000.0, "truncate": False}),
    (20, 512, {"rotary_fraction": 0.6, "factor": 4.0}),
    (20, 512, {"rotary_fraction": 0.6, "layout": "half", "ramp": "rotations"}),
    (2, 512, {}),
    # Borders that lie outside: every pair turns more often than beta_fast, or the fastest less often than beta_slow.
    (8, 100_000, {"base": 3.0, "factor": 8.0}),
    (8, 100_000, {"base": 3.0, "factor": 8.0, "truncate": False}),
    (16, 2, {"base": 10.0, "factor": 8.0}),
    (16, 2, {"base": 10.0, "factor": 8.0, "truncate": False}),
    (16, 2, {"base": 10.0, "factor": 8.0, "ramp": "rotations"}),
]:
    how = {k: v for k, v in settings.items() if k not in ("rotary_fraction", "layout")}
    layout = settings.get("layout", "interleaved")
    theta = frequencies(int(settings.get("rotary_fraction", 1.0) * width + 1e-9), length, **how)
    said = {
        "name": f"d {width} L {length} " + " ".join(f"{k}={v}" for k, v in settings.items()),
        "from": "formula",
        "rtol": 0.0,
        "context": {"head_dim": width, "train_length": length},
        "settings": settings,
    }
    places = {"near": ([1, 3, 1000], 2e-12), "far": ([1_000_000], 2e-9), "at": [0, 5, 90]}
    cases += rotary_cases(said, width, theta, layout, **places, atol=2e-12)
write("NTKByParts", __doc__, cases)
