"""GrapeA: b = -(i - j) m_h softplus(omega_h) (softplus(<v_h, q_i> / sqrt d) + softplus(<u_h, k_j> / sqrt d)), m_h as in
ALiBi.

u and v are divided by their lengths, unless `normalized` is false. Zhang et al. 2025, GRAPE, eq. 4.6;
model-architectures/GRAPE, llama-mha-grape-a-querykeygated.py. Plain Python, float64. No digits are in print.
"""

import math

from shared import dot, numbers, softplus, table, write


def case(name, heads, dim, query, key, *, gates="both", normalized=True, omega=None, seed=0, scale=0.5, given=None):
    v, u = table(heads, dim, seed + 1, 2.0), table(heads, dim, seed + 2, 2.0)
    omega = omega or numbers(heads, seed + 3, 2.0)
    q = [table(len(query), dim, seed + 31 * h + 4, 2.0) for h in range(heads)]
    k = [table(len(key), dim, seed + 31 * h + 5, 2.0) for h in range(heads)]
    if given:
        v, u, q, k = given
    expected = []
    for h in range(heads):
        slope = 2 ** (-8 * (h + 1) / heads) * softplus(omega[h])  # for a power of two
        gate = []
        for vector, tokens, use in ((v[h], q[h], gates != "key"), (u[h], k[h], gates != "query")):
            length = math.sqrt(dot(vector, vector)) if normalized else 1.0
            gate.append([use * softplus(dot(vector, t) / length / math.sqrt(dim)) for t in tokens])
        rows = []
        for a, (i, qi) in enumerate(zip(query, q[h])):
            row = []
            for b, (j, kj) in enumerate(zip(key, k[h])):
                bias = -(i - j) * slope * (gate[0][a] + gate[1][b])
                row.append(scale * dot(qi, kj) + bias if j <= i else None)
            rows.append(row)
        expected.append(rows)
    parameters = {"omega": omega} | ({"v": v} if gates != "key" else {}) | ({"u": u} if gates != "query" else {})
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim},
        "settings": {"gates": gates, "normalized": normalized},
        "parameters": parameters,
        "query": query,
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": expected,
    }


near = list(range(7))
# q and k are 0, so both gates are ln 2; the slope is 2^-8 softplus(0) = 2^-8 ln 2: b = -2 (i - j) 2^-8 (ln 2)^2.
zeros = [[[0.0, 0.0]] * 3]
plain = case("by hand", 1, 2, [0, 1, 2], [0, 1, 2], omega=[0.0], given=([[1.0, 0.0]], [[0.0, 1.0]], zeros, zeros))
step = -2 * 2**-8 * math.log(2) ** 2
assert abs(plain["expected"][0][2][0] - 2 * step) < 1e-15, plain["expected"]
cases = [
    plain,
    case("1 head", 1, 3, near, near, seed=10),
    case("4 heads", 4, 4, near, near, seed=20),
    case("gates of queries", 2, 4, near, near, seed=30, gates="query"),
    case("gates of keys", 2, 4, near, near, seed=40, gates="key"),
    case("vectors of any length", 2, 4, near, near, seed=50, normalized=False),
    case("far", 2, 4, [1_000_000], [0, 1, 999_999, 1_000_000], seed=60),
    case("gaps", 2, 4, [0, 3, 4, 90], [0, 3, 4, 90], seed=70),
]
write("GrapeA", __doc__, cases)
