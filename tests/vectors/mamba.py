"""Mamba-1 (Gu & Dao 2023, algorithm 2 and section 3.4), a block as state-spaces/mamba has it, without the residual.

    xn      = x / sqrt(mean x² + 1e-5) norm                        RMSNorm
    a | z   = in_proj xn
    a_t,c   = silu(conv1d.bias_c + sum over k of conv1d.weight_c,k a_(t−3+k),c),  k = 0 ... 3
    r | B | C = x_proj a;     dt = ln(1 + exp(s)),  s = dt_proj r + dt_proj.bias; s itself above 20, as in the kernels
    h_t,c,n = exp(−exp(A_log_c,n) dt_t,c) h_(t−1),c,n + dt_t,c B_t,n a_t,c
    out_t   = out_proj of (sum over n of C_t,n h_t,c,n + D_c a_t,c) silu(z_t,c)

Each document begins with no state, and its convolution sees none of another. Plain Python, float64, one number after
the other; a token's state is summed over all tokens before it, not carried on. The paper has no digits of an output in
print, so nothing here is.
"""

import math

from shared import dot, numbers, silu, table, write

KERNEL = 4


def softplus(x):
    return math.log1p(math.exp(x)) if x <= 20 else x


def block(p, x, documents):
    tokens, channels, n = len(x), len(p["A_log"]), len(p["A_log"][0])
    normed = []
    for row in x:
        scale = math.sqrt(dot(row, row) / len(row) + 1e-5)
        normed.append([v / scale * w for v, w in zip(row, p["norm.weight"])])
    both = [[dot(w, row) for w in p["in_proj.weight"]] for row in normed]
    a, z = [row[:channels] for row in both], [row[channels:] for row in both]

    def convolved(t, c):
        seen = [
            p["conv1d.weight"][c][0][k] * a[t - KERNEL + 1 + k][c]
            for k in range(KERNEL)
            if t - KERNEL + 1 + k >= 0 and documents[t - KERNEL + 1 + k] == documents[t]
        ]
        return silu(p["conv1d.bias"][c] + math.fsum(seen))

    a = [[convolved(t, c) for c in range(channels)] for t in range(tokens)]
    made = [[dot(w, row) for w in p["x_proj.weight"]] for row in a]
    rank = len(p["dt_proj.weight"][0])
    B, C = [row[rank : rank + n] for row in made], [row[rank + n :] for row in made]
    dt = [[softplus(dot(w, row[:rank]) + b) for w, b in zip(p["dt_proj.weight"], p["dt_proj.bias"])] for row in made]

    def state(t, c, i):
        """Each token's part, decayed by all that came after it."""
        rate = -math.exp(p["A_log"][c][i])
        return math.fsum(
            math.exp(rate * math.fsum(dt[m][c] for m in range(s + 1, t + 1))) * dt[s][c] * B[s][i] * a[s][c]
            for s in range(t + 1)
            if documents[s] == documents[t]
        )

    out = []
    for t in range(tokens):
        y = [
            (math.fsum(C[t][i] * state(t, c, i) for i in range(n)) + p["D"][c] * a[t][c]) * silu(z[t][c])
            for c in range(channels)
        ]
        out.append([dot(w, y) for w in p["out_proj.weight"]])
    return out


def case(name, width, n, tokens, seed, *, size=1.0, documents=None):
    channels, rank = 2 * width, -(-width // 16)
    p = {
        "norm.weight": [1 + v for v in numbers(width, seed, 0.3)],
        "in_proj.weight": table(2 * channels, width, seed + 1, size),
        "conv1d.weight": [[row] for row in table(channels, KERNEL, seed + 2, size)],
        "conv1d.bias": numbers(channels, seed + 3, 0.5),
        "x_proj.weight": table(rank + 2 * n, channels, seed + 4, size),
        "dt_proj.weight": table(channels, rank, seed + 5, size),
        "dt_proj.bias": numbers(channels, seed + 6, 4.0),
        "A_log": table(channels, n, seed + 7, 2.0),
        "D": numbers(channels, seed + 8, 2.0),
        "out_proj.weight": table(width, channels, seed + 9, size),
    }
    x = table(tokens, width, seed + 10, 2.0)
    made = {
        "name": name,
        "what": "mamba",
        "from": "formula",
        "atol": 1e-12,
        "rtol": 1e-12,
        "settings": {"d_model": width, "state_size": n},
        "parameters": p,
        "x": x,
    }
    if documents:
        made["documents"] = documents
    return made | {"expected": block(p, x, documents or [0] * tokens)}


cases = [
    case("one token", 2, 2, 1, 10),
    case("fewer tokens than the convolution sees", 2, 3, 3, 20),
    case("a state of one number", 3, 1, 9, 30),
    case("large weights", 3, 4, 12, 40, size=3.0),
    case("two numbers make the time steps", 17, 2, 6, 50, size=0.5),
    case("long", 2, 2, 60, 60),
    case("documents", 3, 3, 10, 70, documents=[4, 4, 4, 4, 4, 1, 2, 2, 7, 7]),
    case("padding", 3, 3, 8, 80, documents=[-1, -1, -1, 0, 0, 0, 0, 0]),
]
write("Mamba", __doc__, cases)
