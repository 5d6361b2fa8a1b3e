"""FoX: b_ij = sum over l = j + 1 ... i of ln f_l, f_t = sigmoid(<w_h, x_t> + b_h), over the tokens of i's own document.

Lin et al. 2025, eq. 4 ff.; zhixuan-lin/forgetting-transformer, the gate of type "full". Plain Python, float64, every
pair summed anew. The paper has no digits of a bias in print, so nothing here is.
"""

import math

from shared import dot, log_sigmoid, numbers, table, write


def bias(w, b, x, queries, documents):
    """One head: [i][j], None for what is not seen."""
    log_f = [log_sigmoid(dot(w, xt) + b) for xt in x]
    rows = []
    for i in range(len(x) - queries, len(x)):
        row = [None] * len(x)
        for j in range(i + 1):
            if documents[j] == documents[i]:
                row[j] = math.fsum(log_f[n] for n in range(j + 1, i + 1) if documents[n] == documents[i])
        rows.append(row)
    return rows


def softmax(row):
    top = max(row)
    mass = [math.exp(r - top) for r in row]
    return [m / math.fsum(mass) for m in mass]


def case(name, w, b, x, queries=None, *, what="bias", key=None, documents=None, seed=0, scale=0.5):
    """`key`: positions, which change nothing."""
    count, queries = len(x), queries or len(x)
    key = list(range(count)) if key is None else key
    expected = [bias(wh, bh, x, queries, documents or [0] * count) for wh, bh in zip(w, b)]
    made = {
        "name": name,
        "what": what,
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-13,
        "context": {"num_heads": len(w), "d_model": len(w[0])},
        "parameters": {"w": w, "b": b},
        "query": key[count - queries :],
        "key": key,
        "x": x,
    }
    if documents:
        made["documents"] = documents
    if what != "bias":
        q, k, v = (
            [table(t, 3, seed + 31 * h + n) for h in range(len(w))] for n, t in ((1, queries), (2, count), (3, count))
        )
        expected = [
            [[None if r is None else scale * dot(qi, kj) + r for r, kj in zip(row, kh)] for qi, row in zip(qh, bh)]
            for qh, kh, bh in zip(q, k, expected)
        ]
        made |= {"q": q, "k": k, "scale": scale}
    if what == "output":
        made["v"], heads = v, []
        for vh, rows in zip(v, expected):
            heads.append([])
            for row in rows:
                seen = [j for j, r in enumerate(row) if r is not None]
                weights = softmax([row[j] for j in seen])
                heads[-1].append([math.fsum(m * vh[j][d] for m, j in zip(weights, seen)) for d in range(3)])
        expected = heads
    return made | {"expected": expected}


def random_case(name, num_heads, width, count, queries=None, *, seed, size=1.0, **more):
    w, b = table(num_heads, width, seed, size), numbers(num_heads, seed + 1, size)
    return case(name, w, b, table(count, width, seed + 2, 2.0), queries, seed=seed, **more)


cases = [
    case("gates of 1/2", [[0.0, 0.0]], [0.0], [[1.0, 2.0]] * 5),
    case("gates of 1/2 and 1/4", [[0.0], [0.0]], [0.0, -math.log(3)], [[1.0]] * 4),
    # The gate of the key itself does not count, that of the query does: only the third token forgets, by e^-50.
    case("one token forgets all", [[-50.0]], [0.0], [[-1.0], [-1.0], [1.0], [-1.0], [-1.0]]),
    case("gates that keep", [[1.0]], [0.0], [[40.0]] * 4),
    random_case("1 head", 1, 3, 6, seed=10),
    random_case("4 heads", 4, 5, 9, seed=20),
    random_case("strong gates", 2, 4, 12, seed=30, size=20.0),
    random_case("one query", 2, 4, 13, 1, seed=40),
    random_case("the last 5", 3, 4, 12, 5, seed=50),
    random_case("long", 2, 3, 120, 2, seed=60),
    random_case("positions with gaps change nothing", 2, 3, 6, seed=70, key=[0, 5, 6, 70, 1000, 1001]),
    random_case("documents", 2, 3, 9, seed=80, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3]),
    random_case("documents in each other", 2, 3, 8, seed=90, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding", 2, 3, 9, 3, seed=100, documents=[-1, -1, -1, -1, 0, 0, 0, 0, 0]),
    random_case("logits", 2, 4, 7, seed=110, what="logits"),
    random_case(
        "logits of the last 2, documents", 2, 4, 7, 2, seed=120, what="logits", documents=[1, 2, 1, 1, 2, 2, 1]
    ),
    random_case("output", 2, 4, 7, seed=130, what="output"),
    random_case(
        "output of the last 4, documents", 3, 4, 8, 4, seed=140, what="output", documents=[1, 1, 1, 2, 2, 2, 2, 3]
    ),
]
write("FoX", __doc__, cases)
