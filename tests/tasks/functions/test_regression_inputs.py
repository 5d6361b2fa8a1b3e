"""Regression: what inputs, scales and noise a test may have."""

import math
from typing import get_args

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import RoPE
from lengthwise.evaluation import evaluate, shifted
from lengthwise.tasks import DecisionTree, LinearRegression, QuadraticRegression, ReLUNetwork, generator
from lengthwise.tasks.functions.regression import LAST, Inputs, mix_covariance
from lengthwise.training import build


def inputs(kind, *, dims=6, count=4000, length=5, **settings):
    return LinearRegression(dims=dims, inputs=kind, **settings).draw(generator(4), count, length, dims)[0]


@pytest.mark.parametrize("dims", [2, 5, 16])
@pytest.mark.parametrize("kind", ["half-subspace", "skewed"])
def test_eigenvalues(kind, dims):
    """The unit vectors show the matrix itself."""
    matrix = mix_covariance(generator(0), torch.eye(dims).expand(7, dims, dims), kind).double()
    assert torch.allclose(matrix, matrix.mT, atol=1e-6)
    if kind == "half-subspace":
        want = [0.0] * (dims - dims // 2) + [math.sqrt(dims / (dims // 2))] * (dims // 2)
    else:
        total = sum(1 / i**2 for i in range(1, dims + 1))
        want = [math.sqrt(dims / total) / i for i in range(dims, 0, -1)]
    for found in torch.linalg.eigvalsh(matrix):
        assert found.tolist() == pytest.approx(want, abs=1e-5)
        assert float(found.square().sum()) == pytest.approx(dims, rel=1e-5)
    assert not torch.allclose(matrix[0], matrix[1], atol=0.1)  # a basis for each prompt


@pytest.mark.parametrize("kind", get_args(Inputs))
def test_inputs_are_as_long_as_normal_ones(kind):
    xs = inputs(kind)
    assert xs.shape == (4000, 5, 6) and xs.dtype == torch.float32
    assert xs.square().sum(2).mean(0).tolist() == pytest.approx([6.0] * 5, rel=0.06)


def test_half_of_the_space():
    assert torch.linalg.matrix_rank(inputs("half-subspace", count=20, dims=7, length=9), atol=1e-4).tolist() == [3] * 20
    assert torch.linalg.matrix_rank(inputs("skewed", count=20, dims=7, length=9), atol=1e-4).tolist() == [7] * 20


def test_one_orthant_and_then_anywhere():
    xs, plain = inputs("quadrants"), inputs("normal")
    before = xs[:, :-1].sign()
    assert (before == before[:, :1]).all()
    assert before[:, 0].mean(0).tolist() == pytest.approx([0.0] * 6, abs=0.07)
    assert torch.equal(xs.abs(), plain.abs())
    assert torch.equal(xs[:, -1], plain[:, -1])


def test_at_right_angles_to_all_before():
    for length in (2, 5, 6):
        xs, plain = inputs("orthogonal", length=length), inputs("normal", length=length)
        assert torch.equal(xs[:, :-1], plain[:, :-1])
        assert (xs[:, :-1] @ xs[:, -1, :, None]).abs().max() < 1e-4
        assert torch.allclose(xs[:, -1].norm(dim=1), plain[:, -1].norm(dim=1), rtol=1e-5)
    assert torch.equal(inputs("orthogonal", length=1), inputs("normal", length=1))


def test_one_of_those_before():
    xs = inputs("overlapping")
    same = (xs[:, :-1] == xs[:, -1:]).all(2)
    assert (same.sum(1) == 1).all()
    assert same.double().mean(0).tolist() == pytest.approx([0.25] * 4, abs=0.03)
    assert torch.equal(inputs("overlapping", length=1), inputs("normal", length=1))


def test_closed_coordinates_stay_closed():
    for kind in get_args(Inputs):
        xs, _ = LinearRegression(dims=6, inputs=kind).draw(generator(0), 20, 3, 4)
        assert (xs.abs().amax((0, 1)) > 0).tolist() == [True] * 4 + [False] * 2


def test_more_inputs_at_right_angles_than_there_are():
    task = LinearRegression(dims=4, inputs="orthogonal")
    task.check_length(4)
    for ask in (lambda: task.check_length(5), lambda: task.examples(0, 2, 5), lambda: task.draw(generator(0), 2, 4, 3)):
        with pytest.raises(ConfigError, match=r"must be at most [34] for "):
            ask()


def test_scales_and_noise():
    xs, ys = LinearRegression(dims=5).draw(generator(1), 50, 8, 5)
    longer, more = LinearRegression(dims=5, input_scale=3.0).draw(generator(1), 50, 8, 5)
    assert torch.allclose(longer, 3 * xs) and torch.allclose(more, 3 * ys, atol=1e-5)
    same, more = LinearRegression(dims=5, label_scale=0.5).draw(generator(1), 50, 8, 5)
    assert torch.equal(same, xs) and torch.allclose(more, ys / 2)
    same, noisy = LinearRegression(dims=5, noise=0.5, label_scale=2.0).draw(generator(1), 3000, 8, 5)
    _, clean = LinearRegression(dims=5).draw(generator(1), 3000, 8, 5)
    difference = noisy - 2 * clean
    assert difference.std().item() == pytest.approx(0.5, rel=0.02)
    assert difference.mean().item() == pytest.approx(0, abs=0.015)
    scale = math.sqrt(5 / 6)  # the published test of noise
    _, ys = LinearRegression(dims=5, noise=scale, label_scale=scale).draw(generator(1), 20_000, 8, 5)
    assert ys.var().item() == pytest.approx(5, rel=0.03)


@pytest.mark.parametrize(("make", "variance"), [
    (LinearRegression, 8), (QuadraticRegression, 8), (ReLUNetwork, 8), (DecisionTree, 1)
])  # fmt: skip
def test_variance_of_labels(make, variance):
    _, ys = make(dims=8).draw(generator(1), 20_000, 4, 8)
    assert ys.square().mean().item() == pytest.approx(variance, rel=0.05)


def test_leaves_of_trees_are_reached_alike():
    task = DecisionTree(dims=7, depth=3)
    asked, leaves = torch.arange(7).expand(2000, 7), torch.arange(8.0).expand(2000, 8)
    xs = torch.randn(2000, 40, 7, generator=generator(1))
    counts = task.apply((asked, leaves), xs).long().flatten().bincount(minlength=8)
    assert (counts / counts.sum()).tolist() == pytest.approx([1 / 8] * 8, abs=0.01)


@pytest.mark.parametrize("kind", get_args(Inputs))
def test_prefixes_are_prompts_of_their_own_where_the_last_input_is_another(kind):
    trained = choose(LinearRegression, dims=4)
    run = Run(
        encoding=choose(RoPE),
        task=trained,
        model=ModelConfig.llama(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=4),
    )
    model, _ = build(run)
    shift = {} if kind == "normal" else {"inputs": kind}
    task = (shifted(trained, shift) if shift else trained).build()
    assert task.prefixes_are_examples() == (kind not in LAST)
    config = EvaluationConfig(lengths=(1, 2, 4), examples=30)
    scores = evaluate(model, task, config, shift=shift)
    for score in scores:
        batch = task.examples(0, 30, score.length if kind in LAST else 4)
        with torch.no_grad():
            worth = task.curve(model.eval()(batch.inputs), batch)[:, score.length - 1]
        assert score.mean == pytest.approx(float(worth.mean()), rel=1e-5)
        assert score.question.get("shift", {}) == shift
