"""Scores at shifted positions: flat where an encoding declares it, changed where not, and only as far as positions reach."""

import math

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS, FIRE, DynamicNTK, Learned, NoPE, RoPE, Sinusoidal
from lengthwise.models import Decoder
from lengthwise.positions import Digits, Randomized
from lengthwise.probes.measuring.trained_run import TrainedRun
from lengthwise.probes.position_shift import PositionShift, PositionShiftQuestion
from lengthwise.probes.position_shift.measure import declares_invariance, measure, require
from lengthwise.span import Span
from lengthwise.tasks import Addition, Copy, LinearRegression, Tagging, Text
from lengthwise.training.setup import build

TINY = ModelConfig(d_model=16, num_layers=2, num_heads=2)
ROUNDING = 1e-4  # of logits of a rotation whose angles are those of positions up to 10,000


def run_of(encoding, task=Copy, positions=None, model=TINY, **settings) -> Run:
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    training = TrainingConfig(train_length=6, steps=2, batch_size=2, positions=positions)
    return Run(encoding=choice, task=choose(task, **settings), model=model, training=training, seed=0)


def untrained(run: Run) -> TrainedRun:
    model, task = build(run, device=torch.device("cpu"), backend="auto")
    for p in (p for name, p in model.named_parameters() if name.startswith("encodings")):
        torch.nn.init.normal_(p, 0.5, 0.3)  # some are zero at first, and have no effect
    return TrainedRun(run, model.eval(), task)


def asked(length=6, **options) -> PositionShiftQuestion:
    return PositionShiftQuestion(length=length, **{"examples": 5, "shifts": (1, 10, 10_000)} | options)


def invariant() -> list[type]:
    return [make for make in ENCODINGS if make.shift_invariant and not make.depends_on_length()]


def rotates(model: Decoder) -> bool:
    modifiers = [encoding.modifiers(Span.of(1)) for encoding in model.encodings]
    return any(m.rotation is not None or m.product is not None for m in modifiers)


@pytest.mark.parametrize("make", invariant(), ids=lambda make: make.__name__)
def test_every_invariant_encoding_is_flat(make):
    trained = untrained(run_of(make))
    found = measure(trained, asked())
    assert found["invariant"]
    if rotates(trained.model):
        assert max(found["logit_changes"]) < ROUNDING
    else:
        assert found["logit_changes"] == [0.0] * 4, "the same bits"
        assert found["differences"] == [0.0] * 4
    assert found["logit_changes"][0] == 0


@pytest.mark.parametrize(
    "make", [make for make in ENCODINGS if make not in invariant()], ids=lambda make: make.__name__
)
def test_every_other_encoding_changes(make):
    # Some temperatures begin beyond the usual training lengths; 1,003 is no multiple of the groups of Self-Extend.
    far = 10**7 if make.is_temperature else 1003
    found = measure(untrained(run_of(make)), asked(shifts=(1, far)))
    assert not found["invariant"]
    assert found["logit_changes"][2] > ROUNDING


def test_fire_depends_on_the_position_only_past_its_threshold():
    trained = untrained(run_of(choose(FIRE, L=100.0)))
    for encoding in trained.model.encodings:
        torch.nn.init.ones_(encoding.L_multiplier)
    found = measure(trained, asked(shifts=(1, 50, 200)))
    assert found["logit_changes"][:3] == [0, 0, 0]
    assert found["logit_changes"][3] > 0


@pytest.mark.parametrize("task", [Copy, LinearRegression, Text, Tagging])
def test_against_scores_computed_here(task, tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghijklmnop" * 400)
    settings = {"path": str(tmp_path / "a.txt")} if task is Text else {}
    run = run_of(Sinusoidal, task, **settings)
    trained = untrained(run)
    found = measure(trained, asked(shifts=(7,)))
    batch = trained.task.examples(0, 5, 6, "test")
    positions = torch.arange(batch.inputs.shape[1])[None]
    with torch.no_grad():
        logits = [trained.model(batch.inputs, positions=positions + shift) for shift in (0, 7)]
    first, second = (trained.task.score(part, batch).double() for part in logits)
    difference = second - first
    assert found["scores"] == pytest.approx([float(first.mean()), float(second.mean())], abs=1e-12)
    assert found["differences"] == pytest.approx([0.0, float(difference.mean())], abs=1e-12)
    assert found["difference_errors"][1] == pytest.approx(float(difference.std()) / math.sqrt(5), abs=1e-12)
    assert found["standard_errors"][1] == pytest.approx(float(second.std()) / math.sqrt(5), abs=1e-12)
    scored = batch.scored.bool()
    assert found["logit_changes"][1] == pytest.approx(float((logits[1] - logits[0])[scored].abs().max()), rel=1e-5)
    assert (found["n"], found["better"]) == (5, trained.task.metric.better)


def test_a_table_is_measured_as_far_as_it_reaches():
    run = run_of(choose(Learned, max_length=24))
    trained = untrained(run)
    tokens = trained.task.tokens(6)
    found = measure(trained, asked(shifts=(24 - tokens, 25 - tokens)))
    assert found["max_length"] == 24
    assert [score is None for score in found["scores"]] == [False, False, True]
    assert found["logit_changes"][1] > 0
    assert found["logit_changes"][2] is None


def test_the_positions_of_the_scheme_are_shifted():
    """A scheme that draws positions draws the same ones for every shift."""
    run = run_of(RoPE, positions=choose(Randomized, max_length=64, at_evaluation="random"))
    assert max(measure(untrained(run), asked())["logit_changes"]) < ROUNDING
    run = run_of(choose(Learned, max_length=64), Addition, positions=choose(Digits, max_offset=0))
    found = measure(untrained(run), asked(shifts=(3,)))
    assert found["logit_changes"][1] > 0


def test_progress_adds_up_to_the_examples():
    told: list[float] = []
    measure(untrained(run_of(NoPE)), asked(), told.append)
    assert sum(told) == pytest.approx(asked().reports)


def test_the_table_in_the_terminal():
    result = {
        "scores": [0.5, 0.5, 0.25, None],
        "shifts": [0, 1, 10, 99],
        "logit_changes": [0, 0.5, 2.0, None],
        "better": "higher",
    }
    assert PositionShift().cells(result) == [0.5, "10", 0.25, 2.0]
    assert PositionShift().cells(result | {"better": "lower"}) == [0.5, "0", 0.5, 2.0]


def test_the_question():
    assert asked(shifts=(10, 1, 10)).shifts == (0, 1, 10)
    assert PositionShiftQuestion.with_defaults(8).shifts == (0, 1, 10, 100, 1000)
    assert PositionShiftQuestion.with_defaults(8).length == 8
    for shifts, words in (
        ((-1,), "shifts must be whole numbers from 0 to 999,999,999, got -1"),
        ((10**9,), "got 1000000000"),
        ((0,), "shifts must be 1 to 63 numbers other than 0, got 0"),
        (tuple(range(70)), "got 69"),
    ):
        with pytest.raises(ConfigError, match=words):
            asked(shifts=shifts)


def test_refused():
    with pytest.raises(ConfigError, match="is Mamba, which has no attention"):
        require(run_of(NoPE, model=ModelConfig.mamba(d_model=16, num_layers=2)), [asked()])
    with pytest.raises(ConfigError, match="Learned has 8"):
        require(run_of(choose(Learned, max_length=8)), [asked()])


def test_declarations():
    for make, expected in ((NoPE, True), (RoPE, True), (Learned, False), (DynamicNTK, False), (FIRE, False)):
        assert declares_invariance(untrained(run_of(make)).model) == expected
