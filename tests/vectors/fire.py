"""FIRE: b = f(x)_h, x = psi(i - j) / (psi(max(L, i)) + eps), psi(d) = ln(|c| d + 1), L = |multiplier| L0, i from 0.

Ablations: without a threshold psi(i) for psi(max(L, i)), and 0/0 is 0 (eq. 22); psi(d) = d besides (eq. 21); one more
activation after the last layer.

f is an MLP of one number, evaluated here pair by pair, neuron by neuron. Plain Python, float64. `computed` values (5 or
6 digits): A (c 0.1, L 512), B (c 1, L 2, no eps), C (i 4, c 1: eq. 21, eq. 22, eq. 23 with L 8), D (B's rows through -3
relu(x) + 2 relu(0.5 - x) + 0.25). Where the coordinate itself is asked for, f is the identity (no hidden layer, weight
1, bias 0). Smooth activations: `approximation` is the bound on chords between 4,096 points, which all backends but the
reference may use: max|f''| / (8 · 4095^2), with f'' from second differences on [0, 1].
"""

import math

from shared import numbers, write

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def coordinate(i, j, c, L, eps):
    """`c` None: psi(d) = d. `L` None: no threshold."""

    def psi(d):
        return d if c is None else math.log(abs(c) * d + 1)

    below = psi(i if L is None else max(L, i)) + eps
    return psi(i - j) / below if below else 0.0


def mlp(x, layers, activation, final):
    values = [x]
    for n, (weight, bias) in enumerate(layers):
        if n:
            values = [ACTIVATIONS[activation](v) for v in values]
        values = [sum(w * v for w, v in zip(row, values)) + b for row, b in zip(weight, bias)]
    return [ACTIVATIONS[activation](v) for v in values] if final else values


def chord_error(layers, activation, final):
    """max|f''| / (8 · 4095^2) on [0, 1]; 2 % more, because second differences miss some of a narrow peak."""
    step = 1e-3
    f = [mlp(n * step, layers, activation, final) for n in range(1001)]
    second = [abs(a - 2 * b + c) / step**2 for x, y, z in zip(f, f[1:], f[2:]) for a, b, c in zip(x, y, z)]
    return 1.02 * max(second) / (8 * 4095**2)


def make_layers(sizes, seed):
    layers = []
    for n, (a, b) in enumerate(zip(sizes, sizes[1:])):
        flat = numbers(a * b + b, seed + n)
        layers.append(([flat[r * a : r * a + a] for r in range(b)], flat[a * b :]))
    return layers


def case(
    name,
    layers,
    query,
    key,
    *,
    c=0.1,
    L=512.0,
    eps=1e-6,
    multiplier=1.0,
    activation="relu",
    final=False,
    expected=None,
    atol=1e-12,
):
    """`c` None: the identity instead of the logarithm. `L` None: no threshold."""
    if expected is None:
        stepped_length = None if L is None else abs(multiplier) * L
        heads = [
            [mlp(coordinate(i, j, c, stepped_length, eps), layers, activation, final) if j <= i else None for j in key]
            for i in query
        ]
        expected = [
            [[None if pair is None else pair[h] for pair in row] for row in heads] for h in range(len(layers[-1][1]))
        ]
        made = "formula"
    else:
        made = "computed"
    settings = {
        "hidden_layers": len(layers) - 1,
        "width": len(layers[0][1]),
        "activation": activation,
        "eps": eps,
    }
    parameters = {}
    if c is None:
        settings["transform"] = "identity"
    else:
        parameters["c"] = c
    if L is None:
        settings["threshold"] = False
    else:
        settings["L"], parameters["L_multiplier"] = L, multiplier
    if final:
        settings["final_activation"] = True
    for n, (weight, bias) in enumerate(layers):
        parameters[f"layers.{n}.weight"], parameters[f"layers.{n}.bias"] = weight, bias
    smooth = {"approximation": chord_error(layers, activation, final)} if activation != "relu" else {}
    return {
        "name": name,
        "what": "bias",
        "from": made,
        "atol": atol,
        "rtol": 0.0,
        **smooth,
        "context": {"num_heads": len(layers[-1][1])},
        "settings": settings,
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
]
for name, c, L, row in [
    ("C: eq. 21", None, None, [1, 0.75, 0.5, 0.25, 0]),
    ("C: eq. 22", 1.0, None, [1, 0.861353, 0.682606, 0.430677, 0]),
    ("C: eq. 22 as a threshold below every query", 1.0, 0.5, [1, 0.861353, 0.682606, 0.430677, 0]),
    ("C: eq. 23, L 8", 1.0, 8.0, [0.732487, 0.63093, 0.5, 0.315465, 0]),
]:
    cases.append(case(name, IDENTITY, [4], list(range(5)), c=c, L=L, eps=0.0, expected=[[row]], atol=5e-7))
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
            cases.append(case(f"{name}, {activation}", layers, LONG, LONG, activation=activation))
    for c, L in ((None, None), (0.1, None), (None, 512.0)):
        for eps in (0.0, 1e-6):
            label = f"{name}, {'d' if c is None else 'ln'}, {'no threshold' if L is None else 'threshold'}, eps {eps:g}"
            cases.append(case(f"{label}, short", layers, SHORT, SHORT, c=c, L=L, eps=eps))
            cases.append(case(f"{label}, far", layers, LONG, LONG, c=c, L=L, eps=eps))
    for activation in ("relu", "gelu", "tanh"):
        cases.append(
            case(f"{name}, {activation} at the end too", layers, LONG, LONG, activation=activation, final=True)
        )
# Knots that coincide, a knot at 0, a neuron that is never on, a neuron without slope.
ODD = [([[2.0], [-2.0], [4.0], [1.0], [0.0]], [-1.0, 1.0, -2.0, -5.0, 0.7]), ([[1.0, 2.0, -3.0, 9.0, 0.5]], [0.125])]
cases.append(case("odd knots", ODD, SHORT, SHORT, L=8.0))
# Two heads that cross 0 within the pieces of f, one that stays above it and one that stays below.
CROSS = ([[1.0, 1.0], [-0.5, -0.5], [0.1, 0.1], [-0.1, -0.1]], [-0.75, 0.4, 0.5, -0.5])
ENDS = [([[1.0], [-1.0]], [0.0, 0.3]), CROSS]
cases.append(case("zeros at the end", ENDS, [400], list(range(0, 401, 4)), L=8.0, eps=0.0, final=True))
# Two knots close together, at x = 0.5 and 0.505, and every distance around them: x moves by 0.0001 from key to key.
NARROW = [([[2.0], [2.0]], [-1.0, -1.01]), ([[30.0, -50.0]], [0.0])]
cases.append(case("knots close together", NARROW, [100_000], [100_000 - d for d in range(940, 1080, 4)]))
write("FIRE", __doc__, cases)
