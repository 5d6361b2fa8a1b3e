"""The least memory of an evaluation, against what tensors of that size take."""

from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, ALiBi, LieRE, NoPE, RoPE
from lengthwise.evaluation import memory
from lengthwise.evaluation.memory import require_memory
from lengthwise.positions import Grid
from lengthwise.store import open_store
from lengthwise.studies import Study, needed_memory
from lengthwise.studies.needed_memory import require_enough_memory
from lengthwise.tasks import Copy, CopyColumn, LinearRegression

GIB = 2**30


def run_of(encoding: Any, task: Any = None, positions: Any = None) -> Run:
    """Return a run with 2 heads of 8 dims in 3 layers."""
    return Run(
        encoding=encoding,
        task=task or choose(Copy),
        model=ModelConfig(d_model=16, num_layers=3, num_heads=2),
        training=TrainingConfig(train_length=4, steps=1, positions=positions),
        seed=0,
    )


def needed(run: Run, length: int, monkeypatch: pytest.MonkeyPatch, *, count: int = 2, in_parts: bool = False) -> float:
    """Return the bytes at which the length is no longer refused."""
    estimates = []
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**60)
    original = memory._Estimate.bytes
    monkeypatch.setattr(memory._Estimate, "bytes", lambda *a: estimates.append(original(*a)) or estimates[-1])
    require_memory(run, run.task.build(), [(length, count)], in_parts=in_parts)
    return sum(estimates)


SLOTS = 2 * 100_000 + 2  # of Copy at length 100,000
EXAMPLES = 2 * SLOTS * 8  # inputs and targets of this task are parts of one tensor
LAYER = SLOTS * 4 * (16 + 3 * 16)  # its input, queries, keys and values
ANGLES = SLOTS * 4 * 8  # of 4 pairs, in float64


@pytest.mark.parametrize(
    ("encoding", "tables"),
    [
        (choose(NoPE), 0),
        (choose(RoPE), ANGLES),
        (choose(RoPE, window=64), 0),
        (choose(ALiBi), SLOTS * 2 * 8),
        (choose(LieRE, block=4), SLOTS * 2 * 8 * 4 * 8),
        (choose(FIRE), 0),  # the number of its segments depends on values
    ],
    ids=lambda value: getattr(value, "label", ""),
)
def test_the_parts_of_the_estimate(encoding: Any, tables: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = needed(run_of(encoding), 100_000, monkeypatch)
    assert EXAMPLES + LAYER + tables == pytest.approx(found, rel=1e-3)


def test_several_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(choose(LieRE, block=4, axes=2), choose(CopyColumn), choose(Grid))
    slots = run.task.build().tokens(40_000)
    tables = 2 * slots * 2 * 8 * 4 * 8  # of queries and of keys
    expected = 2 * slots * 8 + slots * 4 * (16 + 3 * 16) + tables
    assert needed(run, 40_000, monkeypatch) == pytest.approx(expected, rel=1e-3)


def test_the_cache_of_an_example_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a task with scores of single tokens is processed in parts."""
    whole = needed(run_of(choose(NoPE)), 100_000, monkeypatch, in_parts=True)
    assert whole == pytest.approx(EXAMPLES + LAYER, rel=1e-3)
    monkeypatch.setattr(Copy, "has_token_scores", classmethod(lambda cls: True))
    parts = needed(run_of(choose(NoPE)), 100_000, monkeypatch, in_parts=True)
    assert parts == pytest.approx(EXAMPLES + SLOTS * 4 * 3 * 2 * 16, rel=1e-3)


def test_a_model_that_really_has_these_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate is not more than the tensors of the examples and of one layer."""
    run = run_of(choose(LieRE, block=4))
    monkeypatch.setattr(memory, "ALWAYS_FITS", 64)
    task = run.task.build()
    length = 100
    batch = task.examples(0, 2, length)
    examples = sum(x.nbytes for x in (batch.inputs, batch.targets, batch.scored))
    slots = batch.inputs.shape[1]
    encoding = run.encoding.build(num_heads=2, head_dim=8, d_model=16, train_length=4)
    with torch.no_grad():
        table = encoding.table(slots)
    assert needed(run, length, monkeypatch) <= examples + slots * 4 * 64 + table.nbytes


class Ragged(Copy):
    """A task whose examples are shorter than `tokens` says."""

    def tokens(self, length: int) -> int:
        return 3 * length


def test_examples_that_may_be_shorter_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: 1)
    run = run_of(choose(NoPE))
    require_memory(run, Ragged(), [(100_000, 2)], in_parts=False)
    with pytest.raises(
        ConfigError, match=r"^length 100,000 symbols needs more than 0.0 GiB of memory, and this machine has"
    ):
        require_memory(run, Copy(), [(100_000, 2)], in_parts=False)


