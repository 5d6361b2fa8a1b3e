"""SelectiveRoPE: q_t and k_t of head h are rotated by base^(-2p/d) * (phi_1 + ... + phi_t), over the tokens of one
document.

phi_s = g_s f(sum over n of c_n y_(s - n)), u: the input with each head's part divided by sqrt(sum of squares + 1e-6). y
= A B u, or in the full-rank projection y = s_h <v_hp, u's part of head h> / |v_hp|. f is silu(x) = x / (1 + e^-x), or
nothing. g_s = 1 / (1 + e^-(<G_h, u_s> + b_h)), or 1. Movahedi et al. 2025; timurcarstensen/selective-rope,
modules/rotary.py, whose l2_norm is that of flash-linear-attention. Plain Python, float64, every sum anew. A pair is a
complex number, which is multiplied by e^(i angle). No digits are in print.
"""

import math

from shared import dot, numbers, product, sigmoid, table, tables, turned, write


def normalized(x, heads):
    part = len(x) // heads
    out = []
    for h in range(heads):
        own = x[h * part : h * part + part]
        size = math.sqrt(dot(own, own) + 1e-6)
        out += [n / size for n in own]
    return out


def numbers_y(weights, u, h, p):
    """y of head h and pair p at a token whose normalized input is u."""
    if "A" in weights:
        return math.fsum(a * dot(b, u) for a, b in zip(weights["A"][h][p], weights["B"]))
    v = weights["v"][h][p]
    own = u[h * len(v) : (h + 1) * len(v)]
    return weights["s"][h] * dot(v, own) / math.sqrt(dot(v, v))


def angles(weights, x, ids, base, activation):
    """angle[h][t][p] in radians."""
    c = weights["c"]
    heads, pairs = len(c), len(c[0])
    u = [normalized(xt, heads) for xt in x]
    out = []
    for h in range(heads):
        rows = []
        for t in range(len(x)):
            own = [s for s in range(t + 1) if ids[s] == ids[t]]  # the tokens of the document up to t
            row = []
            for p in range(pairs):
                total = 0.0
                for s in range(len(own)):
                    taps = [c[h][p][n] * numbers_y(weights, u[own[s - n]], h, p) for n in range(len(c[h][p])) if s >= n]
                    phi = math.fsum(taps)
                    if activation == "silu":
                        phi *= sigmoid(phi)
                    if "G" in weights:
                        phi *= sigmoid(dot(weights["G"][h], u[own[s]]) + weights["b"][h])
                    total += phi
                row.append(total * base ** (-2 * p / (2 * pairs)))
            rows.append(row)
        out.append(rows)
    return out


def case(name, weights, x, queries=None, *, key=None, documents=None, seed=0, scale=0.5, **settings):
    c, count = weights["c"], len(x)
    heads, dim = len(c), 2 * len(c[0])
    queries = queries or count
    key = list(range(count)) if key is None else key
    q, k = ([table(t, dim, seed + 31 * h + n) for h in range(heads)] for n, t in ((1, queries), (2, count)))
    ids = documents or [0] * count
    layout = settings.get("layout", "interleaved")
    rows_of_b = len(weights["B"]) if "B" in weights else None
    expected = []
    for qh, kh, angle in zip(q, k, angles(weights, x, ids, settings.get("base", 500000.0), settings.get("activation"))):
        rows = []
        for n, qi in enumerate(qh):
            i, row = count - queries + n, []
            for j in range(count):
                seen = j <= i and ids[j] == ids[i]
                a, b = (turned(v, at, layout) for v, at in ((qi, angle[i]), (kh[j], angle[j])))
                row.append(scale * product(a, b) if seen else None)
            rows.append(row)
        expected.append(rows)
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": len(x[0])},
        "settings": settings | {"rank": rows_of_b, "width": len(c[0][0])} | ({"gate": True} if "G" in weights else {}),
        "parameters": weights,
        "query": key[count - queries :],
        "key": key,
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def random_case(name, heads, pairs, part, count, queries=None, *, seed, rank=3, width=4, size=1.0, gate=False, **more):
    weights = {"c": tables(heads, pairs, width, seed + 2, size)}
    if rank is None:
        weights |= {"v": tables(heads, pairs, part, seed, size), "s": numbers(heads, seed + 1, 2.0)}
    else:
        weights |= {"A": tables(heads, pairs, rank, seed, size), "B": table(rank, heads * part, seed + 1, size)}
    if gate:
        weights |= {"G": table(heads, heads * part, seed + 4, 2.0), "b": numbers(heads, seed + 5)}
    return case(name, weights, table(count, heads * part, seed + 3, 2.0), queries, seed=seed, **more)


published = {"rank": None, "gate": True, "activation": "silu"}  # as in the authors' language models
cases = [
    # u = 1, -1, 1 (apart from the 1e-6), y = u, phi = 1, -1 + 0.5, 1 - 0.5: angles 1, 0.5, 1.
    case("one pair, width 2", {"A": [[[1.0]]], "B": [[1.0]], "c": [[[1.0, 0.5]]]}, [[3.0], [-3.0], [3.0]]),
    # phi is 1 for every token: RoPE.
    case("RoPE", {"A": [[[1.0], [1.0]]], "B": [[1.0]], "c": [[[1.0], [1.0]]]}, [[1000.0]] * 5),
    # v / |v| = (0.6, 0.8), u = (0.6, 0.8) or (0.8, -0.6), y = 2 or 0: angles 2, 2 (the second token adds nothing), 4.
    case(
        "full rank, one pair",
        {"v": [[[3.0, 4.0]]], "s": [2.0], "c": [[[1.0]]]},
        [[600.0, 800.0], [800.0, -600.0], [60000.0, 80000.0]],
    ),
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
    random_case("full rank", 2, 3, 4, 7, seed=100, rank=None),
    random_case("gate", 2, 3, 2, 7, seed=110, gate=True),
    random_case("activation", 2, 3, 2, 7, seed=120, size=3.0, activation="silu"),
    random_case("as published", 4, 2, 3, 8, seed=130, **published),
    random_case("as published, half layout", 2, 3, 3, 7, seed=140, width=3, base=100.0, layout="half", **published),
    random_case(
        "as published, documents in each other", 2, 2, 2, 8, seed=150, documents=[1, 2, 1, 1, 2, 2, 1, 2], **published
    ),
    random_case(
        "as published, the last 3, padding", 2, 2, 2, 9, 3, seed=160, documents=[-1] * 4 + [0] * 5, **published
    ),
]
write("SelectiveRoPE", __doc__, cases)
