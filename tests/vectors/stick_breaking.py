"""Stick-breaking attention: w_ij = sigmoid(z_ij) times the product over the keys l between j and i of (1 -
sigmoid(z_il)).

Tan et al. 2025, equations 1 to 4. The current token has no weight, unless `current`; then it is one of the keys l.
Plain Python, float64, products as they stand. With logits of 0 and three keys, the weights are 1/8, 1/4, 1/2, and the
rest is 1/8.
"""

from shared import sigmoid, table, write


def weights(q, k, scale, current, documents):
    rows = []
    for i, qi in enumerate(q):
        row, left = [0.0] * len(k), 1.0
        for j in range(i if current else i - 1, -1, -1):
            if documents[j] == documents[i]:
                share = sigmoid(scale * sum(a * b for a, b in zip(qi, k[j])))
                row[j], left = share * left, left * (1 - share)
        rows.append(row)
    return rows


assert weights([[0.0]] * 4, [[0.0]] * 4, 1.0, False, [0] * 4)[3] == [1 / 8, 1 / 4, 1 / 2, 0.0]


def case(name, q, k, v, scale=0.5, current=False, documents=None):
    count = len(k[0])
    shares = [weights(qh, kh, scale, current, documents or [0] * count) for qh, kh in zip(q, k)]
    out = [
        [[sum(w * x[d] for w, x in zip(row, vh)) for d in range(len(vh[0]))] for row in rows]
        for rows, vh in zip(shares, v)
    ]
    made = {
        "name": name,
        "what": "output",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 0.0,
        "context": {},
        "settings": {"current": True} if current else {},
        "query": list(range(count)),
        "key": list(range(count)),
        "q": q,
        "k": k,
        "v": v,
        "scale": scale,
        "expected": out,
    }
    return made | ({"documents": documents} if documents else {})


def heads(count, dim, seed, size=1.5):
    return [table(count, dim, seed + 7 * h, size) for h in range(2)]


zeros, units = [[[0.0] * 4] * 4], [[[float(a == b) for b in range(4)] for a in range(4)]]
q, k, v = heads(9, 4, 1), heads(9, 4, 2), heads(9, 4, 3)
cases = [
    case("logits of 0", zeros, zeros, units),
    case("logits of 0, with the current token", zeros, zeros, units, current=True),
    case("9 tokens", q, k, v),
    case("9 tokens, with the current token", q, k, v, current=True),
    case("two documents", q, k, v, documents=[0, 0, 0, 1, 1, 0, 1, 1, 0]),
    case("large logits", heads(9, 4, 1, 6.0), heads(9, 4, 2, 6.0), v),
]
write("StickBreaking", __doc__, cases)