class Fewer(Copy):
    """A user's task, which may have fewer examples than it is asked for."""


def test_a_task_of_a_user_surely_has_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(choose(NoPE))
    one, many = (needed(run_of(choose(NoPE), choose(Fewer)), 100_000, monkeypatch, count=count) for count in (1, 100))
    assert one == pytest.approx(many)
    assert needed(run, 100_000, monkeypatch, count=100) > 3 * many


def test_examples_that_do_not_exist_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(choose(NoPE))
    one = needed(run, 100_000, monkeypatch, count=1)
    monkeypatch.setattr(Copy, "available", lambda *_: 1)
    assert needed(run, 100_000, monkeypatch, count=100) == one


def test_the_examples_of_a_task_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long examples can take a second."""
    drawn, draw = [], Copy.sample
    monkeypatch.setattr(Copy, "sample", lambda *a: drawn.append(a) or draw(*a))
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**60)
    task = Copy()
    for encoding in (NoPE, RoPE, ALiBi):
        require_memory(run_of(choose(encoding)), task, [(100_000, 2), (200_000, 2)], in_parts=False)
    assert len(drawn) == 3


def test_short_lengths_and_unknown_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(choose(NoPE))
    monkeypatch.setattr(memory, "machine_memory", lambda: 1)
    require_memory(run, Copy(), [(30_000, 10**6)], in_parts=False)
    monkeypatch.setattr(memory, "machine_memory", lambda: None)
    require_memory(run, Copy(), [(10**8, 10**6)], in_parts=False)


def test_a_finished_length_is_not_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores may come from a larger machine."""
    run = run_of(choose(NoPE))
    study = Study(name="s", question="?", runs=[run], evaluation=EvaluationConfig(lengths=(4, 100_000), examples=2))
    monkeypatch.setattr(memory, "machine_memory", lambda: 1)
    with open_store(tmp_path) as store:
        with pytest.raises(ConfigError, match="NoPE on Copy: length 100,000 symbols needs more than"):
            require_enough_memory(store, study)
        store.add_study(**study.metadata(), runs=study.rows())
        asked = study.rows()[0]["asked"][1]
        score = {"length": 100_000, "metric": "exact match", "better": "higher", "n": 2, "mean": 1.0}
        further = {"standard_error": None, "out_of_distribution": True, "seconds": 1.0, "asked": asked}
        store.add_scores(run.key, [score | further])
        require_enough_memory(store, study)


def test_prefixes_of_one_prompt_count_once() -> None:
    task, config = LinearRegression(), EvaluationConfig(lengths=(1, 9), prompt=50, examples=7)
    assert needed_memory._amounts(task, config) == [(50, 7)]


class Bounded(Copy):
    """A user's task with few token slots at all lengths but one."""

    def tokens(self, length: int) -> int:
        return 100_000 if length == 5 else 10


def test_a_task_whose_slots_do_not_grow_with_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a short length ends."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 1)
    with pytest.raises(ConfigError, match=r"^length 5 symbols needs more than"):
        require_memory(run_of(choose(NoPE)), Bounded(), [(5, 2)], in_parts=False)
