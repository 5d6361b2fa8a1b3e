"""FIRE: b = f(x)_h, x = psi(i - j) / (psi(max(L, i)) + eps), psi(d) = ln(|c| d + 1), L = |multiplier| L0, i from 0.

f is an MLP of one number, evaluated here pair by pair, neuron by neuron. Plain Python, float64. `printed` values typed
from the sources: A (c 0.1, L 512), B (c 1, L 2, no eps), C (c 1, L 8), D (B's rows through -3 relu(x) + 2 relu(0.5 - x)
+ 0.25). Where the coordinate itself is asked for, f is the identity (no hidden layer, weight 1, bias 0). Smooth
activations: the library draws straight lines between 4,096 points, so those cases allow 10^-7.
"""

import json
import math

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def coordinate(i, j, c, L, eps):
    return math.log(abs(c) * (i - j) + 1) / (math.log(abs(c) * max(L, i) + 1) + eps)


def mlp(x, layers, activation):
    values = [x]
    for n, (weight, bias) in enumerate(layers):
        if n:
            values = [ACTIVATIONS[activation](v) for v in values]
        values = [sum(w * v for w, v in zip(row, values)) + b for row, b in zip(weight, bias)]
    return values


def numbers(count, seed):
    """Numbers in -1 ... 1 from a small congruential generator, the same everywhere."""
    out = []
    for _ in range(count):
        seed = (1103515245 * seed + 12345) % 2**31
        out.append(round(seed / 2**30 - 1, 6))
    return out


def make_layers(sizes, seed):
    layers = []
    for n, (a, b) in enumerate(zip(sizes, sizes[1:])):
        flat = numbers(a * b + b, seed + n)
        layers.append(([flat[r * a : r * a + a] for r in range(b)], flat[a * b :]))
    return layers


def case(
    name, layers, query, key, *, c=0.1, L=512.0, eps=1e-6, multiplier=1.0, activation="relu", expected=None, atol=1e-12
):
    if expected is None:
        heads = [
            [mlp(coordinate(i, j, c, abs(multiplier) * L, eps), layers, activation) if j <= i else None for j in key]
            for i in query
        ]
        expected = [
            [[None if pair is None else pair[h] for pair in row] for row in heads] for h in range(len(layers[-1][1]))
        ]
        made = "formula"
    else:
        made = "printed"
    parameters = {"c": c, "L_multiplier": multiplier}
    for n, (weight, bias) in enumerate(layers):
        parameters[f"layers.{n}.weight"], parameters[f"layers.{n}.bias"] = weight, bias
    return {
        "name": name,
        "what": "bias",
        "from": made,
        "atol": atol,
        "rtol": 0.0,
        "context": {"num_heads": len(layers[-1][1])},
        "settings": {
            "hidden_layers": len(layers) - 1,
            "width": len(layers[0][1]),
            "activation": activation,
            "L": L,
            "eps": eps,
        },
        "parameters": parameters,
        "query": query,
        "key": key,
        "expected": expected,
    }


def rows(table):
    """Rows i = 1 ... of the lower triangle as one head of [i][j], null after the query."""
    return [[row + [None] * (len(table) + 1 - len(row)) for row in table]]


IDENTITY = [([[1.0]], [0.0])]
A = [0.102517, 0.085073, 0.066336, 0.046098, 0.024098, 0]
B = [
    [0.63093, 0],
    [1, 0.63093, 0],
    [1, 0.792481, 0.5, 0],
    [1, 0.861353, 0.682606, 0.430677, 0],
    [1, 0.898244, 0.773706, 0.613147, 0.386853, 0],
]
D = {1: [-1.642789, 1.25], 3: [-2.75, -2.127444, -1.25, 1.25], 4: [-2.75, -2.334059, -1.797819, -0.903383, 1.25]}
D_LAYERS = [([[1.0], [-1.0]], [0.0, 0.5]), ([[-3.0, 2.0]], [0.25])]
SHORT = [0, 1, 2, 5, 17, 40]
LONG = [0, 1, 30, 300, 511, 512, 513, 700, 4096, 100_000]
cases = [
    case("A: distances 5 ... 0", IDENTITY, [5], list(range(6)), expected=[[A]], atol=5e-7),
    case(
        "A: other rows, one value per distance",
        IDENTITY,
        [1, 3],
        [0, 1, 2, 3],
        expected=[[[A[4], 0, None, None], [A[2], A[3], A[4], 0]]],
        atol=5e-7,
    ),
    case("psi(512)", [([[3.955082494888593 + 1e-6]], [0.0])], [512], [0], expected=[[[3.955082494888593]]], atol=1e-12),
    case("B", IDENTITY, [1, 2, 3, 4, 5], list(range(6)), c=1.0, L=2.0, eps=0.0, expected=rows(B), atol=5e-7),
    case(
        "C: no threshold",
        IDENTITY,
        [4],
        list(range(5)),
        c=1.0,
        L=0.5,
        eps=0.0,
        expected=[[[1, 0.861353, 0.682606, 0.430677, 0]]],
        atol=5e-7,
    ),
    case(
        "C: L 8",
        IDENTITY,
        [4],
        list(range(5)),
        c=1.0,
        L=8.0,
        eps=0.0,
        expected=[[[0.732487, 0.63093, 0.5, 0.315465, 0]]],
        atol=5e-7,
    ),
]
for i, row in D.items():
    cases.append(
        case(f"D: row {i}", D_LAYERS, [i], list(range(i + 1)), c=1.0, L=2.0, eps=0.0, expected=[[row]], atol=2e-6)
    )
for hidden in (0, 1, 2, 3):
    layers = make_layers([1, *[5] * hidden, 3], 100 + hidden)
    name = f"{hidden} hidden layers"
    cases.append(case(f"{name}, short", layers, SHORT, SHORT))
    cases.append(case(f"{name}, past L", layers, LONG, LONG))
    cases.append(case(f"{name}, L 3 · 0.5, c -2", layers, SHORT, SHORT, c=-2.0, L=3.0, multiplier=-0.5))
    for activation in ("gelu", "silu", "tanh"):
        if hidden:
            cases.append(case(f"{name}, {activation}", layers, LONG, LONG, activation=activation, atol=1e-7))
# Knots that coincide, a knot at 0, a neuron that is never on, a neuron without slope.
ODD = [([[2.0], [-2.0], [4.0], [1.0], [0.0]], [-1.0, 1.0, -2.0, -5.0, 0.7]), ([[1.0, 2.0, -3.0, 9.0, 0.5]], [0.125])]
cases.append(case("odd knots", ODD, SHORT, SHORT, L=8.0))
# Two knots close together, at x = 0.5 and 0.505, and every distance around them: x moves by 0.0001 from key to key.
NARROW = [([[2.0], [2.0]], [-1.0, -1.01]), ([[30.0, -50.0]], [0.0])]
cases.append(case("knots close together", NARROW, [100_000], [100_000 - d for d in range(940, 1080, 4)]))
print(json.dumps({"encoding": "FIRE", "how": __doc__, "cases": cases}))
