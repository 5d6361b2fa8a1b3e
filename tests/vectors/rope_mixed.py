"""RoPE-Mixed: pair p of head h is rotated by sum over axes a of x_a f[a][h][p], with learned f. No digits are in print.

naver-ai/rope-vit, models/vit_rope.py (compute_mixed_cis) for 2 axes. Plain Python, float64. A pair is a complex number,
which is multiplied by e^(i angle).
"""

import math

from shared import product, table, turned, write


def angles(position, f):
    """The angle of each pair; f has a list of pairs for each axis. A single number is the position on every axis."""
    where = position if isinstance(position, list) else [position] * len(f)
    return [math.fsum(x * of_axis[p] for x, of_axis in zip(where, f)) for p in range(len(f[0]))]


def case(name, f, query, key, q, k, *, atol=1e-12, scale=0.5, **settings):
    layout = settings.get("layout", "interleaved")
    first = len(key) - len(query)
    expected = []
    for h, (qh, kh) in enumerate(zip(q, k)):
        of_head = [of_axis[h] for of_axis in f]
        left = [turned(x, angles(at, of_head), layout) for x, at in zip(qh, query)]
        right = [turned(x, angles(at, of_head), layout) for x, at in zip(kh, key)]
        rows = [
            [scale * product(u, w) if j <= first + i else None for j, w in enumerate(right)] for i, u in enumerate(left)
        ]
        expected.append(rows)
    return {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": atol,
        "rtol": 0.0,
        "context": {"num_heads": len(f[0]), "head_dim": 2 * len(f[0][0])},
        "settings": settings,
        "parameters": {"f": f},
        "query": query,
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": expected,
    }


def random_case(name, heads, d, query, key, *, seed, axes=2, **more):
    f = [table(heads, d // 2, seed + 7 * axis) for axis in range(axes)]
    q, k = ([table(len(at), d, seed + 31 * h + n, 2.0) for h in range(heads)] for n, at in ((1, query), (2, key)))
    more = more if axes == 2 else {"axes": axes, **more}
    return case(name, f, query, key, q, k, **more)


grid = [[row, column] for row in range(2) for column in range(3)]
far = [[0, 0], [3, 17], [120, 4], [999_999, 3], [1_000_000, 2]]
three = [[0, 0, 0], [1, 2, 3], [3, 2, 1], [40, 1, 7]]
cases = [
    # 2 · 0.5 + 1 · 0.5 = 1.5 radians between (0, 0) and (2, 1): (1, 0) and (1, 0) have the product cos 1.5 = 0.0707.
    case(
        "by hand",
        [[[0.5, 0.0]], [[0.5, 0.0]]],
        [[0, 0], [2, 1]],
        [[0, 0], [2, 1]],
        [[[1.0, 0.0, 0.0, 0.0]] * 2],
        [[[1.0, 0.0, 0.0, 0.0]] * 2],
        scale=1.0,
    ),
    random_case("one head", 1, 4, grid, grid, seed=10),
    random_case("three heads", 3, 8, grid, grid, seed=20),
    random_case("half", 2, 8, grid, grid, seed=30, layout="half"),
    random_case("three axes", 2, 12, three, three, seed=40, axes=3),
    random_case("one axis", 2, 4, [0, 1, 3, 70], [0, 1, 3, 70], seed=50, axes=1),
    random_case("text", 2, 8, [0, 1, 5, 900], [0, 1, 5, 900], seed=60),
    random_case("far apart", 2, 8, far, far, seed=70, atol=1e-8),
    random_case("one query", 2, 4, [[5, 2]], [*grid, [5, 2]], seed=80),
]
write("RoPEMixed", __doc__, cases)
