"""Labels of random functions. Plain Python: literals by `not`, clauses by `all` and `any`, numbers in float64.

A literal is a coordinate counted from 1, negative where it is negated; x is a string of bits (Boolean) or a list of
numbers. Labels are 1 and 0 (Boolean) or numbers. Written by `python tests/vectors/functions/labels.py >
tests/vectors/functions/labels.json`.
"""

import json
import math

DIMS, FUNCTIONS, EXAMPLES = 9, 8, 12
_state = 20240607


def below(n):
    """A pseudo-random whole number below n: a linear congruential generator's high bits."""
    global _state
    _state = (_state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (_state >> 33) % n


def number():
    return round((below(2001) - 1000) / 400, 4)


def bits():
    return "".join(str(below(2)) for _ in range(DIMS))


def subset(size):
    left = list(range(1, DIMS + 1))
    return sorted(left.pop(below(len(left))) for _ in range(size))


def clause(size):
    return [place if below(2) else -place for place in subset(size)]


def true(literal, x):
    here = x[abs(literal) - 1] == "1"
    return not here if literal < 0 else here


def spin(bit):
    return 1 if bit == "1" else -1


def tree_leaf(function, x):
    """Which leaf: the answers from the root on, read as a binary number."""
    node, path = 0, ""
    while node < len(function["asked"]):
        yes = x[function["asked"][node] - 1] > 0
        path += "1" if yes else "0"
        node = 2 * node + (2 if yes else 1)
    return int(path, 2)


def relu(function, x):
    units = [sum(a * b for a, b in zip(row, x)) for row in function["w"]]
    return math.sqrt(2 / len(units)) * sum(a * unit for a, unit in zip(function["a"], units) if unit > 0)


BOOLEAN = {
    "Conjunction": (
        lambda: {"literals": clause(below(5))},
        lambda f, x: all(true(one, x) for one in f["literals"]),
    ),
    "Disjunction": (
        lambda: {"literals": clause(below(5))},
        lambda f, x: any(true(one, x) for one in f["literals"]),
    ),
    "SparseDisjunction": (
        lambda: {"literals": subset(4)},
        lambda f, x: any(true(one, x) for one in f["literals"]),
    ),
    "DNF": (
        lambda: {"clauses": [clause(below(4)) for _ in range(3)]},
        lambda f, x: any(all(true(one, x) for one in part) for part in f["clauses"]),
    ),
    "CNF": (
        lambda: {"clauses": [clause(below(4)) for _ in range(3)]},
        lambda f, x: all(any(true(one, x) for one in part) for part in f["clauses"]),
    ),
    "SparseMajority": (
        lambda: {"literals": subset(below(6))},
        lambda f, x: 2 * sum(true(one, x) for one in f["literals"]) > len(f["literals"]),
    ),
    "Threshold": (
        lambda: {"literals": clause(below(6)), "b": below(6) - 2.5},
        lambda f, x: sum(1 if true(one, x) else -1 for one in f["literals"]) > f["b"],
    ),
    "IntegerHalfspace": (
        lambda: {"w": [below(7) - 3 for _ in range(DIMS)]},
        lambda f, x: sum(w * spin(bit) for w, bit in zip(f["w"], x)) > 0,
    ),
    "ParityFunction": (
        lambda: {"literals": subset(below(DIMS + 1))},
        lambda f, x: len([one for one in f["literals"] if x[one - 1] == "1"]) in range(1, DIMS + 1, 2),
    ),
    "SparseParity": (
        lambda: {"literals": subset(2)},
        lambda f, x: x[f["literals"][0] - 1] != x[f["literals"][1] - 1],
    ),
}
REAL = {
    "LinearRegression": (
        lambda: {"w": [number() for _ in range(DIMS)]},
        lambda f, x: sum(a * b for a, b in zip(f["w"], x)),
    ),
    "QuadraticRegression": (
        lambda: {"w": [number() for _ in range(DIMS)]},
        lambda f, x: sum(a * b * b for a, b in zip(f["w"], x)) / math.sqrt(3),
    ),
    "DecisionTree": (
        lambda: {"asked": [1 + below(DIMS) for _ in range(15)], "leaves": [number() for _ in range(16)]},
        lambda f, x: f["leaves"][tree_leaf(f, x)],
    ),
    "ReLUNetwork": (
        lambda: {"w": [[number() for _ in range(DIMS)] for _ in range(6)], "a": [number() for _ in range(6)]},
        relu,
    ),
}


def cases(name, draw, label, draw_x):
    for _ in range(FUNCTIONS):
        function, xs = draw(), [draw_x() for _ in range(EXAMPLES)]
        labels = [label(function, x) for x in xs]
        yield {
            "class": name,
            "function": function,
            "xs": xs,
            "labels": [y if y.__class__ is float else int(y) for y in labels],
        }


made = [case for name, rule in BOOLEAN.items() for case in cases(name, *rule, bits)]
made += [case for name, rule in REAL.items() for case in cases(name, *rule, lambda: [number() for _ in range(DIMS)])]
print('{"how": ' + json.dumps(__doc__) + ', "cases": [\n' + ",\n".join(map(json.dumps, made)) + "\n]}")
