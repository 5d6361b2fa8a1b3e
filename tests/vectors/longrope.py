"""LongRoPE: pair p turns by position base^(-2p/r) / lambda_p; lambda is short_factor while the furthest position + 1 is
at most L, the trained length, and long_factor beyond; queries and keys times sqrt(1 + ln s / ln L) (1 for s <= 1), or
attention_factor. Without lists: 1 for short_factor, and for long_factor NTK-aware scaling by s, base' = base s^(r / (r
- 2)).

Plain Python, float64; `printed`: the factor of Phi-3-mini-128k and Phi-4-mini (s 32, L 4096), in the graphs that
compilers print.
"""

import math

from shared import rotary_logits, rotate, write


def frequencies(n, r, length, base=1e4, factor=4.0, short_factor=None, long_factor=None):
    theta = [base ** (-2 * p / r) for p in range(r // 2)]
    if n <= length:
        return [t / x for t, x in zip(theta, short_factor or [1.0] * len(theta), strict=True)]
    if long_factor:
        return [t / x for t, x in zip(theta, long_factor, strict=True)]
    scaled = base * factor ** (r / (r - 2)) if r > 2 else base
    return [scaled ** (-2 * p / r) for p in range(r // 2)]


M = 1.1902380714238083
cases = [
    {
        "name": "Phi-3-mini-128k, Phi-4-mini",
        "what": "rotated",
        "from": "printed",
        "source": "a constant in public programs for Phi-3-mini-128k and Phi-4-mini, and in printed graphs of them",
        "atol": 1e-15,
        "rtol": 0.0,
        "context": {"head_dim": 4, "train_length": 4096},
        "settings": {"factor": 32.0},
        "positions": [0],  # m alone, below the trained length too
        "x": [[1.0, 2.0, -3.0, 0.5]],
        "expected": [[M, 2 * M, -3 * M, M / 2]],
    }
]
SHORT, LONG = [1.0, 1.0, 1.02, 1.25], [1.0, 1.5, 8.0, 60.5]
for width, length, settings in [
    (8, 64, {}),
    (8, 64, {"factor": 1.0}),
    (8, 64, {"factor": 1.0, "long_factor": LONG}),
    (8, 64, {"factor": 16.0, "short_factor": SHORT, "long_factor": LONG}),
    (8, 64, {"layout": "half", "long_factor": LONG, "attention_factor": 1.5}),
    (16, 512, {"base": 500.0, "factor": 32.0, "layout": "half"}),
    (20, 50, {"rotary_fraction": 0.4, "short_factor": SHORT, "factor": 2.5}),
    (20, 50, {"rotary_fraction": 0.4, "short_factor": SHORT, "long_factor": LONG, "layout": "half"}),
    (2, 50, {"long_factor": [3.0]}),
    (2, 50, {}),
]:
    how = {k: v for k, v in settings.items() if k not in ("rotary_fraction", "layout", "attention_factor")}
    layout, s = settings.get("layout", "interleaved"), settings.get("factor", 4.0)
    m = 1.0 if s <= 1 else math.sqrt(1 + math.log(s) / math.log(length))
    m = settings.get("attention_factor", m)
    # One text for every length: up to L, one past it, and far.
    for n in (length, length + 1, 100_000):
        theta = frequencies(n, int(settings.get("rotary_fraction", 1.0) * width + 1e-9), length, **how)
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
write("LongRoPE", __doc__, cases)
