"""BandedBias: b_ij = <W_h x_i, P[:, i - j]> for 0 <= i - j < band, 0 outside; distances are those of positions.

huggingface/transformers, models/inkling, InklingRelativeLogits (r_proj is W, proj is P), without the model's log
scaling. Plain Python, float64. Nothing of it is in print with digits.
"""

from shared import dot, table, write


def bias(W, P, x, key, queries, documents):
    """One head: [i][j], None for what is not seen."""
    rows = []
    for i in range(len(x) - queries, len(x)):
        read = [dot(w, x[i]) for w in W]
        row = [None] * len(x)
        for j in range(i + 1):
            if documents[j] == documents[i]:
                d = key[i] - key[j]
                row[j] = dot(read, [p[d] for p in P]) if 0 <= d < len(P[0]) else 0.0
        rows.append(row)
    return rows


def case(name, W, P, x, queries=None, *, what="bias", key=None, documents=None, seed=0):
    count, queries = len(x), queries or len(x)
    key = list(range(count)) if key is None else key
    expected = [bias(w, P, x, key, queries, documents or [0] * count) for w in W]
    made = {
        "name": name,
        "what": what,
        "from": "formula",
        "atol": 1e-12,
        "rtol": 0.0,
        "context": {"num_heads": len(W), "d_model": len(x[0])},
        "settings": {"band": len(P[0]), "rank": len(P)},
        "parameters": {"W": W, "P": P},
        "query": key[count - queries :],
        "key": key,
        "x": x,
    }
    if documents:
        made["documents"] = documents
    if what == "logits":
        q, k = ([table(t, 3, seed + 31 * h + n) for h in range(len(W))] for n, t in ((1, queries), (2, count)))
        expected = [
            [[None if r is None else 0.5 * dot(qi, kj) + r for r, kj in zip(row, kh)] for qi, row in zip(qh, bh)]
            for qh, kh, bh in zip(q, k, expected)
        ]
        made |= {"q": q, "k": k, "scale": 0.5}
    return made | {"expected": expected}


def random_case(name, num_heads, rank, width, band, count, queries=None, *, seed, **more):
    W = [table(rank, width, seed + 11 * h) for h in range(num_heads)]
    return case(name, W, table(rank, band, seed + 1), table(count, width, seed + 2, 2.0), queries, seed=seed, **more)


GAPS = [0, 1, 2, 10, 12, 13, 40, 1000]
cases = [
    case("a curve that the content scales", [[[1.0]]], [[1.0, 10.0, 100.0]], [[1.0], [2.0], [-1.0], [0.0], [3.0]]),
    case("a band of one", [[[1.0]], [[2.0]]], [[5.0]], [[1.0], [2.0], [-1.0]]),
    # Two curves, and content that takes the first, the second, half of each.
    case("two curves", [[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 2.0], [30.0, 40.0]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]),
    random_case("1 head", 1, 2, 3, 4, 6, seed=10),
    random_case("4 heads", 4, 3, 5, 6, 9, seed=20),
    random_case("a band wider than all", 2, 3, 4, 50, 7, seed=30),
    random_case("one query", 2, 3, 4, 5, 13, 1, seed=40),
    random_case("the last 5", 3, 2, 4, 7, 12, 5, seed=50),
    random_case("positions with gaps", 2, 3, 4, 12, 8, seed=60, key=GAPS),
    random_case("positions with gaps, the last 3", 2, 3, 4, 12, 8, 3, seed=70, key=GAPS),
    random_case("positions that go back", 2, 3, 4, 6, 6, seed=80, key=[5, 3, 4, 9, 0, 6]),
    random_case("far positions", 1, 3, 4, 4, 6, seed=90, key=[10**6 + n for n in range(6)]),
    random_case(
        "documents", 2, 3, 4, 3, 9, seed=100, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3], key=[0, 1, 2, 0, 1, 2, 3, 0, 1]
    ),
    random_case("logits", 2, 3, 4, 3, 7, seed=110, what="logits"),
    random_case("logits of the last 2", 2, 3, 4, 3, 7, 2, seed=120, what="logits"),
]
write("BandedBias", __doc__, cases)
