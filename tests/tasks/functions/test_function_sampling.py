"""Which functions and inputs are drawn: label balance, empty functions, the published mistake by name, curricula."""

import math
from math import comb

import pytest
import torch

from lengthwise.config import ConfigError, Curriculum, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.evaluation import shifted
from lengthwise.evaluation.untrained import baseline_scores
from lengthwise.tasks import (
    CNF,
    DNF,
    TASKS,
    Conjunction,
    DecisionTree,
    Disjunction,
    IntegerHalfspace,
    LinearRegression,
    ParityFunction,
    SparseDisjunction,
    SparseLinearRegression,
    SparseMajority,
    SparseParity,
    Threshold,
    generator,
)
from lengthwise.tasks.functions import BooleanFunction, FunctionTask
from lengthwise.training import check_training

CLASSES = [make for make in TASKS if issubclass(make, FunctionTask)]
PROMPTS, EXAMPLES = 20_000, 8


def clause(dims, chance, kept):
    """P that a conjunction of random literals is true at a uniform input; `kept`: whether empty ones are."""
    empty = (1 - chance) ** dims
    every = (1 - chance / 2) ** dims
    return every if kept else (every - empty) / (1 - empty)


def normal_form(dims, kept):
    return 1 - (1 - clause(dims, 0.2, kept)) ** 3


def majority(dims, kept):
    def above(k):
        return sum(comb(k, ones) for ones in range(k + 1) if 2 * ones > k) / 2**k

    share = sum(comb(dims, k) * 0.3**k * 0.7 ** (dims - k) * above(k) for k in range(dims + 1))
    return share if kept else share / (1 - 0.7**dims)


def halfspace(dims):
    """By symmetry half of what is not w·x = 0; each w_i x_i is uniform in -3 ... 3."""
    ways = {0: 1}
    for _ in range(dims):
        ways = {s: sum(ways.get(s - w, 0) for w in range(-3, 4)) for s in range(min(ways) - 3, max(ways) + 4)}
    return (1 - ways[0] / 7**dims) / 2


def sparse_mismatched(dims):
    """Of the literals, those that were set to -1 for the other function are false for certain."""
    shared = {k: comb(4, k) * comb(dims - 4, 4 - k) / comb(dims, 4) for k in range(5)}
    return 1 - 0.7 / 16 - 0.3 * sum(p / 2 ** (4 - k) for k, p in shared.items())


# P(y = +1): by class, settings, exactly at 16 and 20 dims; and as a public study of 2025 counted it, by simulation.
BALANCE = [
    (Conjunction, True, False, lambda d: 0.3 + 0.7 * clause(d, 0.3, True), (0.352, 0.327)),
    (Conjunction, False, False, lambda d: 0.3 + 0.7 * clause(d, 0.3, False), None),
    (Conjunction, True, True, lambda d: clause(d, 0.3, True), (0.079, 0.035)),
    (Conjunction, False, True, lambda d: clause(d, 0.3, False), None),
    (Disjunction, True, False, lambda d: 0.7 * (1 - clause(d, 0.3, True)), (0.648, 0.673)),
    (Disjunction, False, False, lambda d: 0.7 * (1 - clause(d, 0.3, False)), None),
    (Disjunction, True, True, lambda d: 1 - clause(d, 0.3, True), (0.913, 0.96)),
    (SparseDisjunction, None, False, lambda d: 0.7 * (1 - 1 / 16), (0.656, 0.656)),
    (SparseDisjunction, None, True, sparse_mismatched, None),
    (DNF, True, False, lambda d: 0.35 + 0.65 * normal_form(d, True), (0.653, 0.565)),
    (DNF, False, False, lambda d: 0.35 + 0.65 * normal_form(d, False), None),
    (DNF, True, True, lambda d: normal_form(d, True), (0.47, 0.30)),
    (CNF, True, False, lambda d: 0.7 * (1 - normal_form(d, True)), (0.376, 0.469)),
    (CNF, False, False, lambda d: 0.7 * (1 - normal_form(d, False)), None),
    (CNF, True, True, lambda d: 1 - normal_form(d, True), (0.53, 0.67)),
    (SparseMajority, True, None, lambda d: majority(d, True), (0.407, 0.417)),
    (SparseMajority, False, None, lambda d: majority(d, False), None),
    (Threshold, True, None, lambda d: 0.5, (0.5, 0.5)),
    (Threshold, False, None, lambda d: 0.5, None),
    (IntegerHalfspace, True, None, halfspace, (0.473, 0.480)),
    (ParityFunction, True, None, lambda d: 0.5, (0.5, 0.5)),
    (SparseParity, None, None, lambda d: 0.5, (0.5, 0.5)),
]


