"""What several scripts of this folder share: plain Python in float64, without Lengthwise."""

import cmath
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


def waves(seed, *shape):
    """Numbers between -1 and 1, from a sine."""
    if len(shape) > 1:
        return [waves(seed * 31 + n + 1, *shape[1:]) for n in range(shape[0])]
    return [math.sin(1.7 * seed + 2.3 * n + 0.5 * n * n) for n in range(shape[0])]


def table(rows, columns, seed, size=1.0):
    flat = numbers(rows * columns, seed, size)
    return [flat[r * columns : r * columns + columns] for r in range(rows)]


def tables(count, rows, columns, seed, size=1.0):
    return [table(rows, columns, seed + 7 * n, size) for n in range(count)]


# ---- functions --------------------------------------------------------------------------------------------------


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def mean(mass, vectors):
    return [dot(mass, column) / math.fsum(mass) for column in zip(*vectors)]


def softplus(z):
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


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


def turned(x, angles, layout):
    """The pairs of a vector as complex numbers, rotated by angles in radians."""
    n = len(angles)
    pairs = [(2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + n) for p in range(n)]
    return [complex(x[a], x[b]) * cmath.exp(1j * angle) for (a, b), angle in zip(pairs, angles)]


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
    """A case with the logits at the positions `at` after a rotation. q and k repeat after `period` positions."""
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


def yarn_frequencies(s, r, length, base=1e4, beta_fast=32.0, beta_slow=1.0, ramp="index", truncate=True):
    theta = [base ** (-2 * p / r) for p in range(r // 2)]
    if ramp == "index":
        low, high = (r * math.log(length / (b * 2 * math.pi)) / (2 * math.log(base)) for b in (beta_fast, beta_slow))
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, r - 1)
        assert low < high
        stay = [1 - clip((p - low) / (high - low)) for p in range(r // 2)]
    else:
        stay = [clip((length * t / (2 * math.pi) - beta_slow) / (beta_fast - beta_slow)) for t in theta]
    return [(1 - w) * t / s + w * t for w, t in zip(stay, theta)]


def axes_cases(said, width, at, rotation, layout):
    """Rotated vectors, and logits, for tokens with the angles `rotation` at positions `at` on several axes."""
    x, q, k = ([vector(width, seed + n) for n in range(len(at))] for seed in (1, 11, 23))
    rotated_x, rotated_q, rotated_k = (
        [rotate(v, 1, angles, layout) for v, angles in zip(rows, rotation)] for rows in (x, q, k)
    )
    scale = 1 / math.sqrt(width)
    rows = {"query": at, "key": at, "q": [q], "k": [k], "scale": scale}
    return [
        {**said, "what": "rotated", "positions": at, "x": x, "expected": rotated_x},
        {**said, "what": "logits", **rows, "expected": [logits(rotated_q, rotated_k, scale)]},
    ]


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


def path_case(
    name,
    parameters,
    x,
    queries=None,
    *,
    heads=None,
    documents=None,
    key=None,
    seed=0,
    scale=0.5,
    q=None,
    k=None,
    scaled=False,
):
    """Logits of PaTH; with parameters of gates, of PaTH-FoX. `scaled`: the gates' bias is divided by sqrt(d)."""
    A, B, c, u, b = (parameters[n] for n in ("A", "B", "c", "u", "b"))
    groups, dim, count = len(A), len(A[0]), len(x)
    heads, queries = heads or groups, queries or count
    key = list(range(count)) if key is None else key
    q = q or [table(queries, dim, seed + 31 * h + 1) for h in range(heads)]
    k = k or [table(count, dim, seed + 31 * h + 2) for h in range(heads)]
    ids = documents or [0] * count
    w, expected = directions(A, B, c, x, ids), []
    for h in range(heads):
        g, rows = h // (heads // groups), []
        beta = [2 * sigmoid(dot(u[g], xt) + b[g]) for xt in x]
        gates = [0.0] * count
        if "gate.w" in parameters:
            gates = [math.log(sigmoid(dot(parameters["gate.w"][h], xt) + parameters["gate.b"][h])) for xt in x]
        for n in range(queries):
            i, row = count - queries + n, []
            for j in range(count):
                if j > i or ids[j] != ids[i]:
                    row.append(None)
                    continue
                vector, between = k[h][j], [t for t in range(j + 1, i + 1) if ids[t] == ids[i]]
                for t in between:
                    vector = reflected(vector, w[g][t], beta[t])
                bias = math.fsum(gates[t] for t in between) / (math.sqrt(dim) if scaled else 1)
                row.append(scale * dot(q[h][n], vector) + bias)
            rows.append(row)
        expected.append(rows)
    settings = {"rank": len(B), "width": len(c[0][0])} | ({"key_heads": groups} if groups != heads else {})
    made = {
        "name": name,
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "context": {"num_heads": heads, "head_dim": dim, "d_model": len(B[0])},
        "settings": settings | ({"scaled_gate": True} if scaled else {}),
        "parameters": parameters,
        "query": key[count - queries :],
        "key": key,
        "x": x,
        "q": q,
        "k": k,
        "scale": scale,
    }
    return made | ({"documents": documents} if documents else {}) | {"expected": expected}


def path_parameters(groups, dim, d_model, seed, rank=3, width=3, size=1.0):
    return {
        "A": tables(groups, dim, rank, seed, size),
        "B": table(rank, d_model, seed + 1, size),
        "c": tables(groups, dim, width, seed + 2, size),
        "u": table(groups, d_model, seed + 3, size),
        "b": numbers(groups, seed + 4),
    }
