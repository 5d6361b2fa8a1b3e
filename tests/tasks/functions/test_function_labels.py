"""Labels of given functions at given inputs: by hand, by an independent script, and in the docstrings."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lengthwise import tasks
from lengthwise.tasks import TASKS
from lengthwise.tasks.functions import BooleanFunction, FunctionTask

SCRIPT = Path(__file__).parents[2] / "vectors" / "functions" / "labels.py"
CLASSES = [make for make in TASKS if issubclass(make, FunctionTask)]
X = "01100"  # (-1, +1, +1, -1, -1)


def spins(bits):
    return [1.0 if bit == "1" else -1.0 for bit in bits]


def weights(literals, dims):
    w = torch.zeros(dims)
    for literal in literals:
        w[abs(literal) - 1] = 1 if literal > 0 else -1
    return w


def functions(make, described, dims):
    """One function from its description, as its class keeps it."""
    if "clauses" in described:
        return (torch.stack([weights(clause, dims) for clause in described["clauses"]])[None],)
    if "asked" in described:
        return torch.tensor([described["asked"]]) - 1, torch.tensor([described["leaves"]])
    if "a" in described:
        return torch.tensor([described["w"]]), torch.tensor([described["a"]])
    w = weights(described["literals"], dims) if "literals" in described else torch.tensor(described["w"]).float()
    if make in (tasks.Conjunction, tasks.Disjunction, tasks.SparseDisjunction):
        return (w[None, None],)
    return (w[None], torch.tensor([described["b"]])) if "b" in described else (w[None],)


def labels(make, described, xs):
    """What the class says of these inputs: bits for a Boolean function."""
    boolean = issubclass(make, BooleanFunction)
    given = torch.tensor([[spins(x) if boolean else x for x in xs]])
    size = {"depth": len(described["leaves"]).bit_length() - 1} if "leaves" in described else {}
    task = make(dims=given.shape[2], **size)
    ys = task.apply(functions(make, described, given.shape[2]), given)
    assert ys.shape == given.shape[:2]
    if boolean:
        assert set(ys.unique().tolist()) <= {-1.0, 1.0}
        return [int(task.label_text(y)) for y in ys[0].tolist()]
    return ys[0].tolist()


@pytest.mark.parametrize(
    ("name", "described", "label"),
    [
        ("Conjunction", {"literals": [2, 3, -4]}, 1),
        ("Conjunction", {"literals": [2, 3, 4]}, 0),
        ("Conjunction", {"literals": []}, 1),
        ("Disjunction", {"literals": [1, -2, 4]}, 0),
        ("Disjunction", {"literals": [1, 2, 4]}, 1),
        ("Disjunction", {"literals": []}, 0),
        ("SparseDisjunction", {"literals": [4, 5]}, 0),
        ("SparseMajority", {"literals": [1, 2, 4]}, 0),
        ("SparseMajority", {"literals": [2, 3, 4, 5]}, 0),  # a tie
        ("SparseMajority", {"literals": [2, 3, 4]}, 1),
        ("SparseMajority", {"literals": []}, 0),
        ("IntegerHalfspace", {"w": [3, -2, 1, 0, -1]}, 0),
        *(("Threshold", {"literals": [1, -3, 5], "b": b}, 0) for b in (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)),
        ("Threshold", {"literals": [], "b": -0.5}, 1),
        ("ParityFunction", {"literals": [1, 2, 3]}, 0),
        ("ParityFunction", {"literals": []}, 0),
        ("SparseParity", {"literals": [4, 5]}, 0),
        ("SparseParity", {"literals": [2, 5]}, 1),
        ("DNF", {"clauses": [[2, 3], [-1, 4], [5]]}, 1),
        ("CNF", {"clauses": [[2, 3], [-1, 4], [5]]}, 0),
    ],
)
def test_labels_by_hand(name, described, label):
    assert labels(TASKS.find(name), described, [X]) == [label]


def test_clauses_by_hand():
    """(x2 ∧ x3), (¬x1 ∧ x4), (x5) are true, false, false at 01100; (x2 ∨ x3), (¬x1 ∨ x4), (x5) true, true, false."""
    clauses = [[2, 3], [-1, 4], [5]]
    assert [labels(tasks.Conjunction, {"literals": c}, [X])[0] for c in clauses] == [1, 0, 0]
    assert [labels(tasks.Disjunction, {"literals": c}, [X])[0] for c in clauses] == [1, 1, 0]


def test_linear_labels_by_hand():
    xs = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]]
    assert labels(tasks.LinearRegression, {"w": [1.5, -2.0]}, xs) == [1.5, -2.0, -0.5, 5.0]


def ran():
    """The script has the standard library and nothing else."""
    done = subprocess.run([sys.executable, "-I", "-S", str(SCRIPT)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_reference_is_what_its_script_says_and_knows_nothing_of_the_package():
    assert ran() == json.loads(SCRIPT.with_suffix(".json").read_text(encoding="utf-8"))
    imported = re.findall(r"^\s*(?:from|import) (\S+)", SCRIPT.read_text(encoding="utf-8"), flags=re.M)
    assert set(imported) == {"json", "math"}


@pytest.mark.parametrize(
    "make", [m for m in CLASSES if m is not tasks.SparseLinearRegression], ids=lambda make: make.__name__
)
def test_labels_of_the_reference(make):
    """Sparse linear regression is linear regression, but for which functions it draws."""
    cases = [
        c
        for c in json.loads(SCRIPT.with_suffix(".json").read_text(encoding="utf-8"))["cases"]
        if c["class"] == make.__name__
    ]
    assert len(cases) == 8
    for case in cases:
        got = labels(make, case["function"], case["xs"])
        if issubclass(make, BooleanFunction):
            assert got == case["labels"], case["function"]
        else:
            assert got == pytest.approx(case["labels"], rel=1e-5, abs=1e-5), case["function"]


SHOWN = {
    "LinearRegression": {"w": [1.5, -2.0]},
    "SparseLinearRegression": {"w": [0.0, -2.0, 0.0]},
    "QuadraticRegression": {"w": [1.0, -2.0]},
    "DecisionTree": {"asked": [1, 2, 2], "leaves": [1.0, 2.0, 3.0, 4.0]},
    "ReLUNetwork": {"w": [[1.0, 0.0], [1.0, -1.0]], "a": [1.0, 2.0]},
    "Conjunction": {"literals": [2, 3, -4]},
    "Disjunction": {"literals": [1, -2, 4]},
    "SparseDisjunction": {"literals": [4, 5]},
    "DNF": {"clauses": [[2, 3], [-1, 4], [5]]},
    "CNF": {"clauses": [[2, 3], [-1, 4], [5]]},
    "SparseMajority": {"literals": [1, 2, 4]},
    "Threshold": {"literals": [1, -3, 5], "b": 0.5},
    "IntegerHalfspace": {"w": [3, -2, 1, 0, -1]},
    "ParityFunction": {"literals": [1, 2, 3]},
    "SparseParity": {"literals": [2, 5]},
}


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
def test_the_prompt_in_a_docstring_is_true(make):
    (line,) = [line.strip() for line in make.__doc__.splitlines() if " -> ?" in line]
    text, target = line.split(" -> ?        target  ")
    pairs = [part.split(" -> ") for part in f"{text} -> {target}".split("; ")]
    boolean = issubclass(make, BooleanFunction)
    xs = [x.replace(" ", "") if boolean else [float(n) for n in x.strip("()").split(", ")] for x, _ in pairs]
    assert len(xs) == 3
    got = labels(make, SHOWN[make.__name__], xs)
    assert [str(y) if boolean else f"{y:.2f}" for y in got] == [y for _, y in pairs]


def boolean_batch(task, zs, ys):
    xs = torch.ones(1, len(ys), task.dims)
    batch = task.pack(xs, torch.tensor([ys]))
    logits = torch.zeros(1, 2 * len(ys), 1)
    logits[0, 0::2, 0] = torch.tensor(zs)
    logits[0, 1::2, 0] = 1e9  # nobody reads what stands at a label
    return batch, logits


def test_binary_cross_entropy_by_hand():
    task = tasks.Conjunction(dims=3)
    for y, nats in ((1.0, 0.554355244), (-1.0, 0.854355244)):
        batch, logits = boolean_batch(task, [0.3], [y])
        assert float(task.loss(logits, batch)) == pytest.approx(nats, rel=1e-6)
    batch, logits = boolean_batch(task, [0.3, 0.3], [1.0, -1.0])
    assert float(task.loss(logits, batch)) == pytest.approx((0.554355244 + 0.854355244) / 2, rel=1e-6)


def test_accuracy_by_hand():
    task = tasks.SparseParity(dims=3)
    batch, logits = boolean_batch(task, [0.1, -7.0, 0.0, 0.0, 2.0, torch.nan], [1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    got = task.curve(logits, batch)
    assert got.dtype == torch.float64
    assert got[0, :5].tolist() == [1, 0, 0, 0, 0]
    assert got[0, 5].isnan()  # such a model says nothing, right or wrong


def test_bits_are_what_people_read():
    task = tasks.SparseParity(dims=5)
    (row,) = task.render(task.pack(torch.tensor([[spins("11001"), spins(X)]]), torch.tensor([[-1.0, 1.0]])))
    assert row == {"input": "1 1 0 0 1 -> 0; 0 1 1 0 0 -> ?", "target": "1", "length": 2}
