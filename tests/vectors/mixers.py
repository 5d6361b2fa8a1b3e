"""Mixers of tokens other than softmax attention, as recurrences: one token after the other, from the formulas of the papers.

LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), gates in the order i, f, g, o:
    i, f, g, o = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh
    c_t = s(f) c_(t-1) + s(i) tanh(g);  h_t = s(o) tanh(c_t);  s(x) = 1 / (1 + exp(-x))

Each document begins with an empty state. Plain Python, float64. The expected values are what the mixer returns for its input x, without
norm, residual connection and MLP. The papers print no digits of an output, so nothing here is printed.
"""

import json
import math


def numbers(count, seed, size=1.0):
    """Numbers in -size ... size from a small congruential generator, the same everywhere."""
    out = []
    for _ in range(count):
        seed = (1103515245 * seed + 12345) % 2**31
        out.append(round(size * (seed / 2**30 - 1), 6))
    return out


def table(rows, columns, seed, size=1.0):
    flat = numbers(rows * columns, seed, size)
    return [flat[r * columns : r * columns + columns] for r in range(rows)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def times(matrix, vector, bias=None):
    return [dot(row, vector) + (bias[n] if bias else 0.0) for n, row in enumerate(matrix)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


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


# ---- cases ------------------------------------------------------------------------------------------------------


def cases(mixer, mix, parameters, width, settings, known=None):
    """Return the cases of a mixer: several lengths, large weights, documents and padding."""
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


print(
    json.dumps(
        {
            "encoding": "mixers",
            "how": __doc__,
            "cases": [
                *cases("lstm", lstm, lstm_parameters, 3, {}),
            ],
        }
    )
)
