"""What several scripts of this folder share: plain Python in float64, without Lengthwise."""

import json
import math


def write(encoding, how, cases):
    """Print the content of a script's JSON file."""
    print(json.dumps({"encoding": encoding, "how": how, "cases": cases}))


# ---- numbers that are the same everywhere -----------------------------------------------------------------------


def vector(width, seed):
    return [math.sin(1.7 * seed + 0.9 * n * n + 0.3) * 2 for n in range(width)]


def numbers(count, seed, size=1.0):
    """Numbers in -size ... size from a small congruential generator."""
    out = []
    for _ in range(count):
        seed = (1103515245 * seed + 12345) % 2**31
        out.append(round(size * (seed / 2**30 - 1), 6))
    return out


def table(rows, columns, seed, size=1.0):
    flat = numbers(rows * columns, seed, size)
    return [flat[r * columns : r * columns + columns] for r in range(rows)]


def tables(count, rows, columns, seed, size=1.0):
    return [table(rows, columns, seed + 7 * n, size) for n in range(count)]


# ---- functions --------------------------------------------------------------------------------------------------


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def sigmoid(z):
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def silu(x):
    return x / (1 + math.exp(-x))


def clip(x):
    return min(1.0, max(0.0, x))


def product(a, b):
    """The product of complex vectors, of which each number is a pair of dimensions."""
    return math.fsum((x * y.conjugate()).real for x, y in zip(a, b))


def rotate(x, position, theta, layout="interleaved", m=1.0):
    """Turn pair p by position · theta[p] radians and multiply it by m; dimensions without a pair stay."""
    out = list(x)
    for p, radians in enumerate(theta):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + len(theta))
        cos, sin = m * math.cos(position * radians), m * math.sin(position * radians)
        out[a], out[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
    return out


def logits(q, k, scale):
    """The logits of each query with the keys up to it; None for later keys."""
    return [
        [scale * sum(a * b for a, b in zip(u, w)) if j <= i else None for j, w in enumerate(k)] for i, u in enumerate(q)
    ]


def rotary_logits(said, width, at, theta, layout="interleaved", m=1.0, period=None):
    """A case with the logits of queries and keys at the positions `at`, after a rotation. They repeat after `period` positions."""
    q, k = ([vector(width, seed + (p % period if period else p)) for p in at] for seed in (11, 23))
    turned_q, turned_k = ([rotate(v, p, theta, layout, m) for v, p in zip(rows, at)] for rows in (q, k))
    scale = 1 / math.sqrt(width)
    inputs = {"scale": scale, "q": [q], "k": [k], "query": at, "key": at}
    return {"name": said["name"], "what": "logits"} | said | inputs | {"expected": [logits(turned_q, turned_k, scale)]}


def rotary_cases(said, width, theta, layout="interleaved", m=1.0, *, near=None, far=None, at=None, atol=1e-11):
    """Rotated vectors near and far away, and logits. `near` and `far` are positions with their absolute tolerance."""
    cases = []
    # A float64 angle of 10^6 radians is off by 10^-10.
    for positions, tolerance in (near or ([0, 1, 2, 3, 100], 1e-12), far or ([999_999, 1_000_000], 2e-9)):
        x = [vector(width, p % 7) for p in positions]
        expected = [rotate(v, p, theta, layout, m) for v, p in zip(x, positions)]
        rotated = {"atol": tolerance, "positions": positions, "x": x, "expected": expected}
        cases.append({"name": said["name"], "what": "rotated"} | said | rotated)
    return [*cases, rotary_logits(said | {"atol": atol}, width, at or [0, 1, 4, 900], theta, layout, m)]


# ---- temperatures: factor(position, head, settings, parameters) multiplies the logits of a query ------------------

NEAR, FAR = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 40], [0, 8190, 8191, 8192, 16383, 16384, 100_000, 1_000_000]


