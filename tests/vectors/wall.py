"""Wall attention: q_i and k_j have the product sum over n of q_in k_jn f_j+1,n ... f_in, over the tokens of the
document of i.

f_tn = sigmoid(<w_n, x_t> + b_n). With a gate, FoX's bias ln f_j+1 + ... + ln f_i of a gate per head is added to the
scaled product. Tilde Research 2026; fla, layers/wall_attn.py and ops/wall_attn/naive.py. Plain Python, float64, every
product of gates anew. No digits are in print.
"""

import math

from shared import dot, numbers, sigmoid, table, write


def case(name, parameters, x, queries=None, *, documents=None, key=None, seed=0, scale=0.5, q=None, k=None):
    w, b = parameters["w"], parameters["b"]
    heads, dim, count = len(w), len(w[0]), len(x)
    gated, queries = "gate.w" in parameters, queries or count
    key = list(range(count)) if key is None else key
    q = q or [table(queries, dim, seed + 31 * h + 1) for h in range(heads)]
    k = k or [table(count, dim, seed + 31 * h + 2) for h in range(heads)]
    ids, expected = documents or [0] * count, []
    for h in range(heads):
        f = [[sigmoid(dot(wn, xt) + bn) for wn, bn in zip(w[h], b[h])] for xt in x]
        rows = []
        for n in range(queries):
            i, row = count - queries + n, []
            for j in range(count):
                if j > i or ids[j] != ids[i]:
                    row.append(None)
                    continue
                between = [t for t in range(j + 1, i + 1) if ids[t] == ids[i]]
                left = [math.prod(f[t][m] for t in between) for m in range(dim)]
                logit = scale * math.fsum(a * c * d for a, c, d in zip(q[h][n], k[h][j], left))
                if gated:
                    own = [sigmoid(dot(parameters["gate.w"][h], xt) + parameters["gate.b"][h]) for xt in x]
                    logit += math.fsum(math.log(own[t]) for t in between)
                row.append(logit)
            rows.append(row)
        expected.append(rows)
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": len(w[0][0])},
        "settings": {"gate": True} if gated else {},
        "parameters": parameters,
        "query": key[count - queries :],
        "key": key,
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def random_case(name, heads, dim, d_model, count, queries=None, *, seed, size=1.0, gated=False, bias=1.0, **others):
    own = {
        "w": [table(dim, d_model, seed + 7 * h, size) for h in range(heads)],
        "b": [[n + bias for n in row] for row in table(heads, dim, seed + 1)],
    }
    if gated:
        own |= {"gate.w": table(heads, d_model, seed + 3, size), "gate.b": numbers(heads, seed + 4)}
    return case(name, own, table(count, d_model, seed + 5, 2.0), queries, seed=seed, **others)


# Gates of 1/2 and 1/4 at the second token: 1 * 2 / 2 + 1 * 4 / 4 = 2; of a token with itself 1 + 1 = 2.
by_hand = case(
    "by hand",
    {"w": [[[0.0], [0.0]]], "b": [[0.0, -math.log(3)]]},
    [[0.0], [0.0]],
    scale=1.0,
    q=[[[1.0, 1.0], [1.0, 1.0]]],
    k=[[[2.0, 4.0], [1.0, 1.0]]],
)
digits = [[[6.0, None], [2.0, 2.0]]]
assert max(abs(a - b) for r, s in zip(by_hand["expected"][0], digits[0]) for a, b in zip(r, s) if b is not None) < 1e-14
cases = [
    by_hand | {"from": "computed", "expected": digits},
    random_case("1 head", 1, 3, 4, 7, seed=10),
    random_case("4 heads", 4, 2, 5, 8, seed=20),
    random_case("nearly nothing is forgotten", 2, 3, 3, 9, seed=25, bias=8.0),
    random_case("nearly all is forgotten", 2, 4, 3, 9, seed=30, size=40.0),
    random_case("a gate for each head", 2, 3, 3, 8, seed=40, gated=True),
    random_case("one query", 2, 3, 2, 11, 1, seed=50),
    random_case("the last 4, positions change nothing", 2, 3, 2, 7, 4, seed=60, key=[0, 5, 6, 70, 100, 101, 999]),
    random_case("documents", 2, 3, 2, 9, seed=70, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3]),
    random_case("documents in each other", 2, 3, 2, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2], gated=True),
    random_case("the last 3, padding", 2, 3, 2, 9, 3, seed=90, documents=[-1, -1, -1, -1, 0, 0, 0, 0, 0]),
]
write("Wall", __doc__, cases)
