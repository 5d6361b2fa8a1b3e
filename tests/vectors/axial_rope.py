"""Axial RoPE: part a of the r rotated dims, of m = r / axes dims, is a RoPE at the position of axis a: x_a
base^(-2p/m).

rope-vit, models/vit_rope.py (compute_axial_cis: x before y, base 100) for 2 axes. Plain Python, float64.
"""

from shared import axes_cases, write


def angles(position, r, axes, base):
    m = r // axes
    where = position if isinstance(position, list) else [position] * axes
    return [where[a] * base ** (-2 * p / m) for a in range(axes) for p in range(m // 2)]


cases = []
for width, settings, at in [
    (8, {}, [[0, 0], [0, 1], [1, 0], [3, 17], [120, 4]]),
    (8, {}, [0, 1, 5, 900]),
    (8, {"layout": "half", "base": 10000.0}, [[0, 0], [0, 1], [1, 0], [3, 17], [120, 4]]),
    (12, {"axes": 3}, [[0, 0, 0], [1, 2, 3], [3, 2, 1], [40, 1, 7]]),
    (16, {"rotary_fraction": 0.5}, [[0, 2], [2, 0], [9, 9]]),
    (4, {"axes": 1}, [0, 3, 70]),
    (8, {}, [[999_999, 3], [1_000_000, 2]]),
]:
    r = int(width * settings.get("rotary_fraction", 1.0))
    axes, base = settings.get("axes", 2), settings.get("base", 100.0)
    layout = settings.get("layout", "interleaved")
    far = 999_999 in [n for p in at for n in (p if isinstance(p, list) else [p])]
    said = {
        "from": "formula",
        "context": {"head_dim": width},
        "settings": settings,
        "rtol": 0.0,
        "atol": 1e-8 if far else 1e-11,
        "name": f"d {width} {'far ' * far}" + " ".join(f"{k}={v}" for k, v in settings.items()),
    }
    rotation = [angles(p, r, axes, base) for p in at]
    cases += axes_cases(said, width, at, rotation, layout)
write("AxialRoPE", __doc__, cases)
