"""Axial RoPE: part a of the r rotated dims, of m = r / axes dims, is a RoPE at the position of axis a: x_a base^(-2p/m).

rope-vit, models/vit_rope.py (compute_axial_cis: x before y, base 100) for 2 axes. Plain Python, float64.
"""

import math

from shared import logits, vector, write


def angles(position, r, axes, base):
    m = r // axes
    where = position if isinstance(position, list) else [position] * axes
    return [where[a] * base ** (-2 * p / m) for a in range(axes) for p in range(m // 2)]


def rotate(x, radians, layout):
    out = list(x)
    for p, angle in enumerate(radians):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + len(radians))
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return out


def rotated(rows, rotation, layout):
    return [rotate(x, radians, layout) for x, radians in zip(rows, rotation)]


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
    x, q, k = ([vector(width, seed + n) for n in range(len(at))] for seed in (1, 11, 23))
    cases.append({**said, "what": "rotated", "positions": at, "x": x, "expected": rotated(x, rotation, layout)})
    scale = 1 / math.sqrt(width)
    turned_q, turned_k = (rotated(rows, rotation, layout) for rows in (q, k))
    rows = {"query": at, "key": at, "q": [q], "k": [k], "scale": scale}
    cases.append({**said, "what": "logits", **rows, "expected": [logits(turned_q, turned_k, scale)]})
write("AxialRoPE", __doc__, cases)