@pytest.mark.parametrize("dims", [16, 20])
@pytest.mark.parametrize(
    ("make", "kept", "mismatched", "exact", "counted"),
    BALANCE,
    ids=[f"{m.__name__}-{k}-{x}" for m, k, x, *_ in BALANCE],
)
def test_label_balance(make, kept, mismatched, exact, counted, dims):
    settings = {} if kept is None else {"resample_empty": not kept}
    settings |= {} if mismatched is None else {"mismatched_balance": mismatched}
    _, ys = make(dims=dims, **settings).draw(generator(dims, make.__name__), PROMPTS, EXAMPLES, dims)
    share = (ys > 0).double().mean(1)
    error = float(share.std()) / math.sqrt(PROMPTS)
    assert error < 0.0035
    assert abs(float(share.mean()) - exact(dims)) < 4 * error
    if counted is not None:
        # Figures with two or three digits, of a few thousand prompts: this far they are from the exact ones.
        assert abs(exact(dims) - counted[dims == 20]) < (0.023 if mismatched else 0.006)


@pytest.mark.parametrize(("dims", "one", "three"), [(16, 0.0033, 0.082), (20, 0.0008, 0.034)])
def test_how_many_published_functions_are_empty(dims, one, three):
    count = 100_000
    for make, chance, exact, counted in (
        (Conjunction, 0.3, 0.7**dims, one),
        (Disjunction, 0.3, 0.7**dims, one),
        (DNF, 0.2, 1 - (1 - 0.8**dims) ** 3, three),
        (CNF, 0.2, 1 - (1 - 0.8**dims) ** 3, three),
    ):
        (w,) = make(dims=dims, resample_empty=False).functions(generator(dims), count, dims)
        empty = float((~w.any(2)).any(1).double().mean())
        assert abs(empty - exact) < 4 * math.sqrt(exact / count)
        assert exact == pytest.approx(counted, abs=5e-4)
        assert float((w != 0).double().mean()) == pytest.approx(chance, abs=2e-3)
        assert float((w < 0).double().mean()) == pytest.approx(chance / 2, abs=2e-3)


@pytest.mark.parametrize("make", [m for m in CLASSES if "resample_empty" in dict(choose(m).settings)])
@pytest.mark.parametrize("dims", [1, 3, 16])
def test_no_function_is_empty_where_they_are_drawn_anew(make, dims):
    assert dict(choose(make).settings)["resample_empty"] is True
    assert choose(make, resample_empty=False).label == f"{make.__name__}(resample_empty=False)"  # a run's key has it
    w = make(dims=dims).functions(generator(1), 3000, dims)[0]
    assert w.any(-1).all()
    kept = make(dims=dims, resample_empty=False).functions(generator(1), 3000, dims)[0]
    assert kept.any(-1).all() == (dims == 16 and make in (IntegerHalfspace, ParityFunction))


def test_sizes_of_sparse_functions():
    for make, name, of in ((SparseDisjunction, "literals", 4), (SparseParity, "bits", 2)):
        for settings, size in (({}, of), ({name: 3}, 3)):
            (w,) = make(dims=7, **settings).functions(generator(0), 4000, 7)
            w = w.view(4000, 7)
            assert w.sum(1).tolist() == [size] * 4000
            assert set(w.unique().tolist()) == {0, 1}
            assert w.mean(0).tolist() == pytest.approx([size / 7] * 7, abs=0.035)