def factor_case(factor, name, at, settings, context, heads=1, parameters=None, width=3, scale=0.5):
    """Logits of one query at each position with every key up to it; None for keys after it."""
    rows = []
    for h in range(heads):
        q, k = ([vector(width, a + 5 * h + p % 99) for p in at] for a in (11, 23))
        gains = [factor(p, h, settings, parameters) for p in at]
        expected = [
            [gain * scale * dot(u, w) if j <= i else None for j, w in enumerate(k)]
            for i, (u, gain) in enumerate(zip(q, gains))
        ]
        rows.append((q, k, expected))
    inputs = {"scale": scale, "q": [q for q, _, _ in rows], "k": [k for _, k, _ in rows], "query": at, "key": at}
    return _factor_case(name, settings, context, parameters, inputs, [expected for _, _, expected in rows])


def by_hand(name, position, gain, settings, context, parameters=None):
    """One query with the logits 1 and 2 before the factor; the factor is typed in."""
    inputs = {
        "scale": 0.5,
        "q": [[[2.0, 1.0]]],
        "k": [[[1.0, 0.0], [3.0, -2.0]]],
        "query": [position],
        "key": [0, position],
    }
    return _factor_case(name, settings, context, parameters, inputs, [[[gain, 2 * gain]]])


def _factor_case(name, settings, context, parameters, inputs, expected):
    case = {"name": name, "what": "logits", "from": "formula", "atol": 1e-11, "rtol": 0.0, "context": context}
    return (
        case
        | {"settings": settings}
        | ({"parameters": parameters} if parameters else {})
        | inputs
        | {"expected": expected}
    )


# ---- maps of distances: f(i, j, training length, ...) takes the place of i - j in RoPE ----------------------------


def distance_cases(f, models):
    """Logits of each query with the keys up to it, for models of (head dim, training length, positions, settings)."""
    cases = []
    for width, length, positions, settings in models:
        rope = {"base": 1e4, "layout": "interleaved", "rotary_fraction": 1.0} | settings
        own = {name: value for name, value in settings.items() if name not in ("base", "layout", "rotary_fraction")}
        rotated, scale = int(width * rope["rotary_fraction"]), 1 / math.sqrt(width)
        q, k = [vector(width, 11 + m % 13) for m in positions], [vector(width, 23 + m % 17) for m in positions]
        expected = [
            [
                scale * _at_distance(q[a], k[b], f(i, j, length, **own), rotated, rope["base"], rope["layout"])
                if b <= a
                else None
                for b, j in enumerate(positions)
            ]
            for a, i in enumerate(positions)
        ]
        cases.append(
            {
                "name": f"d {width} L {length} " + " ".join(f"{name}={value}" for name, value in settings.items()),
                "what": "logits",
                "from": "formula",
                "context": {"head_dim": width, "train_length": length},
                "settings": settings,
                "rtol": 0.0,
                "atol": 1e-10,
                "query": positions,
                "key": positions,
                "q": [q],
                "k": [k],
                "scale": scale,
                "expected": [expected],
            }
        )
    return cases


def _at_distance(q, k, distance, rotated, base, layout):
    """The product of a pair: q is turned by the distance, k stays."""
    total = sum(a * b for a, b in zip(q[rotated:], k[rotated:]))
    for p in range(rotated // 2):
        a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + rotated // 2)
        angle = distance * base ** (-2 * p / rotated)
        x = q[a] * math.cos(angle) - q[b] * math.sin(angle)
        y = q[b] * math.cos(angle) + q[a] * math.sin(angle)
        total += x * k[a] + y * k[b]
    return total


# ---- PaTH -----------------------------------------------------------------------------------------------------------


def directions(A, B, c, x, ids):
    """w[group][t][d]."""
    out = []
    for Ag, cg in zip(A, c):
        z = [[dot(a, [dot(b, xt) for b in B]) for a in Ag] for xt in x]
        rows = []
        for t in range(len(x)):
            own = [s for s in range(t + 1) if ids[s] == ids[t]][::-1]  # the tokens of the document, t first
            total = [
                math.fsum(cg[n][m] * z[own[m]][n] for m in range(min(len(own), len(cg[n])))) for n in range(len(Ag))
            ]
            y = [n * sigmoid(n) for n in total]
            rows.append([n / math.sqrt(dot(y, y) + 1e-6) for n in y])
        out.append(rows)
    return out


def reflected(k, w, beta):
    """(I - beta w w^T) k."""
    factor = beta * dot(w, k)
    return [n - factor * m for n, m in zip(k, w)]
