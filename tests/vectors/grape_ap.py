"""GrapeAP: b_ij = slope_h * sum over l = j + 1 ... i of ln sigmoid(<a_i, R_l p_l> / w), over the tokens of i's own
document.

p_l = W x_l / sqrt(mean square + 2^-23); R_l turns the pairs (c, c + w/2) by l radians, l the position; a_i is W x_i
(code), p_i (paper) or R_i p_i (relative). Zhang et al. 2025, eq. 5.1 f.; model-architectures/GRAPE,
llama-mha-grape-ap-v1.py. Plain Python, float64.
"""

import math

from shared import dot, log_sigmoid, table, write


def slopes(heads):
    """ALiBi's, for powers of two."""
    return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]


def turned(p, radians):
    half = len(p) // 2
    cos, sin = math.cos(radians), math.sin(radians)
    first = [p[c] * cos - p[c + half] * sin for c in range(half)]
    return first + [p[c + half] * cos + p[c] * sin for c in range(half)]


def bias(W, slope, x, queries, key, documents, variant):
    probes = [[dot(row, xt) for row in W] for xt in x]
    p = [[n / math.sqrt(dot(own, own) / len(own) + 2.0**-23) for n in own] for own in probes]
    rotated = [turned(own, at) for own, at in zip(p, key)]
    ends = {"code": probes, "paper": p, "relative": rotated}[variant]
    rows = []
    for i in range(len(x) - queries, len(x)):
        edge = [log_sigmoid(dot(ends[i], rotated[n]) / len(W)) for n in range(i + 1)]
        row = [None] * len(x)
        for j in range(i + 1):
            if documents[j] == documents[i]:
                row[j] = slope * math.fsum(edge[n] for n in range(j + 1, i + 1) if documents[n] == documents[i])
        rows.append(row)
    return rows


def case(name, W, x, queries=None, *, variant=None, key=None, documents=None):
    count, queries = len(x), queries or len(x)
    key = list(range(count)) if key is None else key
    settings = {"probe_dim": len(W[0])} | ({"variant": variant} if variant else {})
    made = {
        "name": name,
        "what": "bias",
        "from": "formula",
        "atol": 1e-11,
        "rtol": 1e-12,
        "context": {"num_heads": len(W), "d_model": len(x[0])},
        "settings": settings,
        "parameters": {"W": W},
        "query": key[count - queries :],
        "key": key,
        "x": x,
    }
    ids = documents or [0] * count
    expected = [bias(Wh, m, x, queries, key, ids, variant or "code") for Wh, m in zip(W, slopes(len(W)))]
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def random_case(name, heads, w, width, count, queries=None, *, seed, size=1.0, **more):
    W = [table(w, width, seed + 7 * h, size) for h in range(heads)]
    return case(name, W, table(count, width, seed + 3, 2.0), queries, **more)


eye = [[[1.0, 0.0], [0.0, 1.0]]]
cases = [
    # <p_i, R_l p_l> / 2 = cos l with one head, whose slope is 2^-8.
    case("the same token, as in the paper", eye, [[1.0, 0.0]] * 5, variant="paper"),
    case("the same token, relative", eye, [[1.0, 0.0]] * 5, variant="relative"),
    case("the same token, as in the code", eye, [[3.0, 0.0]] * 5),
    random_case("1 head", 1, 4, 3, 6, seed=10),
    random_case("4 heads, paper", 4, 6, 5, 8, seed=20, variant="paper"),
    random_case("2 heads, relative", 2, 8, 4, 9, seed=30, variant="relative"),
    random_case("strong probes", 2, 4, 4, 9, seed=40, size=9.0),
    random_case("one query", 2, 4, 3, 12, 1, seed=50),
    random_case("positions with gaps", 2, 4, 3, 7, seed=60, key=[0, 5, 6, 70, 100, 101, 999]),
    random_case("relative, positions with gaps", 2, 4, 3, 6, seed=65, variant="relative", key=[3, 5, 6, 70, 100, 101]),
    random_case("documents", 2, 4, 3, 9, seed=70, documents=[1, 1, 1, 2, 2, 2, 2, 3, 3]),
    random_case("documents in each other", 2, 4, 3, 8, seed=80, documents=[1, 2, 1, 1, 2, 2, 1, 2]),
    random_case("the last 3, padding", 2, 4, 3, 9, 3, seed=90, documents=[-1, -1, -1, -1, 0, 0, 0, 0, 0]),
]
write("GrapeAP", __doc__, cases)
