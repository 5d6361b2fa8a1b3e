"""M-RoPE: pair p is rotated by x_a base^(-2p/r), where axis a (time, row, column) owns the pair.

Chunked sections as transformers' Qwen2-VL and GLM-4V (a list of pairs, split by sections), interleaved ones as Qwen3-VL
(time owns all pairs, then row gets 1, 4, 7, ... and column 2, 5, 8, ... below 3 times their sections). Plain Python,
float64.
"""

from shared import axes_cases, write


def owners(sections, order):
    if order == "chunked":
        return [axis for axis, size in enumerate(sections) for _ in range(size)]
    own = [0] * sum(sections)
    for axis in (1, 2):
        for p in range(axis, 3 * sections[axis], 3):
            own[p] = axis
    return own


def angles(position, own, base):
    where = position if isinstance(position, list) else [position] * 3
    return [where[axis] * base ** (-p / len(own)) for p, axis in enumerate(own)]


# Qwen2-VL: 16, 24, 24 of 64 pairs; Qwen3-VL: 24, 20, 20. In smaller heads, row and column have 3/8 or 5/16, rounded
# down.
image = [[1, 1, 1], [1, 1, 2], [1, 2, 1]]
cases = []
for width, sections, order, settings, at in [
    (128, [16, 24, 24], "chunked", {"layout": "half"}, image),
    (128, [24, 20, 20], "interleaved", {"order": "interleaved", "layout": "half", "base": 5e6}, image),
    (64, [8, 12, 12], "chunked", {"base": 1e4}, [[5, 0, 7], [0, 3, 1], [120, 4, 9]]),
    (128, [8, 12, 12], "chunked", {"sections": [8, 12, 12], "rotary_fraction": 0.5, "base": 1e4}, image),
    (16, [2, 3, 3], "chunked", {}, [0, 1, 5, 900]),
    (16, [4, 2, 2], "interleaved", {"order": "interleaved"}, [[7, 1, 2], [2, 9, 4], [1, 1, 30]]),
    (16, [5, 2, 1], "chunked", {"sections": [5, 2, 1]}, [[7, 1, 2], [2, 9, 4], [1, 1, 30]]),
    (16, [5, 1, 2], "interleaved", {"sections": [5, 1, 2], "order": "interleaved"}, [[7, 1, 2], [2, 9, 4]]),
    (6, [1, 1, 1], "chunked", {}, [[4, 1, 9], [3, 3, 2]]),
    (8, [2, 1, 1], "interleaved", {"order": "interleaved"}, [[999_999, 3, 4], [1_000_000, 2, 5]]),
]:
    own, base = owners(sections, order), settings.get("base", 1e6)
    layout, far = settings.get("layout", "interleaved"), 999_999 in (at[0] if isinstance(at[0], list) else at)
    said = {
        "from": "formula",
        "context": {"head_dim": width},
        "settings": settings,
        "rtol": 0.0,
        "atol": 1e-8 if far else 1e-11,
        "name": f"d {width} {'far ' * far}" + " ".join(f"{k}={v}" for k, v in settings.items()),
    }
    rotation = [angles(p, own, base) for p in at]
    cases += axes_cases(said, width, at, rotation, layout)[: 1 if width > 16 else 2]
write("MRoPE", __doc__, cases)
