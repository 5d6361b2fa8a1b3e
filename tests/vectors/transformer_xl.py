"""Transformer-XL: A_ij = scale (<q_i, k_j> + <q_i, W_R R_d> + <u, k_j> + <v, W_R R_d>), d = i - j,
R_d = [sin(d w_0), ..., cos(d w_0), ...], w_p = base^(-2p/c), c = d_model.

Plain Python, float64, the four terms one by one. `computed`: R of distances 0, 1, 2 for d_model 4 (8 digits); with
W_R the identity and u = v = 0, a query that is a unit vector shows one number of R.
"""

import math

from shared import dot, mean, waves, write

COMPUTED = [
    [0.0, 0.0, 1.0, 1.0],
    [0.84147098, 0.00999983, 0.54030231, 0.99995],
    [0.90929743, 0.01999867, -0.41614684, 0.9998],
]


def sinusoid(d, width, base=10_000.0):
    angles = [d / base ** (2 * p / width) for p in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


def logits(q, k, W_R, u, v, query, key, scale, far=None, base=10_000.0):
    found = []
    for qh, kh, W, uh, vh in zip(q, k, W_R, u, v, strict=True):
        rows = []
        for i, qi in zip(query, qh, strict=True):
            row = []
            for j, kj in zip(key, kh, strict=True):
                d = i - j if far is None else max(-far, min(far, i - j))
                R = sinusoid(d, len(W[0]), base)
                moved = [dot(line, R) for line in W]
                row.append(scale * math.fsum([dot(qi, kj), dot(qi, moved), dot(uh, kj), dot(vh, moved)]))
            rows.append(row)
        found.append(rows)
    return found


def causal(rows):
    """A square, without keys after the query."""
    return [[[x if j <= i else None for j, x in enumerate(row)] for i, row in enumerate(head)] for head in rows]


def output(heads, v):
    """The mean of values, weighted by the softmax of each causal row."""
    return [
        [mean([math.exp(x) for x in row[: i + 1]], values[: i + 1]) for i, row in enumerate(rows)]
        for rows, values in zip(heads, v, strict=True)
    ]


def case(name, what, heads, dim, width, parameters, made="formula", tolerance=1e-13, settings=None, **rest):
    return {
        "name": name,
        "what": what,
        "from": made,
        "atol": tolerance,
        "rtol": tolerance,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": width},
        "settings": settings or {},
        "parameters": parameters,
        **rest,
    }


ONE = [[1.0 if a == b else 0.0 for b in range(4)] for a in range(4)]
NOTHING = [[0.0] * 4] * 4
cases = [
    case(
        "R of distances 0, 1, 2",
        "logits",
        4,
        4,
        4,
        {"W_R": [ONE] * 4, "u": NOTHING, "v": NOTHING},
        "computed",
        6e-9,
        query=[2],
        key=[2, 1, 0],
        q=[[ONE[h]] for h in range(4)],
        k=[[[0.0] * 4] * 3] * 4,
        scale=1.0,
        expected=[[[R[h] for R in COMPUTED]] for h in range(4)],
    )
]
NEAR, ROW, AROUND = [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 7, 31, 64], [0, 9, 10, 11, 12, 13, 14, 60, 900]
for name, heads, dim, width, scale, query, key, settings, extra in [
    ("a square", 2, 4, 8, 0.5, NEAR, NEAR, {}, {}),
    ("head_dim that is no part of d_model", 3, 2, 10, 1.0, NEAR, NEAR, {}, {}),
    ("gaps", 1, 3, 6, 0.61, ROW, ROW, {}, {}),
    ("base 100", 2, 4, 8, 0.5, ROW, ROW, {"base": 100.0}, {"base": 100.0}),
    ("distances to 3", 2, 4, 8, 0.5, ROW, ROW, {"max_distance": 3}, {"far": 3}),
    ("both ways, a square", 2, 4, 8, 0.3, NEAR, NEAR, {"bidirectional": True}, {}),
    ("both ways", 2, 2, 4, 0.7, [12], AROUND, {"bidirectional": True}, {}),
    ("both ways to 40", 2, 2, 4, 0.7, [12], AROUND, {"bidirectional": True, "max_distance": 40}, {"far": 40}),
    ("both ways to 1", 1, 2, 4, 0.7, [12], AROUND, {"bidirectional": True, "max_distance": 1}, {"far": 1}),
]:
    q, k = waves(3, heads, len(query), dim), waves(7, heads, len(key), dim)
    W_R, u, v = waves(11, heads, dim, width), waves(13, heads, dim), waves(17, heads, dim)
    found = logits(q, k, W_R, u, v, query, key, scale, **extra)
    both, square = settings.get("bidirectional", False), len(query) > 1
    cases.append(
        case(
            name,
            "logits",
            heads,
            dim,
            width,
            {"W_R": W_R, "u": u, "v": v},
            settings=settings,
            query=query,
            key=key,
            q=q,
            k=k,
            scale=scale,
            everywhere=both and square,
            expected=found if both or not square else causal(found),
        )
    )
    if square and not both:
        values = waves(23, heads, len(key), dim)
        cases.append(
            case(
                f"{name}, output",
                "output",
                heads,
                dim,
                width,
                {"W_R": W_R, "u": u, "v": v},
                settings=settings,
                query=query,
                key=key,
                q=q,
                k=k,
                v=values,
                scale=scale,
                expected=output(found, values),
            )
        )
# Each term alone, and far away: 10^5 radians in float64 are off by 10^-11.
for name, parameters in {
    "the second term": {"u": [[0.0] * 2], "v": [[0.0] * 2]},
    "the third term": {"W_R": [[[0.0] * 4] * 2], "v": [[0.0] * 2]},
    "the fourth term": {"u": [[0.0] * 2]},
}.items():
    given = {"W_R": waves(2, 1, 2, 4), "u": waves(5, 1, 2), "v": waves(9, 1, 2), **parameters}
    q = [[[0.0] * 2]] if "fourth" in name else waves(3, 1, 1, 2)
    k = waves(7, 1, 8, 2) if "third" in name else [[[0.0] * 2] * 8]
    key = [100_000, 99_999, 99_990, 99_000, 50_000, 1000, 1, 0]
    cases.append(
        case(
            f"{name}, far",
            "logits",
            1,
            2,
            4,
            given,
            tolerance=1e-10,
            query=[100_000],
            key=key,
            q=q,
            k=k,
            scale=0.9,
            expected=logits(q, k, given["W_R"], given["u"], given["v"], [100_000], key, 0.9),
        )
    )
write("TransformerXL", __doc__, cases)
