"""Dynamic NTK: RoPE whose base is base · (f n / L - (f - 1))^(r/(r-2)) past the trained length L, n the current length.

f 1 is the paper's form, s = max(1, n / L); f above 1 is Hugging Face's. With a step, n is L and the excess rounded up
to a multiple of it. The current length of a case is its furthest position + 1. Plain Python, float64; the bases and
frequencies `computed` (d 8, L 16) are typed in, and a unit vector shows their cosine and sine.
"""

import math

from shared import rotary_logits, write


def frequencies(r, length, trained, factor=1.0, base=1e4, step=1):
    n = trained + math.ceil(max(0, length - trained) / step) * step
    changed = base * (factor * n / trained - (factor - 1)) ** (r / (r - 2))
    return [changed ** (-2 * p / r) for p in range(r // 2)]


# Length: base in the paper's form, and in Hugging Face's with f 4.
BASES = {
    16: (10000.0, 10000.0),
    17: (10841.896, 13465.217),
    24: (17170.714, 43267.487),
    32: (25198.421, 85498.797),
    64: (63496.042, 305673.51),
    128: (160000.0, 890971.88),
}
COMPUTED = {1.0: [1.0, 0.079370053, 0.0062996052, 0.0005], 4.0: [1.0, 0.058480355, 0.0034199519, 0.0002]}
told = [
    (f"n {n}, f {f:g}, by its base", n, f, [base ** (-p / 4) for p in range(4)])
    for n, pair in BASES.items()
    for f, base in zip((1.0, 4.0), pair)
]
told += [(f"n 32, f {f:g}", 32, f, theta) for f, theta in COMPUTED.items()]
cases = [
    {
        "name": name,
        "what": "rotated",
        "from": "computed",
        # Half a unit of the last of 8 digits, at positions to 127.
        "atol": 6e-8,
        "rtol": 0.0,
        "context": {"head_dim": 8, "train_length": 16},
        "settings": {"factor": factor},
        "positions": [1, n - 1],
        "x": [[1.0, 0.0] * 4] * 2,
        "expected": [[f(m * t) for t in theta for f in (math.cos, math.sin)] for m in (1, n - 1)],
    }
    for name, n, factor, theta in told
]
for width, trained, settings in [
    (8, 16, {}),
    (8, 16, {"factor": 4.0}),
    (8, 5, {"factor": 8.0, "layout": "half"}),
    (8, 1, {"base": 500.0}),
    (16, 64, {"rotary_fraction": 0.25, "scale_step": 32}),
    (16, 16, {"factor": 2.0, "scale_step": 100}),
    (4, 100, {}),
]:
    r = int(settings.get("rotary_fraction", 1.0) * width)
    context = {"head_dim": width, "train_length": trained}
    said = {"from": "formula", "context": context, "settings": settings, "rtol": 0.0, "atol": 1e-11}
    for length in (1, trained, trained + 1, 2 * trained + 3, 100 * trained):
        theta = frequencies(
            r, length, trained, settings.get("factor", 1.0), settings.get("base", 1e4), settings.get("scale_step", 1)
        )
        name = f"d {width}, L {trained}, n {length} " + " ".join(f"{k}={v}" for k, v in settings.items())
        at = sorted({0, length // 3, length // 2, length - 1})
        cases.append(rotary_logits({"name": name} | said, width, at, theta, settings.get("layout", "interleaved")))
write("DynamicNTK", __doc__, cases)
