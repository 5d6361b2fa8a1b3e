"""p-RoPE: the fastest floor(p d / 2) of the d/2 pairs turn as in RoPE over the whole head, base^(-2i/d); the others
stay.

Plain Python, float64. Pairs are dims (2i, 2i+1), or ("half") (i, i + d/2).
"""

from shared import rotary_cases, write


def frequencies(d, p, base=1e4):
    turning = int(p * d // 2)
    return [base ** (-2 * i / d) if i < turning else 0.0 for i in range(d // 2)]


cases = []
for width, settings in [
    (8, {}),
    (8, {"p": 0.25}),
    (8, {"p": 0.5, "layout": "half"}),
    (8, {"p": 0.74, "base": 500.0}),
    (8, {"p": 1.0}),
    (10, {"p": 0.5}),  # 2.5 pairs are 2
    (16, {"p": 0.99, "layout": "half"}),
    (2, {"p": 1.0}),
]:
    theta = frequencies(width, settings.get("p", 0.75), settings.get("base", 1e4))
    name = f"d {width} " + " ".join(f"{k}={v}" for k, v in settings.items())
    said = {"name": name, "from": "formula", "context": {"head_dim": width}, "settings": settings, "rtol": 0.0}
    cases += rotary_cases(said, width, theta, settings.get("layout", "interleaved"))
write("PRoPE", __doc__, cases)
