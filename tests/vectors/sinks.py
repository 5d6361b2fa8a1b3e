"""Sinks: the weight of key j is exp(z_ij) / (exp(s_h) + the sum over k of exp(z_ik)), for the visible keys k.

huggingface/transformers, models/gpt_oss, appends s_h to the logits and drops its column after the softmax. Plain
Python, float64, with the sum in the denominator.
"""

import math

from shared import dot, vector, write


def case(name, logits, q, k, v, scale=0.5):
    out = []
    for s, qh, kh, vh in zip(logits, q, k, v):
        rows = []
        for i, u in enumerate(qh):
            seen = len(kh) - len(qh) + i + 1
            z = [scale * dot(u, w) for w in kh[:seen]]
            top = max([s, *z])
            weights = [math.exp(x - top) for x in z]
            total = math.fsum([math.exp(s - top), *weights])
            rows.append([math.fsum(w * x[d] for w, x in zip(weights, vh)) / total for d in range(len(u))])
        out.append(rows)
    first = len(k[0]) - len(q[0])
    return {
        "name": name,
        "what": "output",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 0.0,
        "context": {"num_heads": len(logits)},
        "parameters": {"logit": logits},
        "scale": scale,
        "q": q,
        "k": k,
        "v": v,
        "query": list(range(first, len(k[0]))),
        "key": list(range(len(k[0]))),
        "expected": out,
    }


def random_case(name, logits, queries, keys, width=4):
    q, k, v = (
        [[vector(width, a + 7 * h + t) for t in range(count)] for h in range(len(logits))]
        for a, count in ((11, queries), (23, keys), (37, keys))
    )
    return case(name, logits, q, k, v)


ZEROS, ONES = [[[0.0, 0.0]] * 3], [[[1.0, 2.0]] * 3]
cases = [
    # With logits of 0, query i has i + 2 equal shares, one of them the sink's: 1/2, 2/3 and 3/4 of (1, 2).
    {**case("shares", [0.0], ZEROS, ZEROS, ONES), "expected": [[[1 / 2, 1.0], [2 / 3, 4 / 3], [3 / 4, 3 / 2]]]},
    # The sink counts as ln 3 = three keys of logit 0.
    {
        **case("three keys", [math.log(3)], ZEROS, ZEROS, ONES),
        "expected": [[[1 / 4, 1 / 2], [2 / 5, 4 / 5], [1 / 2, 1.0]]],
    },
    random_case("two heads", [0.3, -1.5], 9, 9),
    random_case("the last 2 of 12", [0.3, 2.5], 2, 12),
    random_case("one query", [1.0], 1, 7),
    random_case("far above all logits, and far below", [60.0, -60.0], 6, 6),
]
write("Sinks", __doc__, cases)
