"""Sandwich: b(h, d) = (sum over i = 1 ... D/2 of cos(d / base^(2i/D)) - D/2) / (8h/H), h = 1 ... H.

Plain Python, float64; `computed` values have 8 digits. The sum is added without rounding in between, and 1 - cos
is taken as 2 sin² where it is a small number (`small`), so that the reference keeps its digits.
"""

import math

from shared import write


def bias(head, heads, d, dim=128, base=10_000.0, small=False):
    angles = [d / base ** (2 * i / dim) for i in range(1, dim // 2 + 1)]
    if small:
        total = -math.fsum(2 * math.sin(a / 2) ** 2 for a in angles)
    else:
        total = math.fsum([*map(math.cos, angles), -dim / 2])
    return total / (8 * head / heads)


def case(name, heads, distances, expected=None, *, atol, rtol=0.0, last=None, only=None, small=False, **settings):
    query = max(distances) if last is None else last
    made = "formula" if expected is None else "computed"
    if expected is None:
        expected = [[bias(h, heads, d, small=small, **settings) for d in distances] for h in range(1, heads + 1)]
    return {
        "name": name,
        "what": "bias",
        "from": made,
        "atol": atol,
        "rtol": rtol,
        "context": {"num_heads": heads},
        "settings": settings,
        "query": [query],
        "key": [query - d for d in distances],
        "expected": [[row] for row in expected],
    }


ONE = [-1.4466185, -0.72330925, -0.48220617, -0.36165463, -0.2893237, -0.24110308, -0.20665979, -0.18082731]
SMALL = [0, -1.2501146e-5, -5.0003333e-5, -1.1250281e-4, -1.9999333e-4]  # head 1 of 2
FIRST, LAST = {2: -5.2019926, 10: -19.340906, 100: -33.318914}, {10: -2.4176133, 100: -4.1648643}
cases = [
    case("distance 1, heads 1 ... 8", 8, [1], [[b] for b in ONE], atol=1e-7),
    # One head among eight is asked for by null in the others' places.
    case("head 1", 8, list(FIRST), [list(FIRST.values())] + [[None] * 3] * 7, atol=1e-6),
    case("head 8", 8, list(LAST), [[None] * 2] * 7 + [list(LAST.values())], atol=1e-6),
    case("D 4, head 1 of 2", 2, list(range(5)), [SMALL, [None] * 5], atol=5e-12, dim=4),
]
NEAR, FAR = [0, 1, 2, 3, 7, 31, 64, 100, 511, 512, 1000], [4096, 32_767, 32_768, 32_769, 100_000]
for heads, settings in [
    (1, {}),
    (8, {}),
    (12, {"dim": 64}),
    (3, {"dim": 2}),
    (2, {"dim": 4}),
    (4, {"dim": 16, "base": 500.0}),
    (4, {"dim": 128, "base": 2.0}),
]:
    name = ", ".join([f"{heads} heads", *(f"{k} {v:g}" for k, v in settings.items())])
    cases.append(case(name, heads, NEAR, atol=1e-11, **settings))
    # A float64 angle of 10^5 radians is off by 10^-11, and up to 64 of them are added and divided by 8/12 or more.
    cases.append(case(f"{name}, far", heads, FAR, atol=1e-9, **settings))
for dim in (2, 4):
    cases.append(
        case(f"D {dim}, digits of small numbers", 2, [0, 1, 2, 3, 4], atol=0.0, rtol=1e-13, small=True, dim=dim)
    )
cases.append(case("positions near 10^6", 4, NEAR, atol=1e-11, last=1_000_000))
# 10^6 radians are off by 10^-10.
cases.append(case("distances near 10^6", 4, [999_000, 999_999, 1_000_000], atol=5e-9))
write("Sandwich", __doc__, cases)
