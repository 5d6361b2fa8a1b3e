"""Sinusoidal: PE(p, 2i) = sin(p / base^(2i/c)), PE(p, 2i+1) = cos(same), i = 0 ... c/2 - 1; "concat": all sines first.

Plain Python, float64; `computed` values (8 digits): c = 4, positions 0 ... 3.
"""

import math

from shared import write


def row(position, width, base, layout):
    angles = [position / base ** (2 * i / width) for i in range(width // 2)]
    if layout == "concat":
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return [f(a) for a in angles for f in (math.sin, math.cos)]


COMPUTED = [
    [0, 1, 0, 1],
    [0.84147098, 0.54030231, 0.00999983, 0.99995],
    [0.90929743, -0.41614684, 0.01999867, 0.9998],
    [0.14112001, -0.9899925, 0.0299955, 0.99955003],
]
cases = [
    {
        "name": "c 4",
        "what": "embed",
        "from": "computed",
        "atol": 1e-8,
        "rtol": 0.0,
        "context": {"d_model": 4},
        "positions": [0, 1, 2, 3],
        "expected": COMPUTED,
    },
    {
        "name": "c 4 concat",
        "what": "embed",
        "from": "computed",
        "atol": 1e-8,
        "rtol": 0.0,
        "context": {"d_model": 4},
        "settings": {"layout": "concat"},
        "positions": [0, 1, 2, 3],
        "expected": [[r[0], r[2], r[1], r[3]] for r in COMPUTED],
    },
]
for width, base, layout in [
    (4, 1e4, "interleaved"),
    (6, 1e4, "concat"),
    (16, 1e4, "interleaved"),
    (6, 500.0, "interleaved"),
    (2, 1e4, "interleaved"),
]:
    # A float64 angle of 10^6 radians is off by 10^-10.
    for positions, atol in (([0, 1, 2, 3, 17, 511], 1e-12), ([999_999, 1_000_000], 5e-10)):
        cases.append(
            {
                "name": f"c {width}, base {base:g}, {layout}",
                "what": "embed",
                "from": "formula",
                "atol": atol,
                "rtol": 0.0,
                "context": {"d_model": width},
                "settings": {"base": base, "layout": layout},
                "positions": positions,
                "expected": [row(p, width, base, layout) for p in positions],
            }
        )
write("Sinusoidal", __doc__, cases)