def test_weights_and_thresholds_are_as_published():
    (w,) = IntegerHalfspace(dims=5).functions(generator(0), 20_000, 5)
    counts = w.long().flatten().add(3).bincount()
    assert len(counts) == 7
    assert (counts / w.numel()).tolist() == pytest.approx([1 / 7] * 7, abs=0.006)
    (w,) = SparseMajority(dims=5, resample_empty=False).functions(generator(0), 20_000, 5)
    assert set(w.unique().tolist()) == {0, 1}
    assert w.mean().item() == pytest.approx(0.3, abs=0.005)
    w, b = Threshold(dims=5).functions(generator(0), 20_000, 5)
    values, counts = b.unique(return_counts=True)
    assert values.tolist() == [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    assert (counts / len(b)).tolist() == pytest.approx([1 / 6] * 6, abs=0.011)
    (w,) = ParityFunction(dims=5, resample_empty=False).functions(generator(0), 64_000, 5)
    subsets = (w @ torch.tensor([1.0, 2, 4, 8, 16])).long().bincount()
    assert len(subsets) == 32
    assert (subsets / 2000).tolist() == pytest.approx([1.0] * 32, abs=0.09)


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_prompt_has_a_function_of_its_own(make, split):
    """It is drawn for that prompt alone, and labels the prompt's inputs."""
    task = make()
    drawn = generator(3, split, 6)
    if split == "test":
        xs, ys = task.examples_of(task.examples(3, 200, 6))
    else:
        xs, ys = task.examples_of(task.training_batch(generator(3, split, 6), 200, 6, 6))
    if not isinstance(task, BooleanFunction):
        torch.randn(xs.shape, generator=drawn)  # real inputs come before the functions
    functions = task.functions(drawn, 200, task.dims)
    assert all(len(part) == 200 for part in functions)
    assert torch.equal(task.apply(functions, xs), ys)
    rows = torch.cat([part.reshape(200, -1).double() for part in functions], 1)
    different = len(rows.unique(dim=0))
    assert different > (70 if make is SparseParity else 170)  # of 120 pairs; of 1,820 sets of four
    moved = tuple(part.roll(1, 0) for part in functions)
    assert not torch.equal(task.apply(moved, xs), ys)
    for n in (0, 57):
        alone = tuple(part[n : n + 1] for part in functions)
        assert torch.allclose(task.apply(alone, xs[n : n + 1]), ys[n : n + 1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", CLASSES, ids=lambda make: make.__name__)
def test_test_prompts_are_not_those_of_training(make):
    task = make()
    test, train = task.examples(0, 50, 6), task.sample(generator(0, "train", 0), 50, 6, "train")
    assert not (test.inputs[:, None] == train.inputs[None]).flatten(2).all(2).any()


@pytest.mark.parametrize("make", [m for m in CLASSES if issubclass(m, BooleanFunction)], ids=lambda make: make.__name__)
def test_boolean_inputs_are_bits(make):
    xs, ys = make(dims=6).draw(generator(0), 4000, 10, 6)
    assert xs.dtype == ys.dtype == torch.float32
    assert xs.abs().eq(1).all() and ys.abs().eq(1).all()
    # Negated and plain literals are equally frequent, so that balancing leaves each coordinate even; sparse
    # disjunctions have none negated, and their literals are set to -1 in 30 % of the inputs.
    even = 0.5 - 0.5 * 0.3 * 4 / 6 if make is SparseDisjunction else 0.5
    assert (xs > 0).double().mean((0, 1)).tolist() == pytest.approx([even] * 6, abs=0.02)


@pytest.mark.parametrize(("make", "share", "label"), [
    (Conjunction, 0.3, 1), (Disjunction, 0.3, -1), (SparseDisjunction, 0.3, -1), (DNF, 0.35, 1), (CNF, 0.3, -1)
])  # fmt: skip
def test_balanced_inputs_satisfy_one_clause_of_the_prompt(make, share, label):
    """In each prompt, a share `share` of the inputs decides one clause, and chance decides the others."""
    task = make(dims=80)
    (w,) = task.functions(generator(5), 500, 80)
    xs, ys = task.draw(generator(5), 500, 300, 80)
    hit = (xs @ w.mT) == label * w.abs().sum(2)[:, None]  # [b, n, clauses]: all literals true, or all false
    chance = 0.5 ** w.abs().sum(2)
    got = hit.double().mean(1)
    small = (chance < 1e-3).all(1)
    assert small.sum() > 300 or make is SparseDisjunction
    if make is SparseDisjunction:
        assert got.mean().item() == pytest.approx(0.3 + 0.7 / 16, abs=0.005)
    else:
        most = got[small].amax(1)
        which = got[small].argmax(1).bincount(minlength=task.clauses) / small.sum()
        assert which.tolist() == pytest.approx([1 / task.clauses] * task.clauses, abs=0.09)
        assert most.mean().item() == pytest.approx(share, abs=0.01)
        assert (got[small].sum(1) - most).max() < 0.02 or task.clauses == 1
    assert (ys[hit.any(2)] == label).all()


def test_the_published_mistake_by_name():
    """The inputs are balanced for another function than the one that labels them."""
    for make in (Conjunction, Disjunction, SparseDisjunction, DNF, CNF):
        right, wrong = make(), make(mismatched_balance=True)
        functions = right.functions(generator(9), 2000, 16)
        xs, ys = right.draw(generator(9), 2000, 20, 16)
        other_xs, other_ys = wrong.draw(generator(9), 2000, 20, 16)
        assert torch.equal(xs, other_xs)
        assert torch.equal(right.apply(functions, xs), ys)
        agree = (right.apply(functions, xs) == other_ys).double().mean()
        assert 0.2 < agree < 0.9
        assert (ys == other_ys).all(1).double().mean() < 0.2
    shift = shifted(choose(Conjunction), {"mismatched_balance": True})
    assert shift.label == "Conjunction(mismatched_balance=True)"
    for task, constant in (
        (Conjunction(), 0.650),
        (shift.build(), 0.929),
    ):  # the baseline beside a model's score says it
        scores = baseline_scores(task, task.examples(0, 4000, 5), [5])
        assert scores["always −1"][5] == pytest.approx(constant, abs=0.025)
        assert scores["always −1"] == scores["best constant label"]
    always = (Conjunction(mismatched_balance=True).draw(generator(9), 20_000, 10, 16)[1] < 0).double().mean()
    assert always == pytest.approx(0.929, abs=0.003)  # "easy to memorise": who always says -1
    for make in (SparseMajority, Threshold, IntegerHalfspace, ParityFunction, SparseParity):
        with pytest.raises(ConfigError, match="has no setting 'mismatched_balance'"):
            choose(make, mismatched_balance=True)


def test_label_noise():
    clean = Conjunction().draw(generator(2), 3000, 20, 16)
    noisy = Conjunction(noise=0.2).draw(generator(2), 3000, 20, 16)
    assert torch.equal(clean[0], noisy[0])
    assert (clean[1] != noisy[1]).double().mean() == pytest.approx(0.2, abs=0.006)


def test_sparse_regression_has_its_weights_among_open_coordinates():
    task = SparseLinearRegression(dims=10)
    for open_dims, size in ((10, 3), (5, 3), (3, 3), (2, 2), (1, 1)):
        (w,) = task.functions(generator(0), 500, open_dims)
        assert (w != 0).sum(1).tolist() == [size] * 500
        assert not w[:, open_dims:].any()
        assert (w[:, :open_dims] != 0).any(0).all()
        _, ys = task.examples_of(task.training_batch(generator(0), 50, 4, 4, dims=open_dims))
        assert (ys != 0).all()  # of the public program most labels are 0 early in training
    assert (SparseLinearRegression(dims=10, nonzero=7).functions(generator(0), 9, 10)[0] != 0).sum(1).tolist() == [
        7
    ] * 9


@pytest.mark.parametrize(
    "make", [m for m in CLASSES if not issubclass(m, BooleanFunction)], ids=lambda make: make.__name__
)
def test_closed_coordinates_of_regressions_are_zero(make):
    task = make(dims=6)
    xs, ys = task.examples_of(task.training_batch(generator(0), 30, 9, 9, dims=4))
    assert (xs.abs().amax((0, 1)) > 0).tolist() == [True] * 4 + [False] * 2
    assert ys.shape == (30, 9) and ys.std() > 0.1


def test_trees_ask_for_open_coordinates():
    asked, _ = DecisionTree(dims=9).functions(generator(0), 400, 4)
    assert asked.unique().tolist() == [0, 1, 2, 3]


def test_dims_of_boolean_functions_are_always_open():
    run = Run(
        encoding=choose(NoPE),
        task=choose(CNF, dims=6),
        model=ModelConfig.llama(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=6, curriculum=Curriculum(dims=3)),
    )
    with pytest.raises(ConfigError, match="CNF has none that a curriculum could open"):
        check_training(run, run.task.build(), None)
    assert LinearRegression(dims=6).curriculum_dims == 6


BAD = [
    (LinearRegression, {"dims": 0}, "dims must be a whole number of at least 1, got 0"),
    (Conjunction, {"dims": -2}, "dims must be a whole number of at least 1, got -2"),
    (
        SparseLinearRegression,
        {"dims": 2},
        "nonzero must be at most dims=2, got 3; raise dims or lower nonzero",
    ),
    (SparseLinearRegression, {"nonzero": 0}, "nonzero must be a whole number of at least 1, got 0"),
    (SparseDisjunction, {"dims": 3}, "literals must be at most dims=3, got 4"),
    (SparseParity, {"dims": 1}, "bits must be at most dims=1, got 2"),
    (SparseParity, {"dims": 5, "bits": 6}, "bits must be at most dims=5, got 6"),
    (LinearRegression, {"noise": -0.5}, "noise, a standard deviation, must be between 0 and 1,000,000, got -0.5"),
    (
        CNF,
        {"noise": 0.6},
        "noise, the probability that a label is flipped, must be between 0 and 0.5, got 0.6",
    ),
    (SparseMajority, {"noise": -0.1}, "must be between 0 and 0.5, got -0.1"),
    (LinearRegression, {"inputs": "skewd"}, "did you mean 'skewed'"),
    (
        LinearRegression,
        {"dims": 1, "inputs": "half-subspace"},
        "dims must be at least 2 with inputs='half-subspace', got 1",
    ),
    (LinearRegression, {"input_scale": 0.0}, "input_scale must be between 1e-06 and 1,000,000"),
    (
        LinearRegression,
        {"input_scale": 1e9},
        "input_scale must be between 1e-06 and 1,000,000, so that squares fit into float32, got 1000000000.0",
    ),
    (
        LinearRegression,
        {"label_scale": 1e-9},
        "label_scale must be between 1e-06 and 1,000,000, so that squares fit into float32, got 1e-09",
    ),
    (LinearRegression, {"noise": 1e300}, "a standard deviation, must be between 0 and 1,000,000, got 1e"),
    (LinearRegression, {"dims": 10**20}, "dims must be at most 100,000, got 100000000000000000000"),
    (Conjunction, {"dims": 10**20}, "dims must be at most 100,000, got 100000000000000000000"),
    (DecisionTree, {"label_scale": -1.0}, "label_scale must be between 1e-06 and 1,000,000"),
    (DecisionTree, {"depth": 0}, "depth must be a whole number of at least 1, got 0"),
    (DecisionTree, {"depth": 40}, "depth must be at most 16, got 40"),
    (TASKS.find("ReLUNetwork"), {"width": 0}, "width must be a whole number of at least 1, got 0"),
    (TASKS.find("ReLUNetwork"), {"width": 10**7}, "must be at most 100,000"),
]


@pytest.mark.parametrize(("make", "settings", "says"), BAD)
def test_bad_settings(make, settings, says):
    for ask in (lambda: make(**settings), lambda: choose(make, **settings)):
        with pytest.raises(ConfigError, match=says) as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert make.__name__ in str(caught.value)


def test_boolean_classes_have_no_setting_of_inputs():
    for settings in ({"inputs": "skewed"}, {"input_scale": 2.0}, {"label_scale": 2.0}):
        with pytest.raises(ConfigError, match="has no setting"):
            choose(Conjunction, **settings)
    for made in ({"resample_empty": 1}, {"mismatched_balance": "yes"}):
        with pytest.raises(ConfigError, match="true or false"):
            Conjunction(**made)
