"""Probes of functions learned in context: equal to matrices of weights and to scores of prompts one by one."""

import json
import math

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, ALiBi, CoPE, Learned, NoPE, RoPE
from lengthwise.measurements import PROBES, Table
from lengthwise.measurements import repeated_examples as scores
from lengthwise.measurements.in_context import InContextProbe
from lengthwise.measurements.inside import induction
from lengthwise.measurements.inside import trained as trained_run
from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.measurements.inside.trained import TrainedRun
from lengthwise.tasks import CNF, Conjunction, Copy, LinearRegression, ParityFunction, SparseMajority, generator
from lengthwise.training import build
from tests.measurements.asking import measured, options_of

MODEL = ModelConfig.llama(d_model=16, num_layers=2, num_heads=2)


def prompts_of(probe: str, options, dims: int):
    return PROBES[probe].prompts(options, dims)


def subject(encoding=NoPE, dims=2, train_length=6, **settings) -> TrainedRun:
    run = Run(
        encoding=choose(encoding, **settings),
        task=choose(LinearRegression, dims=dims),
        model=MODEL,
        training=TrainingConfig(train_length=train_length),
    )
    model, task = build(run)
    for parameter in model.parameters():  # weights that are far from even
        parameter.data += 0.4 * torch.randn(parameter.shape, generator=generator("noise", *parameter.shape))
    return TrainedRun(run, model.eval(), task)


def matrices(of: TrainedRun, inputs):
    """Every layer's whole matrix of weights."""
    found = []
    for call in attention_calls(of.model, inputs):
        ((_, _, logits),) = call.blocks(inputs.shape[1])
        found.append(logits.softmax(-1))
    return torch.stack(found)


@pytest.fixture(scope="module", params=[NoPE, RoPE, ALiBi, FIRE, CoPE])
def probed(request):
    return subject(request.param)


def test_recency_is_the_mean_over_prompts(probed, monkeypatch):
    monkeypatch.setattr(trained_run, "TOKENS", 50)
    asked = options_of("recency", 6, examples=5)
    assert (asked.length, asked.points, asked.repeats) == (24, 6, 4)
    told = []
    found = measured("recency", probed, asked, told.append)
    assert sum(told) == pytest.approx(1)
    with torch.no_grad():
        row = matrices(probed, probed.task.examples(0, 5, 24).inputs)[:, :, :, -2].mean(1)
        short = matrices(probed, probed.task.examples(0, 5, 6).inputs)[-1, :, :, -2].mean(0)
        xs, ys = probed.task.examples_of(probed.task.examples(0, 5, 6))
        again = matrices(probed, probed.task.pack(xs.repeat(1, 4, 1), ys.repeat(1, 4)).inputs)[-1, :, :, -2].mean(0)
    assert torch.tensor(found.grid("weight", "layer", "head", "place", on="labels")).double() == pytest.approx(
        row[..., 1:-1:2].double(), rel=1e-4, abs=1e-7
    )
    for name, expected in (("long", row[-1]), ("trained", short), ("repeated", again)):
        shares = torch.tensor(found.grid("weight", "head", "place", on="inputs", prompts=name)).double()
        assert shares == pytest.approx(expected[..., ::2].double(), rel=1e-4, abs=1e-7)
    json.dumps(found.to_data(), allow_nan=False)


def test_induction_counts_the_earlier_labels(probed):
    """As the published code adds it up, pair by pair."""
    asked = options_of("induction", 6, 8, points=3, repeats=3, examples=4)
    found = measured("induction", probed, asked)
    xs, ys = probed.task.examples_of(probed.task.examples(0, 4, 3))
    with torch.no_grad():
        weights = matrices(probed, probed.task.pack(xs.repeat(1, 3, 1), ys.repeat(1, 3)).inputs).mean(1)
    pairs, total = 0, torch.zeros(2, 2)
    for segment in range(1, 3):
        for before in range(segment):
            for n in range(0, 6, 2):
                total += weights[:, :, segment * 6 + n, before * 6 + n + 1]
                pairs += 1
    assert found.first("prefix_score") == pytest.approx(float(total.mean()) / pairs, rel=1e-4)
    assert torch.tensor(found.grid("induction", "layer", "head")) == pytest.approx(total / 6, rel=1e-4)
    even = [1 / 7, 1 / 9, 1 / 11, 2 / 13, 2 / 15, 2 / 17]
    assert found.first("uniform_induction") == pytest.approx(sum(even) / 6, rel=1e-5)


