"""KERPLE, power: b = -r1 d^r2 and 0 at distance 0; r1 at least 0.01, r2 in 0.01 ... 2.

Plain Python, float64; `computed` values have 8 digits.
"""

from shared import write

DISTANCES = [0, 1, 2, 3, 10, 100, 1000]
COMPUTED = {
    (1.0, 0.5): [0, -1, -1.4142136, -1.7320508, -3.1622777, -10, -31.622777],
    (0.3, 1.5): [0, -0.3, -0.84852814, -1.5588457, -9.486833, -300, -9486.833],
}


def bias(r1, r2, d):
    return -max(r1, 0.01) * d ** min(max(r2, 0.01), 2.0) if d else 0.0


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


ODD = [(0.7, 1.9), (-1.0, 0.5), (0.5, 0.0), (0.2, 3.0), (0.001, -2.0)]
cases = [
    case("computed", list(COMPUTED), list(COMPUTED.values()), "computed", 1e-7),
    case("formula", list(COMPUTED), [[bias(*p, d) for d in DISTANCES] for p in COMPUTED], "formula", 1e-13),
    case("clamped", ODD, [[bias(*p, d) for d in DISTANCES] for p in ODD], "formula", 1e-13),
]
write("KerplePower", __doc__, cases)
