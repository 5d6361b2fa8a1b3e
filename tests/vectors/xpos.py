"""xPos: RoPE, and the product of pair i of a query at m and a key at n times ζ_i^((m - n) / B), ζ_i = (2i + γ r) / ((1
+ γ) r).

Plain Python, float64, by m - n: no centre and no gains of their own. Pairs are dims (2i, 2i+1), or ("half") (i, i +
r/2). What is `computed` (d 8, γ 0.4, B 512): ζ_i^(distance / 512), shown by unit vectors and the cosine of RoPE's
angle.
"""

import math

from shared import vector, write


def product(q, k, m, n, r, base=1e4, gamma=0.4, scale_base=512.0, layout="interleaved"):
    total = sum(a * b for a, b in zip(q[r:], k[r:]))
    for i in range(r // 2):
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + r // 2)
        zeta = (2 * i + gamma * r) / ((1 + gamma) * r)
        angle = (m - n) * base ** (-2 * i / r)
        # Re of q · conjugate of k, turned by the angle.
        real, imaginary = q[a] * k[a] + q[b] * k[b], q[b] * k[a] - q[a] * k[b]
        total += zeta ** ((m - n) / scale_base) * (real * math.cos(angle) - imaginary * math.sin(angle))
    return total


COMPUTED = {
    (512, 0): [0.28571429, 0.46428571, 0.64285714, 0.82142857],
    (1, 0): [0.99755619, 0.99850258, 0.99913742, 0.99961587],
    (100, 0): [0.78295483, 0.8608332, 0.91732316, 0.96230871],
    (100, 40): [0.86345961, 0.91401096, 0.94954033, 0.97721168],
    (20_512, 20_000): [0.28571429, 0.46428571, 0.64285714, 0.82142857],
}
cases = []
for (m, n), gains in COMPUTED.items():
    for i, gain in enumerate(gains):
        unit = [float(at == 2 * i) for at in range(8)]
        cases.append(
            {
                "name": f"pair {i}, ({m}, {n})",
                "what": "logits",
                "from": "computed",
                "atol": 6e-9,
                "rtol": 0.0,
                "context": {"head_dim": 8},
                "scale": 1.0,
                "q": [[unit]],
                "k": [[unit]],
                "query": [m],
                "key": [n],
                "expected": [[[gain * math.cos((m - n) * 1e4 ** (-i / 4))]]],
            }
        )
for width, settings in [
    (8, {}),
    (8, {"layout": "half"}),
    (8, {"base": 500.0, "gamma": 1.5}),
    (8, {"scale_base": 1000.0, "max_length": 60_001}),
    (8, {"max_length": 2000}),
    (16, {"rotary_fraction": 0.25}),
    (16, {"rotary_fraction": 0.25, "layout": "half", "gamma": 0.1, "max_length": 16_000}),
    (2, {}),
]:
    r = int(settings.get("rotary_fraction", 1.0) * width)
    how = {name: value for name, value in settings.items() if name not in ("rotary_fraction", "max_length")}
    end = settings.get("max_length", 32768)
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    scale = 1 / math.sqrt(width)
    for at in ([0, 1, 4, 700, 1999], [end - 60, end - 58, end - 1]):
        q, k = [vector(width, 11 + p % 99) for p in at], [vector(width, 23 + p % 99) for p in at]
        cases.append(
            {
                "name": f"{name} at {at}",
                "what": "logits",
                "from": "formula",
                "context": {"head_dim": width},
                "settings": settings,
                # Angles of 10^5 radians are off by 10^-11.
                "atol": 2e-10,
                "rtol": 0.0,
                "scale": scale,
                "q": [q],
                "k": [k],
                "query": at,
                "key": at,
                "expected": [
                    [
                        [scale * product(u, w, m, n, r, **how) if n <= m else None for w, n in zip(k, at)]
                        for u, m in zip(q, at)
                    ]
                ],
            }
        )
write("XPos", __doc__, cases)
