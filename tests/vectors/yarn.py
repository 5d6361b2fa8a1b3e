"""YaRN: NTK-by-parts frequencies; rotated queries and keys times m = g(s, a) / g(s, b), g(s, x) = 0.1 x ln s + 1 (1 for
s <= 1), with a = mscale (1) and b = mscale_all_dim (0), or times attention_factor. The frequencies: theta_p / s where
pair p is past the border high, theta_p before low, and a ramp over p between (low, high: the pairs that turn beta_fast
and beta_slow times).

Plain Python, float64; `computed` m and frequencies (10 and 8 digits).
"""

import math

from shared import rotary_cases, write, yarn_frequencies


def g(s, x=1.0):
    return 1.0 if s <= 1 else 0.1 * x * math.log(s) + 1.0


COMPUTED = {"what": "rotated", "from": "computed", "rtol": 0.0}
M = {2: 1.0693147181, 4: 1.1386294361, 8: 1.2079441542, 16: 1.2772588722, 32: 1.3465735903}
assert abs(M[8] ** 2 - 1.4591290796) < 1e-9
cases = []
for s, m in M.items():  # position 0: m alone
    cases.append(
        {
            "name": f"m({s})",
            **COMPUTED,
            "atol": 2e-10,
            "context": {"head_dim": 4, "train_length": 64},
            "settings": {"factor": float(s)},
            "positions": [0],
            "x": [[1.0, 2.0, -3.0, 0.5]],
            "expected": [[m, 2 * m, -3 * m, m / 2]],
        }
    )
    # exllamav3 issue 259: alike, they leave the keys as long as they were.
    cases.append(
        {
            **cases[-1],
            "name": f"mscale and mscale_all_dim alike, s = {s}",
            "from": "formula",
            "atol": 1e-13,
            "settings": {"factor": float(s), "mscale": 1.0, "mscale_all_dim": 1.0},
            "expected": [[1.0, 2.0, -3.0, 0.5]],
        }
    )
SLOW = [0.0025, 7.9056942e-4, 2.5e-4, 7.9056942e-5]
FOR_100 = [1, 0.46393159, 0.20554805, 0.084468272, 0.03, 0.0070292666, 0.0039528471, 0.0022228493, 0.00125]
FOR_100 += [7.0292666e-4, 3.9528471e-4, 2.2228493e-4, 1.25e-4, 7.0292666e-5, 3.9528471e-5, 2.2228493e-5]
for d, length, settings, computed in [  # each pair alone, at the position where it turns by about 1 radian
    (8, 64, {}, [1, 0.0625, 0.0025, 0.00025]),
    (8, 64, {"truncate": False}, [1, 0.025595246, 0.0025, 0.00025]),
    (16, 64, {}, [1, 0.23717082, 0.05, 0.0079056942, *SLOW]),
    (16, 64, {"truncate": False}, [1, 0.19858352, 0.025595246, 0.0079056942, *SLOW]),
    (32, 100, {"factor": 8.0}, FOR_100),
    (32, 102, {"factor": 8.0}, FOR_100),
    (16, 64, {"ramp": "rotations"}, [0.47223991, 0.096049616, 0.02504498, 0.0079056942, *SLOW]),
]:
    m = M[int(settings.get("factor", 4))]
    positions = [round(1 / theta) for theta in computed]
    cases.append(
        {
            "name": f"d {d} L {length} {settings}",
            **COMPUTED,
            "atol": 5e-8,
            "context": {"head_dim": d, "train_length": length},
            "settings": settings,
            "positions": positions,
            "x": [[float(n == 2 * p) for n in range(d)] for p in range(len(computed))],
            "expected": [
                [m * (math.cos(at * t) if n == 2 * p else math.sin(at * t) if n == 2 * p + 1 else 0) for n in range(d)]
                for p, (at, t) in enumerate(zip(positions, computed))
            ],
        }
    )
for width, length, settings in [
    (8, 64, {}),
    (16, 64, {"factor": 1.0}),
    (16, 64, {"factor": 8.0, "layout": "half"}),
    (16, 64, {"attention_factor": 0.75}),
    (16, 64, {"attention_factor": 1.0, "ramp": "rotations"}),
    (32, 4096, {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}),
    (32, 4096, {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5}),
    (32, 4096, {"factor": 40.0, "mscale": 0.0}),
    (20, 512, {"rotary_fraction": 0.6, "base": 500.0, "truncate": False}),
    (20, 512, {"rotary_fraction": 0.6, "beta_fast": 8.0, "beta_slow": 0.5, "layout": "half"}),
]:
    skip = ("rotary_fraction", "layout", "factor", "attention_factor", "mscale", "mscale_all_dim")
    how = {k: v for k, v in settings.items() if k not in skip}
    layout, s = settings.get("layout", "interleaved"), settings.get("factor", 4.0)
    m = g(s, settings.get("mscale", 1.0)) / g(s, settings.get("mscale_all_dim", 0.0))
    m = settings.get("attention_factor", m)
    theta = yarn_frequencies(s, int(settings.get("rotary_fraction", 1.0) * width + 1e-9), length, **how)
    said = {
        "name": f"d {width} L {length} " + " ".join(f"{k}={v}" for k, v in settings.items()),
        "from": "formula",
        "rtol": 0.0,
        "context": {"head_dim": width, "train_length": length},
        "settings": settings,
    }
    places = {"near": ([0, 3, 1000], 2e-12), "far": ([1_000_000], 2e-9), "at": [0, 5, 90]}
    cases += rotary_cases(said, width, theta, layout, m, **places, atol=4e-12)
write("YaRN", __doc__, cases)
