"""The development of the encodings' numbers: what is recorded and when, also across interruptions."""

import math

import pytest
import torch
from torch import nn

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, alternate, choose
from lengthwise.encodings import DAPE, ENCODINGS, FIRE, T5, ALiBi, KerpleLog, KerplePower, NoPE, PositionEncoding
from lengthwise.encodings.contract import tracked_of
from lengthwise.models import Decoder
from lengthwise.tasks import Copy
from lengthwise.training import Stopped, train
from lengthwise.training.tracked import MAX_ENTRIES, MAX_NUMBERS, TrackedNumbers

TINY = ModelConfig(d_model=16, num_layers=2, num_heads=2)
SIZES = {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 4}
CPU = torch.device("cpu")
NUMBERS = {
    "FIRE": ["c", "L"],
    "T5": ["bias of bucket"],
    "KerpleLog": ["r1", "r2"],
    "KerplePower": ["r1", "r2"],
    "DAPE": ["r1", "r2"],
    "LeRoPE": ["α"],
    "RoPEMixed": ["f of axis 0", "f of axis 1"],
    "PoPE": ["δ"],
    "GrapeA": ["slope"],
    "SSMax": ["scale"],
    "MistralLarge4": ["scale", "bias"],
    "Sinks": ["logit"],
}


def run_of(encoding, steps=7, model=TINY) -> Run:
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    training = TrainingConfig(train_length=4, steps=steps, batch_size=4, learning_rate=0.02, warmup=0)
    return Run(encoding=choice, task=choose(Copy), model=model, training=training, seed=0)


def decoder(encoding, model=TINY) -> Decoder:
    torch.manual_seed(0)
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    return Decoder(model, choice, vocab_size=11, output_size=11, train_length=4)


@pytest.mark.parametrize("make", list(ENCODINGS), ids=lambda make: make.__name__)
def test_which_encodings_declare_numbers(make):
    assert list(tracked_of(choose(make).build(**SIZES))) == NUMBERS.get(make.__name__, [])


def test_the_numbers():
    fire = FIRE(num_heads=2, c=0.5, L=64.0)
    with torch.no_grad():
        fire.c.neg_(), fire.L_multiplier.fill_(-2.0)
    assert {name: float(value) for name, value in tracked_of(fire).items()} == {"c": 0.5, "L": 128.0}
    assert list(tracked_of(FIRE(num_heads=2, transform="identity", threshold=False))) == []
    assert tracked_of(ALiBi(num_heads=2, learned=True))["slope"].tolist() == pytest.approx([1 / 16, 1 / 256])
    assert tracked_of(ALiBi(num_heads=2)) == {}
    power = KerplePower(num_heads=2)
    with torch.no_grad():
        power.r1.copy_(torch.tensor([-1.0, 3.0])), power.r2.copy_(torch.tensor([-1.0, 3.0]))
    assert {name: value.tolist() for name, value in tracked_of(power).items()} == {
        "r1": pytest.approx([0.01, 3.0]),
        "r2": pytest.approx([0.01, 2.0]),
    }
    assert list(tracked_of(DAPE(num_heads=2, train_length=8, base="fire"))) == ["c", "L"]


