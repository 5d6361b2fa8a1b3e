"""SelectiveRoPE: q_t and k_t of head h are rotated by base^(-2p/d) * (phi_1 + ... + phi_t), over the tokens of one document.

phi_s = sum over n of c_n y_(s - n), y = A B u, u: the input with each head's part divided by sqrt(sum of squares + 1e-6).
Movahedi et al. 2025; timurcarstensen/selective-rope, modules/rotary.py, whose l2_norm is that of flash-linear-attention. Plain
Python, float64, every sum anew. A pair is a complex number, which is multiplied by e^(i angle). No digits are in print.
"""

import cmath
import json
import math


def numbers(count, seed, size=1.0):
    """Numbers in -size ... size from a small congruential generator, the same everywhere."""
    out = []
    for _ in range(count):
        seed = (1103515245 * seed + 12345) % 2**31
        out.append(round(size * (seed / 2**30 - 1), 6))
    return out


def table(rows, columns, seed, size=1.0):
    flat = numbers(rows * columns, seed, size)
    return [flat[r * columns : r * columns + columns] for r in range(rows)]


def tables(count, rows, columns, seed, size=1.0):
    return [table(rows, columns, seed + 7 * n, size) for n in range(count)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def normalized(x, heads):
    part = len(x) // heads
    out = []
    for h in range(heads):
        own = x[h * part : h * part + part]
        size = math.sqrt(dot(own, own) + 1e-6)
        out += [n / size for n in own]
    return out


def angles(A, B, c, x, ids, heads, base):
    """angle[h][t][p] in radians."""
    low = [[dot(b, normalized(xt, heads)) for b in B] for xt in x]
    out = []
    for Ah, ch in zip(A, c):
        pairs = len(Ah)
        y = [[dot(a, lt) for a in Ah] for lt in low]
        rows = []
        for t in range(len(x)):
            own = [s for s in range(t + 1) if ids[s] == ids[t]]  # the tokens of the document up to t
            row = []
            for p in range(pairs):
                phi = [
                    math.fsum(ch[p][n] * y[own[s - n]][p] for n in range(len(ch[p])) if s >= n) for s in range(len(own))
                ]
                row.append(math.fsum(phi) * base ** (-2 * p / (2 * pairs)))
            rows.append(row)
        out.append(rows)
    return out


def turned(x, angle, layout):
    d = len(x)
    pairs = [(2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + d // 2) for p in range(d // 2)]
    return [complex(x[a], x[b]) * cmath.exp(1j * radians) for (a, b), radians in zip(pairs, angle)]


def product(a, b):
    return math.fsum((x * y.conjugate()).real for x, y in zip(a, b))


def case(name, A, B, c, x, queries=None, *, base=None, layout=None, documents=None, key=None, seed=0, scale=0.5):
    heads, dim, count = len(A), 2 * len(A[0]), len(x)
    queries = queries or count
    key = list(range(count)) if key is None else key
    q, k = ([table(t, dim, seed + 31 * h + n) for h in range(heads)] for n, t in ((1, queries), (2, count)))
    ids = documents or [0] * count
    settings = {name: value for name, value in (("base", base), ("layout", layout)) if value is not None}
    expected = []
    for qh, kh, angle in zip(q, k, angles(A, B, c, x, ids, heads, base or 500000.0)):
        rows = []
        for n, qi in enumerate(qh):
            i, row = count - queries + n, []
            for j in range(count):
                seen = j <= i and ids[j] == ids[i]
                a, b = (turned(v, at, layout or "interleaved") for v, at in ((qi, angle[i]), (kh[j], angle[j])))
                row.append(scale * product(a, b) if seen else None)
            rows.append(row)
        expected.append(rows)
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": len(B[0])},
        "settings": settings | {"rank": len(B), "width": len(c[0][0])},
        "parameters": {"A": A, "B": B, "c": c},
        "query": key[count - queries :],
        "key": key,
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def random_case(name, heads, pairs, part, count, queries=None, *, seed, rank=3, width=4, size=1.0, **more):
    A, B = tables(heads, pairs, rank, seed, size), table(rank, heads * part, seed + 1, size)
    c = tables(heads, pairs, width, seed + 2, size)
    return case(name, A, B, c, table(count, heads * part, seed + 3, 2.0), queries, seed=seed, **more)


cases = [
    # u = 1, -1, 1 (apart from the 1e-6), y = u, phi = 1, -1 + 0.5, 1 - 0.5: angles 1, 0.5, 1.
    case("one pair, width 2", [[[1.0]]], [[1.0]], [[[1.0, 0.5]]], [[3.0], [-3.0], [3.0]]),
    # phi is 1 for every token: RoPE.
    case("RoPE", [[[1.0], [1.0]]], [[1.0]], [[[1.0], [1.0]]], [[1000.0]] * 5),
    random_case("1 head", 1, 2, 3, 6, seed=10),
    random_case("4 heads", 4, 3, 2, 8, seed=20),
    random_case("strong weights", 2, 3, 3, 9, seed=30, size=4.0),
    random_case("base, layout and other sizes", 2, 4, 3, 7, seed=40, rank=5, width=3, base=100.0, layout="half"),
    random_case("wider than the text", 1, 2, 3, 3, seed=45, width=6),
    random_case("one query", 2, 2, 3, 11, 1, seed=50),
    random_case("the last 4, positions change nothing", 2, 2, 2, 7, 4, seed=60, key=[0, 5, 6, 70, 100, 101, 999]),
    random_case("documents", 2, 2, 2, 9, seed=70, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3]),
    random_case("documents in each other", 2, 2, 2, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding", 2, 2, 2, 9, 3, seed=90, documents=[-1, -1, -1, -1, 0, 0, 0, 0, 0]),
]
print(json.dumps({"encoding": "SelectiveRoPE", "how": __doc__, "cases": cases}))
