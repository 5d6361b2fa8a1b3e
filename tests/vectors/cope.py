"""CoPE: logit_ij += <q_i, e[p_ij]>, p_ij = sum over the keys l = j ... i that i sees of sigmoid(logit_il), at most P -
1, with e[p] = (1 - w) e[floor p] + w e[ceil p], w = p - floor p.

The gates read scaled logits, the product with e has no scale, and e serves all heads: the listing in appendix B of
Golovneva et al. 2024 (its positions are sums from the right over gates of masked logits). Plain Python, float64; p is
summed key by key for every pair anew. The listing has no digits in print, so nothing here is.
"""

import math

from shared import dot, sigmoid, table, write


def logits(q, k, e, scale, documents):
    """One head. Row r of q stands at the place len(k) - len(q) + r of the keys."""
    rows = []
    for r, qi in enumerate(q):
        i = len(k) - len(q) + r
        seen = [j for j in range(i + 1) if documents[j] == documents[i]]
        content = {j: scale * dot(qi, k[j]) for j in seen}
        row = [None] * len(k)
        for j in seen:
            p = min(math.fsum(sigmoid(content[n]) for n in seen if n >= j), len(e) - 1)
            low, w = math.floor(p), p - math.floor(p)
            row[j] = content[j] + (1 - w) * dot(qi, e[low]) + w * dot(qi, e[math.ceil(p)])
        rows.append(row)
    return rows


def case(name, q, k, e, *, scale, key=None, documents=None):
    """`key`: positions, which change nothing."""
    count, dim = len(k[0]), len(q[0][0])
    key = list(range(count)) if key is None else key
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 0.0,
        "context": {"head_dim": dim},
        "settings": {"max_position": len(e)},
        "parameters": {"e": e},
        "query": key[count - len(q[0]) :],
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": [logits(qh, kh, e, scale, documents or [0] * count) for qh, kh in zip(q, k)],
    }
    if documents:
        made["documents"] = documents
    return made


def heads(number, count, dim, seed, size=1.5):
    return [table(count, dim, seed + 7 * h, size) for h in range(number)]


# Logits of 0 are gates of 1/2: p = 0.5, 1, 1.5, ... from the query backwards; e counts 0, 10, 20, 30.
HALVES = [[0.0], [10.0], [20.0], [30.0]]
cases = [
    case("gates of 1/2", [[[1.0]] * 5], [[[0.0]] * 5], HALVES, scale=1.0),
    # Gates of 1 up to 10^-13: positions 1, 2, 3, then at most 3. Gates of 0 but for the third key.
    case("gates of 1, clipped", [[[1.0]] * 6], [[[30.0]] * 6], HALVES, scale=1.0),
    case("one key counts", [[[1.0]] * 5], [[[-40.0], [-40.0], [40.0], [-40.0], [-40.0]]], HALVES, scale=1.0),
    case("one row", heads(1, 4, 3, 5), heads(1, 4, 3, 9), table(1, 3, 11), scale=1.0),
]
for n, (number, queries, keys, dim, rows, scale) in enumerate(
    [
        (1, 6, 6, 2, 8, 1.0),
        (2, 7, 7, 4, 16, 0.5),
        (3, 9, 9, 4, 3, 0.5),
        (2, 12, 12, 5, 4, 5**-0.5),
        (2, 1, 9, 4, 6, 0.5),
        (2, 4, 11, 4, 5, 0.5),
        (1, 30, 30, 3, 10, 3**-0.5),
    ]
):
    q, k, e = heads(number, queries, dim, 20 + n), heads(number, keys, dim, 60 + n), table(rows, dim, 90 + n)
    cases.append(case(f"{number} heads, {queries} of {keys}, {rows} rows", q, k, e, scale=scale))
q, k, e = heads(2, 10, 4, 120), heads(2, 10, 4, 130), table(6, 4, 140)
cases.append(
    case("positions with gaps change nothing", q, k, e, scale=0.5, key=[0, 3, 4, 9, 40, 41, 42, 700, 701, 9000])
)
cases.append(case("documents", q, k, e, scale=0.5, documents=[1, 1, 1, 2, 2, 2, 2, 2, 3, 3]))
cases.append(case("documents in each other", q, k, e, scale=0.5, documents=[1, 2, 1, 1, 2, 2, 1, 2, 2, 1]))
cases.append(
    case("the last 3, documents", [h[-3:] for h in q], k, e, scale=0.5, documents=[-1, -1, -1, 0, 0, 0, 0, 0, 0, 0])
)
write("CoPE", __doc__, cases)
