"""Probes of stored runs: the answer to a question is the same however it is cut, and what cannot be is refused."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, Learned, NoPE, RoPE
from lengthwise.measurements import Table
from lengthwise.measurements.attention_distance import AttentionDistance, AttentionDistanceOptions
from lengthwise.measurements.base import ExampleOptions
from lengthwise.measurements.inside import trained as trained_run
from lengthwise.measurements.inside.attended_distance import attended_distance
from lengthwise.measurements.inside.attention_distance import attention_distance
from lengthwise.measurements.inside.trained import TrainedRun, load_trained_run
from lengthwise.positions import Randomized
from lengthwise.tasks import LEGO, Addition, Copy, Parity, Reverse
from lengthwise.tasks.base import Batch, generator
from lengthwise.training import CheckpointError, train
from tests.measurements.asking import measured

TINY = ModelConfig(d_model=16, num_layers=2, num_heads=2)
MAMBA = ModelConfig.mamba(d_model=16, num_layers=2)


def run_of(encoding=NoPE, seed=0, task=Copy, model=TINY, positions=None, **settings) -> Run:
    training = TrainingConfig(train_length=4, steps=2, batch_size=2, positions=positions)
    return Run(encoding=choose(encoding), task=choose(task, **settings), model=model, training=training, seed=seed)


def distance_question(against: str, length: int, **options) -> AttentionDistanceOptions:
    return AttentionDistanceOptions(against=against, length=length, **options)


def require_comparable(run: Run, other: Run, lengths: list[int]) -> None:
    for length in lengths:
        AttentionDistance().require(run, distance_question(other.key, length), other)


def attended_question(length: int, **options) -> ExampleOptions:
    return ExampleOptions(length=length, **options)


def distances(a: TrainedRun, b: TrainedRun, options, progress=None) -> Table:
    return measured("attention-distance", dataclasses.replace(a, against=b), options, progress)


def attended(trained: TrainedRun, options) -> Table:
    return measured("attended-distance", trained, options)


def trained(run: Run, folder: Path):
    train(run, folder)
    return load_trained_run(run, folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    random = choose(Randomized, max_length=64, at_evaluation="random")
    return trained(run_of(NoPE, 1), folder / "a"), trained(run_of(RoPE, 1, positions=random), folder / "b")


def test_the_distance_of_stored_runs(pair):
    a, b = pair
    found = distances(a, b, distance_question(b.run.key, 6, examples=7))
    batch = a.task.examples(0, 7, 6, "test")
    drawn = Randomized(max_length=64, at_evaluation="random").positions(
        batch.inputs, None, generator(0, "layout", 6), training=False
    )
    expected = attention_distance(a.model, b.model, batch.inputs, positions=(None, drawn))
    assert found.column("distance") == pytest.approx(expected.mean(0).tolist(), abs=1e-12)
    assert found.column("error") == pytest.approx((expected.std(0) / math.sqrt(7)).tolist(), abs=1e-12)
    assert (found.first("n"), found.first("places")) == (7, 7 * 14), "BOS, question, SEP and answer, in every example"
    json.dumps(found.to_data(), allow_nan=False)


def test_places_that_fill_a_batch_up_do_not_count(pair):
    a, b = pair
    batch = a.task.examples(0, 3, 4, "test")
    longer = Batch(*(torch.nn.functional.pad(part, (0, 2)) for part in (batch.inputs, batch.targets, batch.scored)))

    class Filled(Copy):
        def examples(self, *_):
            return longer

    asked = distance_question(b.run.key, 4, examples=3)
    plain = distances(a, TrainedRun(a.run, b.model, b.task), asked)
    filled = distances(TrainedRun(a.run, a.model, Filled()), TrainedRun(a.run, b.model, b.task), asked)
    assert filled.first("places") == plain.first("places")
    assert filled.column("distance") == pytest.approx(plain.column("distance"), abs=1e-6)


def test_portions_change_nothing(pair, monkeypatch):
    a, b = pair
    asked, wide = distance_question(b.run.key, 6, examples=7), attended_question(6, examples=7)
    whole, looked, told = distances(a, b, asked), attended(b, wide), []
    monkeypatch.setattr(trained_run, "TOKENS", 30)  # two examples
    cut = distances(a, b, asked, told.append)
    assert told == pytest.approx([2 / 7, 2 / 7, 2 / 7, 1 / 7])
    assert cut.column("distance") == pytest.approx(whole.column("distance"), abs=1e-6)
    again = attended(b, wide)
    assert (again.column("highest"), again.first("queries"), again.first("n")) == (
        looked.column("highest"),
        looked.first("queries"),
        7,
    )


def test_where_a_stored_run_looks(pair):
    a, _ = pair
    found = attended(a, attended_question(6, examples=5))
    batch = a.task.examples(0, 5, 6, "test")
    expected = attended_distance(a.model, batch.inputs, queries=batch.scored)
    assert found.first("queries") == 5 * 7, "the answer and its end"
    assert found.grid("highest", "layer", "head", "distance") == (expected.most.double() / 35).tolist()
    assert list(found.combined("mass", ("layer", "head"), {}, "sum").values()) == pytest.approx([1.0] * 4, abs=1e-6)
    json.dumps(found.to_data(), allow_nan=False)


def test_the_work_before_an_answer_does_not_count(pair):
    a, _ = pair

    class Shown(Copy):
        def answer_mask(self, batch):
            return batch.scored & (batch.scored.cumsum(1) > 4)

    found = attended(TrainedRun(a.run, a.model, Shown()), attended_question(6, examples=5))
    assert found.first("queries") == 5 * 3


@pytest.mark.parametrize(
    "task", [Addition(scratchpad="full"), LEGO(scratchpad="minimal"), Parity(scratchpad="no-input"), Addition(), Copy()]
)
def test_which_places_say_the_answer(task):
    """What comes after the scratchpad, and the end."""
    batch = task.examples(0, 20, 4, "test")
    places = task.answer_mask(batch)
    for row, (_, words) in enumerate(task.pairs(batch)):
        said = [task.words[t] if t < len(task.words) else "END" for t in batch.targets[row][places[row]].tolist()]
        whole = [*words, "END"]
        assert said == (whole[whole.index("thus") + 1 :] if "thus" in whole else whole)


def test_no_more_examples_than_there_are(pair):
    a, _ = pair
    few = TrainedRun(a.run, a.model, Copy(symbols=26))
    assert attended(few, attended_question(1, examples=100)).first("n") == few.task.available(1)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (run_of(NoPE, 0), "cannot be compared with itself"),
        (run_of(NoPE, 1, task=Reverse), r"is trained on Copy\(.*\) and run .* on Reverse\("),
        (run_of(NoPE, 1, symbols=5), r"symbols=26.* on Copy\(symbols=5"),
        (run_of(NoPE, 1, model=ModelConfig(d_model=16, num_layers=3, num_heads=2)), "has 2 layers and run .* has 3"),
        (run_of(Learned, 1), "Learned has"),
        (run_of(NoPE, 1, model=MAMBA), "is Mamba, which has no attention"),
    ],
)
def test_runs_that_cannot_be_compared(other, words):
    with pytest.raises(ConfigError, match=words) as caught:
        require_comparable(run_of(NoPE, 0), other, [4, 4000])
    assert "\n" not in str(caught.value)


def test_runs_that_can(pair):
    require_comparable(run_of(NoPE, 0), run_of(NoPE, 1), [4, 8])
    require_comparable(run_of(NoPE, 0), run_of(FIRE, 0, model=ModelConfig(d_model=32, num_layers=2, num_heads=4)), [4])


def test_a_run_that_is_not_trained(tmp_path):
    with pytest.raises(CheckpointError, match="is not finished"):
        load_trained_run(run_of(), tmp_path)


def test_a_model_without_attention(pair, tmp_path):
    mamba = trained(run_of(NoPE, 1, model=MAMBA), tmp_path)
    x = torch.zeros(1, 4, dtype=torch.long)
    for ask in (
        lambda: attended(mamba, attended_question(4)),
        lambda: attention_distance(pair[0].model, mamba.model, x),
        lambda: attended_distance(mamba.model, x, queries=x == 0),
    ):
        with pytest.raises(ConfigError, match="got Mamba, which has no attention") as caught:
            ask()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: distance_question("ab", 4, examples=0),
        lambda: distance_question("ab", 0),
        lambda: attended_question(4, examples=-1),
        lambda: distance_question("ab", 4, variant="euclid"),
    ],
)
def test_questions_that_cannot_be(call):
    with pytest.raises(ConfigError):
        call()
