"""Shaw: e_ij = scale <q_i, k_j + wK_r>, z_i = sum_j softmax(e_i)_j (v_j + wV_r), r = clip(j - i, -k, k); row r + k of a
table.

Plain Python, float64, every pair by itself. `computed`: the clipped indices for k 4 and 8 tokens, and the extra logits
of k 1, head_dim 2, wK = (1, 0), (0, 1), (1, 1), q = (2, 3). A table that counts -k ... k, met by a
query of 1, shows its index.
"""

import math

from shared import dot, mean, waves, write

COMPUTED = {0: [0, 1, 2, 3, 4, 4, 4, 4], 5: [-4, -4, -3, -2, -1, 0, 1, 2]}
EXTRA = {-3: 2, -2: 2, -1: 2, 0: 3, 1: 5, 2: 5}


def row(i, j, clip):
    return max(-clip, min(clip, j - i)) + clip


def logits(q, k, wk, query, key, clip, scale):
    def logit(i, j, qi, kj):
        return scale * dot(qi, [a + b for a, b in zip(kj, wk[row(i, j, clip)], strict=True)])

    return [
        [[logit(i, j, qi, kj) for j, kj in zip(key, keys, strict=True)] for i, qi in zip(query, queries, strict=True)]
        for queries, keys in zip(q, k, strict=True)
    ]


def output(q, k, v, wk, wv, positions, clip, scale):
    """Causal, as many queries as keys."""
    found = []
    for e, values in zip(logits(q, k, wk, positions, positions, clip, scale), v, strict=True):
        rows = []
        for n, i in enumerate(positions):
            moved = [
                [a + b for a, b in zip(values[m], wv[row(i, positions[m], clip)], strict=True)] for m in range(n + 1)
            ]
            rows.append(mean([math.exp(x) for x in e[n][: n + 1]], moved))
        found.append(rows)
    return found


def case(name, what, made, heads, dim, clip, parameters, **rest):
    return {
        "name": name,
        "what": what,
        "from": made,
        "atol": 1e-13 if made == "formula" else 0.0,
        "rtol": 1e-13 if made == "formula" else 0.0,
        "context": {"head_dim": dim},
        "settings": {"clip": clip, "values": "value_vectors" in parameters},
        "parameters": parameters,
        **rest,
    }


cases = []
for i, indices in COMPUTED.items():
    cases.append(
        case(
            f"k 4, the indices of query {i} of 8",
            "logits",
            "computed",
            1,
            1,
            4,
            {"key_vectors": [[float(r)] for r in range(-4, 5)]},
            query=[i],
            key=list(range(8)),
            q=[[[1.0]]],
            k=[[[0.0]] * 8],
            scale=1.0,
            expected=[[[float(r) for r in indices]]],
        )
    )
cases.append(
    case(
        "k 1, head_dim 2",
        "logits",
        "computed",
        1,
        2,
        1,
        {"key_vectors": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]},
        query=[3],
        key=[3 + r for r in EXTRA],
        q=[[[2.0, 3.0]]],
        k=[[[0.0, 0.0]] * len(EXTRA)],
        scale=1.0,
        expected=[[[float(x) for x in EXTRA.values()]]],
    )
)
for heads, dim, clip, scale, query, key in [
    (2, 4, 3, 0.5, [0, 1, 2, 5, 6], [0, 1, 2, 5, 6]),
    (3, 2, 16, 0.37, [20], [0, 3, 4, 5, 12, 19, 20, 21, 35, 36, 37, 1000]),
    (1, 3, 1, 1.0, [1_000_000], [0, 999_998, 999_999, 1_000_000]),
    (2, 3, 2, 0.7, [0, 1, 9, 10], [0, 1, 9, 10]),
]:
    q, k = waves(3, heads, len(query), dim), waves(7, heads, len(key), dim)
    wk = waves(11, 2 * clip + 1, dim)
    cases.append(
        case(
            f"k {clip}, head_dim {dim}, {heads} heads",
            "logits",
            "formula",
            heads,
            dim,
            clip,
            {"key_vectors": wk},
            query=query,
            key=key,
            q=q,
            k=k,
            scale=scale,
            everywhere=len(query) > 1,
            expected=logits(q, k, wk, query, key, clip, scale),
        )
    )
for heads, dim, clip, scale, positions in [
    (1, 2, 1, 1.0, [0, 1, 2]),
    (2, 4, 3, 0.5, [0, 1, 2, 3, 4, 5, 6]),
    (2, 3, 16, 0.57, [0, 2, 15, 16, 17, 33, 1000, 1_000_000]),
]:
    q, k, v = (waves(n, heads, len(positions), dim) for n in (2, 5, 9))
    wk, wv = waves(13, 2 * clip + 1, dim), waves(17, 2 * clip + 1, dim)
    cases.append(
        case(
            f"k {clip}, head_dim {dim}, {heads} heads, keys and values",
            "output",
            "formula",
            heads,
            dim,
            clip,
            {"key_vectors": wk, "value_vectors": wv},
            query=positions,
            key=positions,
            q=q,
            k=k,
            v=v,
            scale=scale,
            expected=output(q, k, v, wk, wv, positions, clip, scale),
        )
    )
write("Shaw", __doc__, cases)
