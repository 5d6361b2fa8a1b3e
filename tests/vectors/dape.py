"""DAPE: logit_ij = A + B + f(A, B), A = scale <q_i, k_j>, B the base's bias, f = Linear(2H, width), leaky ReLU (0.01),
Linear(width, H) over the heads of one pair, A of all heads first.

Zheng et al. 2024; chuanyang-Zheng/DAPE, AliBi_DAPE, ParallelKerpleLog_DAPE, FIRE_DAPE (here with relu in FIRE's own
MLP, and L = half the trained length). Bases: ALiBi -m (i - j), KERPLE -r1 ln(1 + r2 (i - j)), FIRE g(psi(i - j) /
(psi(max(|m| L, i)) + 10^-6)), psi(d) = ln(|c| d + 1), one hidden layer. Plain Python, float64, pair by pair. Nothing is
in print with digits.
"""

import math

from shared import dot, numbers, table, write


def linear(weight, bias, x):
    return [dot(row, x) + b for row, b in zip(weight, bias)]


def alibi(num_heads):
    """Heads are a power of two here."""
    return lambda i, j: [-(2.0 ** (-8 * (h + 1) / num_heads)) * (i - j) for h in range(num_heads)]


def kerple(r1, r2):
    return lambda i, j: [-max(a, 0.01) * math.log1p(max(b, 0.01) * (i - j)) for a, b in zip(r1, r2)]


def fire(weights, c, L):
    (w1, b1), (w2, b2) = weights

    def bias(i, j):
        def psi(d):
            return math.log(abs(c) * d + 1)

        x = psi(i - j) / (psi(max(L, i)) + 1e-6)
        return linear(w2, b2, [max(v, 0.0) for v in linear(w1, b1, [x])])

    return bias


def case(
    name, base, B, num_heads, width, q, k, *, scale, parameters=None, key=None, documents=None, train_length=16, mlp
):
    count, queries = len(k[0]), len(q[0])
    key = list(range(count)) if key is None else key
    documents_of = documents or [0] * count
    (w1, b1), (w2, b2) = mlp
    expected = [[[None] * count for _ in range(queries)] for _ in range(num_heads)]
    for r in range(queries):
        i = count - queries + r
        for j in range(i + 1):
            if documents_of[j] != documents_of[i]:
                continue
            A = [scale * dot(q[h][r], k[h][j]) for h in range(num_heads)]
            b = B(key[i], key[j])
            f = linear(w2, b2, [v if v > 0 else 0.01 * v for v in linear(w1, b1, A + b)])
            for h in range(num_heads):
                expected[h][r][j] = A[h] + b[h] + f[h]
    made = {
        "name": f"{base}, {name}",
        "what": "logits",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-13,
        "context": {"num_heads": num_heads, "train_length": train_length},
        "settings": {"base": base, "width": width},
        "parameters": {
            "first.weight": w1,
            "first.bias": b1,
            "second.weight": w2,
            "second.bias": b2,
            **{f"base.{n}": v for n, v in (parameters or {}).items()},
        },
        "query": key[count - queries :],
        "key": key,
        "q": q,
        "k": k,
        "scale": scale,
        "expected": expected,
    }
    if documents:
        made["documents"] = documents
    return made


def random_mlp(num_heads, width, seed):
    return (
        (table(width, 2 * num_heads, seed), numbers(width, seed + 1)),
        (table(num_heads, width, seed + 2), numbers(num_heads, seed + 3)),
    )


def base_of(name, num_heads, width, train_length, seed):
    """(B, parameters)."""
    if name == "alibi":
        return alibi(num_heads), {}
    if name == "kerple_log":
        r1, r2 = ([0.8 + x for x in numbers(num_heads, seed + n)] for n in (4, 5))
        return kerple(r1, r2), {"r1": r1, "r2": r2}
    weights = (
        (table(width, 1, seed + 6), numbers(width, seed + 7)),
        (table(num_heads, width, seed + 8), numbers(num_heads, seed + 9)),
    )
    parameters = {"c": 0.3, "L_multiplier": 1.5}
    for n, (weight, bias) in enumerate(weights):
        parameters[f"layers.{n}.weight"], parameters[f"layers.{n}.bias"] = weight, bias
    return fire(weights, 0.3, 1.5 * train_length / 2), parameters


def random_case(name, base, num_heads, width, count, queries, seed, *, train_length=16, **more):
    B, parameters = base_of(base, num_heads, width, train_length, seed)
    q, k = ([table(t, 4, seed + 31 * h + n, 2.0) for h in range(num_heads)] for n, t in ((10, queries), (20, count)))
    mlp = random_mlp(num_heads, width, seed)
    given = {"scale": 0.5, "parameters": parameters, "train_length": train_length, "mlp": mlp}
    return case(name, base, B, num_heads, width, q, k, **given, **more)


ONE = [[[2.0], [3.0], [-1.0]]]
# f = 0: the base alone. f = leaky(A + B) + 1.
NOTHING, SUM = (([[0.0, 0.0]], [0.0]), ([[0.0]], [0.0])), (([[1.0, 1.0]], [0.0]), ([[1.0]], [1.0]))
cases = [
    case("f is 0", "alibi", alibi(1), 1, 1, ONE, ONE, scale=1.0, mlp=NOTHING),
    case("f is leaky(A + B) + 1", "alibi", alibi(1), 1, 1, ONE, ONE, scale=1.0, mlp=SUM),
]
GAPS = [0, 1, 3, 20, 21, 400, 5000, 100_000]
for n, base in enumerate(("alibi", "kerple_log", "fire")):
    cases += [
        random_case("1 head", base, 1, 3, 5, 5, 100 + n),
        random_case("4 heads", base, 4, 6, 8, 8, 200 + n),
        random_case("2 heads, 32 wide", base, 2, 32, 6, 6, 300 + n),
        random_case("one query", base, 2, 5, 11, 1, 400 + n),
        random_case("the last 3", base, 2, 5, 11, 3, 500 + n),
        random_case("far", base, 2, 5, 8, 8, 600 + n, key=GAPS),
        random_case("documents", base, 2, 5, 7, 7, 700 + n, documents=[1, 1, 2, 2, 2, 3, 3], key=[0, 1, 0, 1, 2, 0, 1]),
    ]
cases.append(random_case("another trained length", "fire", 2, 5, 8, 8, 800, train_length=100, key=GAPS))
write("DAPE", __doc__, cases)
