"""PaTHFoX: the product of PaTH (path.py) plus ln f_j+1 + ... + ln f_i, f_t = sigmoid(<w, x_t> + b), over the query's document.

With a scaled gate the sum is divided by sqrt(d), as in fla, ops/path_attn/naive.py. Yang et al. 2025, "PaTH Attention". Plain
Python, float64; every matrix H_t is applied to the key, one after the other, and every sum computed anew. No digits are in print.
"""

import math

from shared import directions, dot, numbers, reflected, sigmoid, table, tables, write


def case(name, parameters, x, queries=None, *, scaled=False, documents=None, seed=0, scale=0.5):
    A, B, c, u, b = (parameters[n] for n in ("A", "B", "c", "u", "b"))
    groups, dim, count = len(A), len(A[0]), len(x)
    heads, queries = groups, queries or count
    q = [table(queries, dim, seed + 31 * h + 1) for h in range(heads)]
    k = [table(count, dim, seed + 31 * h + 2) for h in range(heads)]
    ids = documents or [0] * count
    w, expected = directions(A, B, c, x, ids), []
    for h in range(heads):
        rows, beta = [], [2 * sigmoid(dot(u[h], xt) + b[h]) for xt in x]
        gates = [math.log(sigmoid(dot(parameters["gate.w"][h], xt) + parameters["gate.b"][h])) for xt in x]
        for n in range(queries):
            i, row = count - queries + n, []
            for j in range(count):
                if j > i or ids[j] != ids[i]:
                    row.append(None)
                    continue
                vector, between = k[h][j], [t for t in range(j + 1, i + 1) if ids[t] == ids[i]]
                for t in between:
                    vector = reflected(vector, w[h][t], beta[t])
                bias = math.fsum(gates[t] for t in between) / (math.sqrt(dim) if scaled else 1)
                row.append(scale * dot(q[h][n], vector) + bias)
            rows.append(row)
        expected.append(rows)
    settings = {"rank": len(B), "width": len(c[0][0])} | ({"scaled_gate": True} if scaled else {})
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": len(B[0])},
        "settings": settings,
        "parameters": parameters,
        "query": list(range(count - queries, count)),
        "key": list(range(count)),
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def parameters(groups, dim, d_model, seed, rank=3, width=3, size=1.0):
    return {
        "A": tables(groups, dim, rank, seed, size),
        "B": table(rank, d_model, seed + 1, size),
        "c": tables(groups, dim, width, seed + 2, size),
        "u": table(groups, d_model, seed + 3, size),
        "b": numbers(groups, seed + 4),
        "gate.w": table(groups, d_model, seed + 6, size),
        "gate.b": numbers(groups, seed + 7),
    }


def random_case(name, groups, dim, d_model, count, queries=None, *, seed, **others):
    own = parameters(groups, dim, d_model, seed)
    return case(name, own, table(count, d_model, seed + 5, 2.0), queries, seed=seed, **others)


cases = [
    random_case("1 head", 1, 3, 4, 7, seed=10),
    random_case("4 heads", 4, 2, 5, 8, seed=20),
    random_case("scaled gates", 2, 4, 5, 8, seed=30, scaled=True),
    random_case("one query", 2, 3, 2, 11, 1, seed=50),
    random_case("documents in each other", 2, 3, 2, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding, scaled gates", 2, 3, 2, 9, 3, seed=90, documents=[-1] * 4 + [0] * 5, scaled=True),
]
write("PaTHFoX", __doc__, cases)
