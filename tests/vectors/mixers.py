"""Mixers of tokens other than softmax attention, as recurrences: one token after the other, from the formulas of the
papers.

LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), gates in the order i, f, g, o:
    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh
    c_t = s(f) c_(t-1) + s(i) tanh(g);  h_t = s(o) tanh(c_t);  s(x) = 1 / (1 + exp(-x))

Linear Transformer (Katharopoulos et al. 2020), for each head, f(x) = x + 1 for x > 0, else exp(x):
    S_t = S_(t-1) + f(k_t) v_t';  z_t = z_(t-1) + f(k_t);  out_t = S_t' f(q_t) / (z_t f(q_t)')

RetNet (Sun et al. 2023), for head h = 0, 1, ... with keys of n numbers:
    g = 1 - 2^(-5-h); pairs (2i, 2i+1) of q_t and k_t rotated by t 10000^(-i / (n/2 - 1)), i = 0 ... n/2 - 1
    S_t = g S_(t-1) + k_t v_t' / sqrt(n);  out_t = S_t' q_t
    W_out (silu(W_g x) * weight * (out - mean) / sqrt(variance + 1e-5) + bias), mean and variance of each head

RWKV-4 (Peng et al. 2023), for each channel, w = exp(time_decay), u = time_first:
    r, k, v: matrices times m x_t + (1 - m) x_(t-1), with another vector m for each
    wkv_t = (sum over i < t of e^(-(t-1-i) w + k_i) v_i, + e^(u + k_t) v_t) / (the same without v);  W_out s(r) wkv

Hyena (Poli et al. 2023) of order 2, with the training length L = 100:
    v, x1, x2: W_in x and b_in, convolved over 3 tokens, the last weight is that of the token
    z = v; for n = 1, 2: z_t = xn_t (sum over s <= t of hn(t-s) z_s + Dn z_t);  W_out z + b_out
    hn(t)_c = (exp(-a_c t / (L-1)) + 0.05) FFN_n,c, a_c = ln(100) / 1.5 ... ln(100) / 0.3 in equal steps over channels
    FFN of t / (L-1), cos(2 pi f t / L), -sin(2 pi f t / L) for 16 numbers f = 0.0001 ... 15 in equal steps;
    three layers sin(frequency (W y + b)), and a last matrix, whose rows are those of h1, then those of h2

Each document begins with an empty state. Plain Python, float64. The expected values are what the mixer returns for its
input x, without norm, residual connection and MLP. The papers print no digits of an output, so nothing here is printed.
"""

import math

from shared import dot, numbers, table, write


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def times(matrix, vector, bias=None):
    return [dot(row, vector) + (bias[n] if bias else 0.0) for n, row in enumerate(matrix)]


def of_each_document(mix):
    """Return the function of whole inputs that starts `mix` again at every document."""

    def mixed(p, x, documents, **settings):
        out, start = [], 0
        for t in range(1, len(x) + 1):
            if t == len(x) or documents[t] != documents[start]:
                out += mix(p, x[start:t], **settings)
                start = t
        return out

    return mixed


# ---- LSTM -------------------------------------------------------------------------------------------------------


@of_each_document
def lstm(p, x):
    d, out = len(x[0]), []
    h, c = [0.0] * d, [0.0] * d
    for row in x:
        of_x = times(p["lstm.weight_ih_l0"], row, p["lstm.bias_ih_l0"])
        of_h = times(p["lstm.weight_hh_l0"], h, p["lstm.bias_hh_l0"])
        gates = [a + b for a, b in zip(of_x, of_h)]
        i, f, g, o = (gates[n * d : n * d + d] for n in range(4))
        c = [sigmoid(f[n]) * c[n] + sigmoid(i[n]) * math.tanh(g[n]) for n in range(d)]
        h = [sigmoid(o[n]) * math.tanh(c[n]) for n in range(d)]
        out.append(h)
    return out


def lstm_parameters(d, seed, size):
    return {
        "lstm.weight_ih_l0": table(4 * d, d, seed, size),
        "lstm.weight_hh_l0": table(4 * d, d, seed + 1, size),
        "lstm.bias_ih_l0": numbers(4 * d, seed + 2, size),
        "lstm.bias_hh_l0": numbers(4 * d, seed + 3, size),
    }


# ---- Linear Transformer and RetNet ------------------------------------------------------------------------------


def heads_of(row, heads):
    size = len(row) // heads
    return [row[h * size : h * size + size] for h in range(heads)]


