"""Scores at shifted positions: flat where an encoding declares it, and only as far as positions reach."""

import math

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS, FIRE, DynamicNTK, Learned, NoPE, RoPE, Sinusoidal
from lengthwise.measurements.inside.trained import TrainedRun
from lengthwise.measurements.position_shift import PositionShift, PositionShiftOptions
from lengthwise.models import Decoder
from lengthwise.positions import Digits, Randomized
from lengthwise.span import Span
from lengthwise.tasks import Addition, Copy, LinearRegression, Tagging, Text
from lengthwise.training.setup import build
from tests.measurements.asking import measured

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


def asked(length=6, **options) -> PositionShiftOptions:
    return PositionShiftOptions(length=length, **{"examples": 5, "shifts": (1, 10, 10_000)} | options)


def invariant() -> list[type]:
    return [make for make in ENCODINGS if make.shift_invariant and not make.depends_on_length()]


def rotates(model: Decoder) -> bool:
    modifiers = [encoding.modifiers(Span.of(1)) for encoding in model.encodings]
    return any(m.rotation is not None or m.product is not None for m in modifiers)


@pytest.mark.parametrize("make", invariant(), ids=lambda make: make.__name__)
def test_every_invariant_encoding_is_flat(make):
    trained = untrained(run_of(make))
    found = measured("position-shift", trained, asked())
    assert found.first("invariant")
    if rotates(trained.model):
        assert max(found.grid("logit_change", "shift")) < ROUNDING
    else:
        assert found.grid("logit_change", "shift") == [0.0] * 4, "the same bits"
        assert found.grid("difference", "shift") == [0.0] * 4
    assert found.grid("logit_change", "shift")[0] == 0


@pytest.mark.parametrize(
    "make", [make for make in ENCODINGS if make not in invariant()], ids=lambda make: make.__name__
)
def test_every_other_encoding_changes(make):
    # Some temperatures begin beyond the usual training lengths; 1,003 is no multiple of the groups of Self-Extend.
    far = 10**7 if make.is_temperature else 1003
    found = measured("position-shift", untrained(run_of(make)), asked(shifts=(1, far)))
    assert not found.first("invariant")
    assert found.grid("logit_change", "shift")[2] > ROUNDING


def test_fire_depends_on_the_position_only_past_its_threshold():
    trained = untrained(run_of(choose(FIRE, L=100.0)))
    for encoding in trained.model.encodings:
        torch.nn.init.ones_(encoding.L_multiplier)
    found = measured("position-shift", trained, asked(shifts=(1, 50, 200)))
    assert found.grid("logit_change", "shift")[:3] == [0, 0, 0]
    assert found.grid("logit_change", "shift")[3] > 0


@pytest.mark.parametrize("task", [Copy, LinearRegression, Text, Tagging])
def test_against_scores_computed_here(task, tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghijklmnop" * 400)
    settings = {"path": str(tmp_path / "a.txt")} if task is Text else {}
    run = run_of(Sinusoidal, task, **settings)
    trained = untrained(run)
    found = measured("position-shift", trained, asked(shifts=(7,)))
    batch = trained.task.examples(0, 5, 6, "test")
    positions = torch.arange(batch.inputs.shape[1])[None]
    with torch.no_grad():
        logits = [trained.model(batch.inputs, positions=positions + shift) for shift in (0, 7)]
    first, second = (trained.task.score(part, batch).double() for part in logits)
    difference = second - first
    assert found.grid("score", "shift") == pytest.approx([float(first.mean()), float(second.mean())], abs=1e-12)
    assert found.grid("difference", "shift") == pytest.approx([0.0, float(difference.mean())], abs=1e-12)
    assert found.grid("difference_error", "shift")[1] == pytest.approx(
        float(difference.std()) / math.sqrt(5), abs=1e-12
    )
    assert found.grid("score_error", "shift")[1] == pytest.approx(float(second.std()) / math.sqrt(5), abs=1e-12)
    scored = batch.scored.bool()
    assert found.grid("logit_change", "shift")[1] == pytest.approx(
        float((logits[1] - logits[0])[scored].abs().max()), rel=1e-5
    )
    assert found.first("n") == 5


def test_a_table_is_measured_as_far_as_it_reaches():
    run = run_of(choose(Learned, max_length=24))
    trained = untrained(run)
    tokens = trained.task.tokens(6)
    found = measured("position-shift", trained, asked(shifts=(24 - tokens, 25 - tokens)))
    assert found.first("max_length") == 24
    assert found.column("shift") == [0, 24 - tokens], "the last shift is left out"
    assert found.grid("logit_change", "shift")[1] > 0


def test_the_positions_of_the_scheme_are_shifted():
    """A scheme that draws positions draws the same ones for every shift."""
    run = run_of(RoPE, positions=choose(Randomized, max_length=64, at_evaluation="random"))
    assert max(measured("position-shift", untrained(run), asked()).column("logit_change")) < ROUNDING
    run = run_of(choose(Learned, max_length=64), Addition, positions=choose(Digits, max_offset=0))
    found = measured("position-shift", untrained(run), asked(shifts=(3,)))
    assert found.grid("logit_change", "shift")[1] > 0


def test_progress_adds_up_to_one():
    told: list[float] = []
    measured("position-shift", untrained(run_of(NoPE)), asked(), told.append)
    assert sum(told) == pytest.approx(1)


def test_the_question():
    assert asked(shifts=(10, 1, 10)).shifts == (0, 1, 10)
    assert PositionShiftOptions.with_defaults(8).shifts == (0, 1, 10, 100, 1000)
    assert PositionShiftOptions.with_defaults(8).length == 8
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
        PositionShift().require(run_of(NoPE, model=ModelConfig.mamba(d_model=16, num_layers=2)), asked())
    with pytest.raises(ConfigError, match="Learned has 8"):
        PositionShift().require(run_of(choose(Learned, max_length=8)), asked())


def test_declarations():
    for make, expected in ((NoPE, True), (RoPE, True), (Learned, False), (DynamicNTK, False), (FIRE, False)):
        assert measured("position-shift", untrained(run_of(make)), asked()).first("invariant") == expected