def test_every_step_of_a_short_training_is_recorded(tmp_path):
    run = run_of(FIRE)
    trained = train(run, tmp_path / "run")
    found = trained.tracked
    assert found["steps"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [(q["name"], q["layers"], q["shape"]) for q in found["quantities"]] == [
        *(("c", [1], []), ("L", [1], []), ("c", [2], []), ("L", [2], [])),
    ]
    c = [row[0] for row in found["quantities"][0]["values"]]
    assert c[0] == pytest.approx(0.1)
    assert c[-1] == pytest.approx(abs(trained.model.encodings[0].c.item()), rel=1e-5)
    assert len(set(c)) > 5, "it changes in training"
    assert found["quantities"][3]["values"][0] == [512.0]
    assert train(run, tmp_path / "run").tracked == found, "as it is stored"


@pytest.mark.parametrize("encoding", [FIRE, KerpleLog])
def test_an_interrupted_training_records_the_same(encoding, tmp_path):
    run = run_of(encoding)
    whole = train(run, tmp_path / "whole")
    for stop in (0, 3, 2):
        calls = iter(range(100))
        with pytest.raises(Stopped):
            train(run, tmp_path / "cut", checkpoint_every=2, should_stop=lambda n=stop, calls=calls: next(calls) >= n)
    assert train(run, tmp_path / "cut").tracked == whole.tracked
    assert len(whole.tracked["quantities"][0]["values"]) == 8


def test_nothing_is_recorded_without_numbers(tmp_path):
    trained = train(run_of(NoPE, steps=2), tmp_path / "run")
    assert trained.tracked == {}
    assert TrackedNumbers(decoder(NoPE), 10, 1, CPU).numbers == 0
    mamba = run_of(NoPE, steps=2, model=ModelConfig.mamba(d_model=16, num_layers=2))
    assert train(mamba, tmp_path / "mamba").tracked == {}


def test_layers_that_share_an_encoding():
    numbers = TrackedNumbers(decoder(KerpleLog), 4, 1, CPU)
    assert [(q.name, q.layers, q.shape) for q in numbers.quantities] == [("r1", (1, 2), (2,)), ("r2", (1, 2), (2,))]
    numbers = TrackedNumbers(decoder(alternate(choose(NoPE), choose(FIRE))), 4, 1, CPU)
    assert [(q.name, q.layers) for q in numbers.quantities] == [("c", (2,)), ("L", (2,))]


def test_a_table_has_a_number_for_each_head_and_entry():
    model = decoder(choose(T5, num_buckets=100, max_distance=1000))
    numbers = TrackedNumbers(model, 3, 1, CPU)
    numbers.record(0)
    (quantity,) = numbers.result()["quantities"]
    entries = quantity["entries"]
    assert (len(entries), entries[0], entries[-1], quantity["shape"]) == (MAX_ENTRIES, 0, 99, [2, MAX_ENTRIES])
    expected = model.encodings[0].weight[:, entries].flatten().tolist()
    assert quantity["values"][0] == pytest.approx(expected, rel=1e-5)
    assert quantity["values"][1] == [None] * 2 * MAX_ENTRIES, "not recorded yet"


@pytest.mark.parametrize(("steps", "steps_per_row"), [(1, 1), (2, 1), (7, 3), (200, 1), (1001, 6), (100_000, 500)])
@pytest.mark.parametrize("make", [FIRE, choose(T5, num_buckets=64)])
def test_rows_are_limited(make, steps, steps_per_row):
    numbers = TrackedNumbers(decoder(make), steps, steps_per_row, CPU)
    assert numbers.steps[0] == 0
    assert numbers.steps[-1] == steps
    assert len(numbers.steps) <= 202
    assert (len(numbers.steps) - 1) * numbers.numbers <= MAX_NUMBERS
    assert numbers.interval % steps_per_row == 0
    for step in range(steps + 1) if steps < 2000 else numbers.steps:
        numbers.record(step)
        assert numbers.recorded(step)[-1].isfinite().all()
    assert numbers.rows.isfinite().all()
    with torch.no_grad():
        for p in numbers.quantities[0].encoding.parameters():
            p.fill_(math.nan)
    numbers.record(1) if numbers.interval > 1 else None
    assert numbers.rows.isfinite().all(), "a step between two rows is not recorded"


class Odd(PositionEncoding):
    def __init__(self, *, value):
        super().__init__()
        self.value = value

    def tracked(self):
        return self.value


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": 1.0},
        {"a": torch.zeros(1, 1, 1)},
        {"a": torch.zeros(0)},
        {"a": torch.zeros(2).long()},
    ],
)
def test_what_an_encoding_of_a_user_may_return(value):
    with pytest.raises(ConfigError, match=r"Odd\.tracked .*dictionary of"):
        tracked_of(Odd(value=value))
    parameter = nn.Parameter(torch.ones(2))
    assert not tracked_of(Odd(value={"a": parameter}))["a"].requires_grad