def test_nearest_counts_the_labels_of_similar_inputs(probed):
    asked = options_of("induction", 6, 8, points=3, examples=4, neighbours=2)
    found = measured("induction", probed, asked)
    assert found.first("start") == 5
    batch = probed.task.examples(0, 4, 8)
    xs, _ = probed.task.examples_of(batch)
    with torch.no_grad():
        weights = matrices(probed, batch.inputs)
    total = torch.zeros(2, 2)
    for row in range(4):
        for n in range(4, 8):
            near = torch.cosine_similarity(xs[row, n], xs[row, :n], dim=-1).topk(2).indices
            total += weights[:, row, :, 2 * n][..., 2 * near + 1].sum(-1)
    assert torch.tensor(found.grid("nearest", "layer", "head")) == pytest.approx(total / 16, rel=1e-4)
    assert found.combined("nearest", (), {})[()] == pytest.approx(float(total.mean()) / 16, rel=1e-4)
    assert found.first("uniform_nearest") == pytest.approx(sum(2 / (2 * n + 1) for n in range(4, 8)) / 4, rel=1e-5)


def test_of_equals_the_earliest_is_nearest():
    xs = torch.tensor(
        [[[1.0, 1, 1], [1, 1, -1], [1, -1, 1], [1, 1, 1]], [[-1.0, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]]
    )
    found = induction.nearest_labels(xs, 3, 1)
    assert [found[0, 2 * n].nonzero().flatten().tolist() for n in range(4)] == [[], [], [1], [1]]
    assert [found[1, 2 * n].nonzero().flatten().tolist() for n in range(4)] == [[], [], [3], [3]]
    assert not found[:, 1::2].any()


def test_earlier_labels_by_hand():
    found = induction.earlier_labels(8, 2)
    assert [(q, k) for q, k in found.nonzero().tolist()] == [(4, 1), (6, 3)]


@pytest.mark.medium
@pytest.mark.parametrize("probe", ["duplicates", "lost-in-the-middle"])
def test_scores_are_those_of_the_prompts(probed, probe, monkeypatch):
    asked = options_of(probe, 6, 15, examples=7, **({"positions": 4} if probe != "duplicates" else {}))
    whole = measured(probe, probed, asked)
    monkeypatch.setattr(scores, "TOKENS", 60)
    cut = measured(probe, probed, asked)
    xs, ys = probed.task.examples_of(probed.task.examples(0, 7, 6))
    made = prompts_of(probe, asked, 2)
    assert list(whole.groups("score", ("kind", "at"), {})) == [(one.kind, one.at) for one in made]
    for one in made:
        places = torch.tensor([n + 4 if one.kind == "serial" else n for n in one.examples])
        batch = probed.task.pack(xs[:, places], ys[:, places])
        with torch.no_grad():
            curve = probed.task.curve(probed.model(batch.inputs), batch)
        own = curve[:, one.start : one.stop].mean(1)
        where = {"kind": one.kind, "at": one.at, "example": None}
        score, groups = (whole.grid(name, **where) for name in ("score", "groups"))
        assert score == pytest.approx(float(own.mean()), rel=1e-4)
        assert cut.grid("score", **where) == pytest.approx(score, rel=1e-4)
        assert groups == pytest.approx(own.tolist(), rel=1e-4)
        if one.kind != "serial":
            means = whole.grid("score", "example", kind=one.kind, at=one.at)
            assert means == pytest.approx(curve.mean(0).tolist(), rel=1e-4)
    json.dumps(whole.to_data(), allow_nan=False)


def test_repeated_examples_keep_the_label_of_the_function():
    """Labels that are taken along are those the function gives: here it is found from others."""
    task = LinearRegression(dims=2)
    xs, ys = task.examples_of(task.examples(0, 5, 7))
    w = torch.linalg.solve(xs[:, :2].double(), ys[:, :2, None].double())
    for made in prompts_of("duplicates", options_of("duplicates", 7, 20), 2):
        places = torch.tensor(made.examples)
        assert (xs[:, places].double() @ w)[..., 0] == pytest.approx(ys[:, places].double(), abs=1e-4)


@pytest.mark.parametrize("make", [Conjunction, CNF, ParityFunction, SparseMajority])
def test_repeated_examples_keep_the_label_of_a_boolean_function(make):
    """What the class itself says of the repeated inputs, by the functions that it drew."""
    task = make(dims=4)
    xs, ys = task.examples_of(task.examples(3, 20, 12))
    functions = task.functions(generator(3, "test", 12), 20, 4)
    for made in prompts_of("duplicates", options_of("duplicates", 12, 30), 4):
        places = torch.tensor(made.examples)
        assert torch.equal(task.apply(functions, xs[:, places]), ys[:, places])


def test_what_is_not_finite_is_kept(probed):
    made = prompts_of("duplicates", options_of("duplicates", 6, 15), 2)[0]
    values = torch.full((4, len(made.examples)), math.inf).double()
    found = Table.from_rows(scores.prompt_rows(made, values))
    assert found.grid("score", example=None) == math.inf
    assert Table.from_data(json.loads(json.dumps(found.to_data(), allow_nan=False))).first("score") == math.inf


def test_published_defaults():
    assert options_of("recency", 50).to_data() == {
        "length": 200, "points": 50, "repeats": 4, "examples": 64, "seed": 0,
    }  # fmt: skip
    assert options_of("duplicates", 50).to_data() == {
        "length": 400, "points": 50, "noise": list(range(5, 21)), "examples": 100, "seed": 0,
    }  # fmt: skip
    assert options_of("lost-in-the-middle", 50).to_data() == {
        "length": 400, "points": 50, "positions": 21, "examples": 100, "seed": 0,
    }  # fmt: skip
    assert options_of("induction", 50).to_data() == {
        "length": 80, "points": 12, "repeats": 4, "neighbours": 1, "examples": 100, "seed": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("probe", "settings", "words"),
    [
        ("recency", {"examples": 0}, "examples must be a whole number of at least 1, got 0"),
        ("recency", {"length": 1}, "length must be a whole number of at least 2, got 1"),
        ("induction", {"repeats": 1}, "repeats must be a whole number of at least 2, got 1"),
        ("duplicates", {"noise": [0]}, "noise must be"),
        ("induction", {"length": 20, "neighbours": 11}, "neighbours must be at most 10"),
        (
            "duplicates",
            {"positions": 3},
            "Duplicates has no setting 'positions'; its settings are: length, examples, seed, points, noise",
        ),
    ],
)
def test_questions_that_cannot_be(probe, settings, words):
    with pytest.raises(ConfigError, match=words):
        options_of(probe, 50, **settings)


def test_runs_that_cannot_be_asked():
    def require(run, probe, **settings) -> None:
        PROBES[probe].require(run, options_of(probe, run.training.train_length, **settings), None)

    def refused(run, probe, **settings) -> str:
        with pytest.raises(ConfigError) as caught:
            require(run, probe, **settings)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    copy = Run(encoding=choose(NoPE), task=choose(Copy), training=TrainingConfig(train_length=6))
    for probe in PROBES.values():
        if isinstance(probe, InContextProbe):
            assert "on Copy; name" in refused(copy, probe.name)
    learned = subject(Learned, max_length=40).run
    assert "length 24 examples needs 48 positions, but Learned has 40" in refused(learned, "recency")
    assert "needs 96 positions" in refused(learned, "duplicates")
    assert "needs 96 positions" in refused(learned, "lost-in-the-middle")
    assert "needs 160 positions" in refused(learned, "induction")
    require(learned, "recency", length=20, repeats=2)
    assert "4 repeats" not in refused(learned, "recency", length=20), "what is repeated is too long as well"
    many = subject(dims=4).run
    assert "points must be at least 8 " in refused(many, "duplicates")
    assert "length must be at least " in refused(many, "lost-in-the-middle", points=8, length=10)
    mamba = Run(
        encoding=choose(NoPE), task=choose(LinearRegression), model=ModelConfig.mamba(d_model=16, num_layers=1),
        training=TrainingConfig(train_length=50),
    )  # fmt: skip
    assert "has no attention" in refused(mamba, "recency")
    require(mamba, "duplicates")
