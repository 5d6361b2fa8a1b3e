"""RePo: q_t and k_t of head h are rotated by z_h(x_t) * base^(-2p/d), z_h(x) = <w_h, silu(U x) * (V x)>.

Li, Zhao and Sproat 2025; SakanaAI/repo, OLMo/olmo/model.py, `swigluex_multihead`: final_map(silu(gate_map(x)) *
content_map(x)). Plain Python, float64. A pair is a complex number, which is multiplied by e^(i angle). No digits are in
print.
"""

from shared import dot, product, silu, table, turned, write


def position(U, V, w, x):
    return dot(w, [silu(dot(u, x)) * dot(v, x) for u, v in zip(U, V)])


def case(name, U, V, w, x, queries=None, *, dim, base=None, layout=None, documents=None, key=None, seed=0, scale=0.5):
    count = len(x)
    queries = queries or count
    key = list(range(count)) if key is None else key
    q, k = ([table(t, dim, seed + 31 * h + n) for h in range(len(w))] for n, t in ((1, queries), (2, count)))
    ids = documents or [0] * count
    settings = {name: value for name, value in (("base", base), ("layout", layout)) if value is not None}
    expected = []
    for qh, kh, wh in zip(q, k, w):
        z = [position(U, V, wh, xt) for xt in x]
        angles = [[zt * (base or 500000.0) ** (-2 * p / dim) for p in range(dim // 2)] for zt in z]
        turned_k = [turned(v, at, layout or "interleaved") for v, at in zip(kh, angles)]
        rows = []
        for n, qi in enumerate(qh):
            i = count - queries + n
            left = turned(qi, angles[i], layout or "interleaved")
            seen = [j <= i and ids[j] == ids[i] for j in range(count)]
            rows.append([scale * product(left, turned_k[j]) if seen[j] else None for j in range(count)])
        expected.append(rows)
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": len(w), "head_dim": dim, "d_model": len(U[0])},
        "settings": settings | {"rank": len(U)},
        "parameters": {"U": U, "V": V, "w": w},
        "query": key[count - queries :],
        "key": key,
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def random_case(name, heads, width, rank, count, queries=None, *, seed, size=1.0, **more):
    U, V, w = table(rank, width, seed, size), table(rank, width, seed + 1, size), table(heads, rank, seed + 2, size)
    return case(name, U, V, w, table(count, width, seed + 3, 2.0), queries, seed=seed, **more)


cases = [
    # silu(1) * 2 * 3 = 4.386: the second token's only pair is rotated by this angle in radians.
    case("one pair", [[1.0]], [[2.0]], [[3.0]], [[0.0], [1.0]], dim=2),
    case("no weights: NoPE", [[0.0, 0.0]], [[0.0, 0.0]], [[1.0], [2.0]], table(5, 2, 5), dim=4),
    random_case("1 head", 1, 3, 2, 6, dim=4, seed=10),
    random_case("4 heads", 4, 5, 3, 7, dim=6, seed=20),
    random_case("strong weights", 2, 4, 3, 9, dim=8, seed=30, size=6.0),
    random_case("base and layout", 2, 4, 3, 6, dim=8, seed=40, base=100.0, layout="half"),
    random_case("one query", 2, 4, 2, 11, 1, dim=4, seed=50),
    random_case(
        "the last 4, positions change nothing", 2, 3, 2, 7, 4, dim=4, seed=60, key=[0, 5, 6, 70, 100, 101, 999]
    ),
    random_case("documents change no position", 2, 3, 2, 7, dim=4, seed=70, documents=[1, 2, 1, 1, 2, 2, 1]),
]
write("RePo", __doc__, cases)