@of_each_document
def linear_transformer(p, x, heads):
    def feature(row):
        return [v + 1 if v > 0 else math.exp(v) for v in row]

    d = len(x[0])
    n = d // heads
    S = [[[0.0] * n for _ in range(n)] for _ in range(heads)]
    z = [[0.0] * n for _ in range(heads)]
    out = []
    for row in x:
        qkv = times(p["qkv.weight"], row, p["qkv.bias"])
        q, k, v = (heads_of(qkv[i * d : i * d + d], heads) for i in range(3))
        y = []
        for h in range(heads):
            fq, fk = feature(q[h]), feature(k[h])
            for i in range(n):
                z[h][i] += fk[i]
                for j in range(n):
                    S[h][i][j] += fk[i] * v[h][j]
            y += [math.fsum(S[h][i][j] * fq[i] for i in range(n)) / dot(z[h], fq) for j in range(n)]
        out.append(times(p["out.weight"], y, p["out.bias"]))
    return out


def linear_transformer_parameters(d, seed, size):
    return {
        "qkv.weight": table(3 * d, d, seed, size),
        "qkv.bias": numbers(3 * d, seed + 1, size),
        "out.weight": table(d, d, seed + 2),
        "out.bias": numbers(d, seed + 3),
    }


@of_each_document
def retnet(p, x, heads):
    d = len(x[0])
    n = d // heads

    def rotated(row, t):
        result = []
        for i in range(n // 2):
            angle = t * 10000 ** (-i / (n // 2 - 1) if i else 0.0)
            a, b = row[2 * i], row[2 * i + 1]
            result += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
        return result

    S = [[[0.0] * (2 * n) for _ in range(n)] for _ in range(heads)]
    out = []
    for t, row in enumerate(x):
        made = times(p["qkvg.weight"], row)
        q, k, v = (heads_of(part, heads) for part in (made[:d], made[d : 2 * d], made[2 * d : 4 * d]))
        y = []
        for h in range(heads):
            decay, a, b = 1 - 2.0 ** (-5 - h), rotated(q[h], t), rotated(k[h], t)
            S[h] = [[decay * S[h][i][j] + b[i] * v[h][j] / math.sqrt(n) for j in range(2 * n)] for i in range(n)]
            o = [math.fsum(S[h][i][j] * a[i] for i in range(n)) for j in range(2 * n)]
            mean = math.fsum(o) / len(o)
            variance = math.fsum((v - mean) ** 2 for v in o) / len(o)
            y += [(v - mean) / math.sqrt(variance + 1e-5) for v in o]
        y = [v * w + b for v, w, b in zip(y, p["group_norm.weight"], p["group_norm.bias"])]
        gated = [v * g * sigmoid(g) for v, g in zip(y, made[4 * d :])]
        out.append(times(p["out.weight"], gated))
    return out


def retnet_parameters(d, seed, size):
    return {
        "qkvg.weight": table(6 * d, d, seed, size),
        "group_norm.weight": numbers(2 * d, seed + 1),
        "group_norm.bias": numbers(2 * d, seed + 2),
        "out.weight": table(d, 2 * d, seed + 3),
    }


# ---- RWKV-4 -----------------------------------------------------------------------------------------------------


@of_each_document
def rwkv4(p, x):
    d, out, keys, values = len(x[0]), [], [], []
    for t, row in enumerate(x):
        before = x[t - 1] if t else [0.0] * d

        def shift(mix, row=row, before=before):
            return [m * a + (1 - m) * b for m, a, b in zip(mix, row, before)]

        r = times(p["receptance.weight"], shift(p["mix_r"]))
        keys.append(times(p["key.weight"], shift(p["mix_k"])))
        values.append(times(p["value.weight"], shift(p["mix_v"])))
        y = []
        for c in range(d):
            w, u = math.exp(p["time_decay"][c]), p["time_first"][c]
            exponents = [(u if i == t else -(t - 1 - i) * w) + keys[i][c] for i in range(t + 1)]
            largest = max(exponents)
            weights = [math.exp(e - largest) for e in exponents]
            y.append(sigmoid(r[c]) * dot(weights, [v[c] for v in values]) / math.fsum(weights))
        out.append(times(p["out.weight"], y))
    return out


def rwkv4_parameters(d, seed, size):
    return {
        "receptance.weight": table(d, d, seed, size),
        "key.weight": table(d, d, seed + 1, 5 * size),
        "value.weight": table(d, d, seed + 2, size),
        "out.weight": table(d, d, seed + 3),
        "mix_r": numbers(d, seed + 4),
        "mix_k": numbers(d, seed + 5),
        "mix_v": numbers(d, seed + 6),
        "time_decay": numbers(d, seed + 7, 4.0),
        "time_first": numbers(d, seed + 8, 2.0),
    }


# ---- Hyena ------------------------------------------------------------------------------------------------------

BANDS, WIDTH, TRAINED = 16, 64, 100


def hyena_filter(p, t, channels):
    """h1(t), h2(t), each a number for every channel."""
    f = [1e-4 + (15 - 1e-4) * n / (BANDS - 1) for n in range(BANDS)]
    angles = [2 * math.pi * value * t / TRAINED for value in f]
    y = [t / (TRAINED - 1), *(math.cos(a) for a in angles), *(-math.sin(a) for a in angles)]
    for n in range(3):
        y = times(p[f"filters.layers.{n}.weight"], y, p[f"filters.layers.{n}.bias"])
        y = [math.sin(w * value) for w, value in zip(p["filters.frequencies"][n], y)]
    y = times(p["filters.last.weight"], y)
    rates = [math.log(100) * (1 / 1.5 + (1 / 0.3 - 1 / 1.5) * c / (channels - 1)) for c in range(channels)]
    window = [math.exp(-rate * t / (TRAINED - 1)) + 0.05 for rate in rates]
    return [[window[c] * y[n * channels + c] for c in range(channels)] for n in range(2)]


@of_each_document
def hyena(p, x):
    d, kernel = len(x[0]), p["short.weight"]
    projected = [times(p["in_proj.weight"], row, p["in_proj.bias"]) for row in x]
    short = [
        [
            p["short.bias"][c]
            + math.fsum(kernel[c][0][2 - lag] * projected[t - lag][c] for lag in range(min(3, t + 1)))
            for c in range(3 * d)
        ]
        for t in range(len(x))
    ]
    filters = [hyena_filter(p, t, d) for t in range(len(x))]
    z = [row[:d] for row in short]
    for n in range(2):
        z = [
            [
                short[t][d + n * d + c]
                * (math.fsum(filters[t - s][n][c] * z[s][c] for s in range(t + 1)) + p["D"][n][c] * z[t][c])
                for c in range(d)
            ]
            for t in range(len(x))
        ]
    return [times(p["out.weight"], row, p["out.bias"]) for row in z]


def short(matrix):
    """Few digits, so that the file stays small."""
    return [[round(v, 2) for v in row] for row in matrix]


def hyena_parameters(d, seed, size):
    widths = [2 * BANDS + 1, WIDTH, WIDTH, WIDTH]
    parameters = {
        "in_proj.weight": table(3 * d, d, seed, size),
        "in_proj.bias": numbers(3 * d, seed + 1),
        "short.weight": [[row] for row in table(3 * d, 3, seed + 2)],
        "short.bias": numbers(3 * d, seed + 3),
        "D": table(2, d, seed + 4),
        "out.weight": table(d, d, seed + 5),
        "out.bias": numbers(d, seed + 6),
        "filters.frequencies": table(3, WIDTH, seed + 7, 3.0),
        "filters.last.weight": short(table(2 * d, WIDTH, seed + 8, 0.2)),
    }
    for n in range(3):
        parameters[f"filters.layers.{n}.weight"] = short(table(WIDTH, widths[n], seed + 10 + n, 0.3))
        parameters[f"filters.layers.{n}.bias"] = numbers(WIDTH, seed + 20 + n)
    return parameters


# ---- cases ------------------------------------------------------------------------------------------------------


def cases(mixer, mix, parameters, width, settings, known=None, names=None):
    """Return the cases of a mixer (those in `names`): several lengths, large weights, documents and padding."""
    variants = [
        ("one token", 1, 1.0, None),
        ("a few tokens", 7, 1.0, None),
        ("large weights", 9, 2.5, None),
        ("long", 150, 1.0, None),
        ("documents", 12, 1.0, [4, 4, 4, 4, 4, 1, 2, 2, 7, 7, 7, 7]),
        ("padding", 9, 1.0, [-1, -1, -1, 0, 0, 0, 0, 0, 0]),
    ]
    made = []
    for n, (name, tokens, size, documents) in enumerate(variants):
        if names and name not in names:
            continue
        p, x = parameters(width, 100 * n + 10, size), table(tokens, width, 100 * n + 99, 2.0)
        case = {
            "name": f"{mixer}: {name}",
            "what": mixer,
            "from": "formula",
            "atol": 1e-11,
            "rtol": 1e-11,
            "settings": {"d_model": width, **settings},
            "parameters": p,
            "x": x,
        }
        if documents:
            case["documents"] = documents
        case["expected"] = mix(p, x, documents or [0] * tokens, **(known or {}))
        made.append(case)
    return made


all_cases = [
    *cases("lstm", lstm, lstm_parameters, 3, {}),
    *cases("linear_transformer", linear_transformer, linear_transformer_parameters, 6, {"num_heads": 2}, {"heads": 2}),
    *cases("rwkv4", rwkv4, rwkv4_parameters, 4, {}),
    *cases("hyena", hyena, hyena_parameters, 2, {}, names=("long", "documents")),
    *cases("retnet", retnet, retnet_parameters, 8, {"num_heads": 2}, {"heads": 2}),
]
write("mixers", __doc__, all_cases)
