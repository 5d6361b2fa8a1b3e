"""LieRE: a block of m dims at position x is multiplied by expm(sum over axes a of x_a / unit · A_a), with A_a
skew-symmetric.

StanfordMIMI/LieRE, models/rope_vit.py: the entries of A_a above the diagonal are learned, row by row here. No digits
are in print. Plain Python. The exponentials are Taylor series in 60 decimal digits, and everything else is float64.
"""

import math
from decimal import Decimal, getcontext

from shared import table, write

getcontext().prec = 60


def times(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def expm(a):
    """The exponential of a matrix of decimals: the series of a / 2^s, whose norm is below 1/4, squared s times."""
    m, halvings = len(a), 0
    while max(sum(abs(x) for x in row) for row in a) / 2**halvings > Decimal("0.25"):
        halvings += 1
    a = [[x / 2**halvings for x in row] for row in a]
    term = [[Decimal(r == c) for c in range(m)] for r in range(m)]
    total, n = term, 0
    while max(abs(x) for row in term for x in row) > Decimal("1e-55"):
        n += 1
        term = [[x / n for x in row] for row in times(term, a)]
        total = [[x + y for x, y in zip(*rows)] for rows in zip(total, term)]
    for _ in range(halvings):
        total = times(total, total)
    return [[float(x) for x in row] for row in total]


def rotation(position, of_axes, m, unit):
    """The matrix of a block of `of_axes`, its entries above the diagonal for each axis. A number is on every axis."""
    where = position if isinstance(position, list) else [position] * len(of_axes)
    matrix = [[Decimal(0)] * m for _ in range(m)]
    above = [(r, c) for r in range(m) for c in range(r + 1, m)]
    for x, entries in zip(where, of_axes):
        for (r, c), entry in zip(above, entries):
            matrix[r][c] += x * Decimal(entry) / Decimal(unit)
            matrix[c][r] -= x * Decimal(entry) / Decimal(unit)
    return expm(matrix)


def rotated(vectors, positions, of_head, m, unit):
    """The vectors of one head; `of_head` has a list of blocks for each axis."""
    out = []
    for x, position in zip(vectors, positions):
        row = []
        for n in range(len(x) // m):
            matrix = rotation(position, [blocks[n] for blocks in of_head], m, unit)
            row += [math.fsum(a * b for a, b in zip(line, x[n * m : n * m + m])) for line in matrix]
        out.append(row)
    return out


def case(name, generators, query, key, q, k, *, m, atol=1e-12, scale=0.5, unit=14.0, **settings):
    first = len(key) - len(query)
    expected = []
    for h, (qh, kh) in enumerate(zip(q, k)):
        of_head = [of_axis[h] for of_axis in generators]
        left, right = (rotated(x, at, of_head, m, unit) for x, at in ((qh, query), (kh, key)))
        expected.append(
            [
                [scale * math.fsum(map(float.__mul__, u, w)) if j <= first + i else None for j, w in enumerate(right)]
                for i, u in enumerate(left)
            ]
        )
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": atol,
        "rtol": 0.0,
        "context": {"num_heads": len(q), "head_dim": len(q[0][0])},
        "settings": {"block": m, "unit": unit, "axes": len(generators), **settings},
        "parameters": {"generators": generators},
        "query": query,
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": expected,
    }


def random_case(name, heads, d, query, key, *, seed, m, axes=2, **more):
    above = m * (m - 1) // 2
    generators = [[table(d // m, above, seed + 7 * a + 3 * h, 6.0) for h in range(heads)] for a in range(axes)]
    q, k = ([table(len(at), d, seed + 31 * h + n, 2.0) for h in range(heads)] for n, at in ((1, query), (2, key)))
    return case(name, generators, query, key, q, k, m=m, **more)


grid = [[row, column] for row in range(2) for column in range(3)]
far = [[0, 0], [3, 17], [999_999, 3], [1_000_000, 2]]
three = [[0, 0, 0], [1, 2, 3], [40, 1, 7]]
unit_vectors = [[float(r == c) for c in range(3)] for r in range(3)]
cases = [
    # Quarter turns on two axes do not commute. On the first axis e_0 turns to -e_1 and e_1 to e_0; on the second e_1
    # turns to -e_2 and e_2 to e_1. So the key e_0 at (1, 0) is -e_1, the query e_2 at (0, 1) is e_1, and their product
    # is -1.
    case(
        "by hand",
        [[[[2 * math.pi, 0.0, 0.0]]], [[[0.0, 0.0, 2 * math.pi]]]],
        [[1, 0], [1, 0], [0, 1]],
        [[1, 0], [1, 0], [0, 1]],
        [unit_vectors],
        [unit_vectors],
        m=3,
        unit=4.0,
        scale=1.0,
    ),
    random_case("one head", 1, 8, grid, grid, seed=10, m=4),
    random_case("two heads, two blocks of three", 2, 6, grid, grid, seed=20, m=3),
    random_case("blocks of two", 2, 4, grid, grid, seed=30, m=2, unit=4.0),
    random_case("blocks of eight", 1, 8, grid[3:], grid[3:], seed=40, m=8),
    random_case("three axes", 2, 4, three, three, seed=50, m=4, axes=3),
    random_case("one axis", 2, 4, [0, 1, 3, 70], [0, 1, 3, 70], seed=60, m=4, axes=1),
    random_case("text", 2, 4, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], seed=70, m=4),
    random_case("text whose positions start again", 2, 4, [0, 1, 2, 0, 1], [0, 1, 2, 0, 1], seed=75, m=4),
    random_case("far apart", 2, 4, far, far, seed=80, m=4, atol=1e-8),
    random_case("one query", 2, 4, [[5, 2]], [*grid, [5, 2]], seed=90, m=4),
]
write("LieRE", __doc__, cases)
