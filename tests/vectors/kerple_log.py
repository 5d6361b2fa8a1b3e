"""KERPLE, logarithmic: b = -r1 ln(1 + r2 d), r1 and r2 at least 0.01.

Plain Python, float64; `computed` values have 8 digits.
"""

import math

from shared import write

DISTANCES = [0, 1, 2, 3, 10, 100, 1000]
COMPUTED = {
    (1.0, 1.0): [0, -0.69314718, -1.0986123, -1.3862944, -2.3978953, -4.6151205, -6.9087548],
    (2.0, 0.5): [0, -0.81093022, -1.3862944, -1.8325815, -3.5835189, -7.8636513, -12.433212],
    (0.01, 0.01): [0, -9.9503309e-5, -1.9802627e-4, -2.9558802e-4, -9.531018e-4, -6.9314718e-3, -0.023978953],
}


def bias(r1, r2, d):
    return -max(r1, 0.01) * math.log(1 + max(r2, 0.01) * d)


def case(name, pairs, expected, made, rtol):
    return {
        "name": name,
        "what": "bias",
        "from": made,
        "atol": 1e-15,
        "rtol": rtol,
        "context": {"num_heads": len(pairs)},
        "parameters": {"r1": [p[0] for p in pairs], "r2": [p[1] for p in pairs]},
        "query": [1000],
        "key": [1000 - d for d in DISTANCES],
        "expected": [[row] for row in expected],
    }


ODD = [(0.3, 0.7), (-1.0, 0.5), (1.5, 0.0), (0.001, -2.0), (2.0, 40.0)]
cases = [
    case("computed", list(COMPUTED), list(COMPUTED.values()), "computed", 1e-7),
    case("formula", list(COMPUTED), [[bias(*p, d) for d in DISTANCES] for p in COMPUTED], "formula", 1e-13),
    case("clamped at 0.01", ODD, [[bias(*p, d) for d in DISTANCES] for p in ODD], "formula", 1e-13),
]
write("KerpleLog", __doc__, cases)
