"""LeRoPE: pair p is rotated by position * base^(-2p/r) * e^(alpha_p / divisor), where r of the d dims are rotated.

transformers, models/mistral_large4 (divisor 1); Zhang et al. 2025 (GRAPE-M, non-contextual: e^(log_freq / 16)). Plain
Python, float64.
"""

import math

from shared import rotary_cases, write


def frequencies(r, alpha, base=1e4, divisor=1.0):
    return [base ** (-2 * p / r) * math.exp(a / divisor) for p, a in enumerate(alpha)]


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
    said = {
        "name": f"d {width} alpha {alpha} " + " ".join(f"{k}={v}" for k, v in settings.items()),
        "from": "formula",
        "context": {"head_dim": width},
        "settings": settings,
        "parameters": {"alpha": alpha},
        "rtol": 0.0,
    }
    far = [999_999, 1_000_000], 1e-8
    cases += rotary_cases(said, width, theta, settings.get("layout", "interleaved"), far=far)
write("LeRoPE", __doc__, cases)
