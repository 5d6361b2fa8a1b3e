"""How long a study will take: from measured steps, the cost of what was not measured, and the number of workers."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.study_progress import Overview
from lengthwise.config import EvaluationConfig, Inline, ModelConfig, Run, TrainingConfig
from lengthwise.studies import Study, estimate, execute, grid, load
from lengthwise.studies.compute import Compute
from lengthwise.studies.cost import Cost, costs
from lengthwise.studies.estimate import START_SECONDS, estimate_seconds
from lengthwise.studies.events import Begun, Event
from lengthwise.training import measure_step

MODEL = ModelConfig(d_model=16, num_layers=1, num_heads=2)
TRAINING = TrainingConfig(train_length=4, steps=10, batch_size=4)
ON = {"compute": Compute()}


def made(encodings: list[str], seeds: int = 1, **training: Any) -> tuple[tuple[Run, ...], dict[str, Cost]]:
    runs = grid(encodings, ["copy"], seeds, training=dataclasses.replace(TRAINING, **training), model=MODEL)
    asked = EvaluationConfig(lengths=(4,), examples=4)
    return runs, costs((run, asked) for run in runs)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every step takes a second, or with RoPE three; the runs that were measured."""
    found: list[Run] = []

    def one(run: Run, **_: Any) -> float:
        found.append(run)
        return 3.0 if run.label == "RoPE" else 1.0

    monkeypatch.setattr(estimate, "measure_step", one)
    return found


def seconds(cost: Cost, per_step: float, steps: int = 10) -> float:
    return cost.total / cost.train * per_step * steps


def test_each_kind_is_measured_once_and_seeds_take_equally_long(measured: list[Run]) -> None:
    runs, cost = made(["nope", "rope"], seeds=3)
    found = estimate_seconds(runs, cost, (), workers=1, **ON)
    assert [run.label for run in measured] == ["NoPE", "RoPE"]
    expected = sum(seconds(cost[run.key], 3 if run.label == "RoPE" else 1) for run in runs)
    assert found == pytest.approx(START_SECONDS + expected)


def test_what_was_not_measured_takes_as_long_for_its_cost(measured: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "MEASURING_SECONDS", 0.0)
    runs, cost = made(["nope", "alibi"], steps=10)
    more, more_cost = made(["nope"], steps=30)
    found = estimate_seconds([*runs, *more], cost | more_cost, (), workers=1, **ON)
    assert [run.label for run in measured] == ["NoPE"]
    both = sum(seconds(c, 1) for c in cost.values())
    assert found == pytest.approx(START_SECONDS + both + more_cost[more[0].key].total * 10 / cost[runs[0].key].train)


def test_workers_share_runs_and_no_run_is_cut_in_two(measured: list[Run]) -> None:
    runs, cost = made(["nope"], seeds=3)
    each = seconds(cost[runs[0].key], 1)
    for workers, longest in ((1, 3), (2, 2), (3, 1), (64, 1)):
        found = estimate_seconds(runs, cost, (), workers=workers, **ON)
        assert found == pytest.approx(START_SECONDS + longest * each)


def test_what_is_trained_is_only_evaluated(measured: list[Run]) -> None:
    (run,), cost = made(["nope"])
    found = estimate_seconds([run], cost, {run.key}, workers=1, **ON)
    whole = cost[run.key]
    assert found == pytest.approx(START_SECONDS + (whole.total - whole.train) / whole.train * 10)


def test_runs_that_cannot_be_measured_take_no_more_time_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def fails(run: Run, **_: Any) -> float:
        tried.append(run.label)
        time.sleep(0.02)
        raise RuntimeError("no memory")

    monkeypatch.setattr(estimate, "measure_step", fails)
    monkeypatch.setattr(estimate, "MEASURING_SECONDS", 0.03)
    runs, cost = made(["nope", "rope", "alibi", "t5", "fire"])
    assert estimate_seconds(runs, cost, (), workers=1, **ON) is None
    assert len(tried) == 2


def test_runs_that_cannot_be_measured_do_not_stop_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: Run, **_: Any) -> float:
        if run.label == "NoPE":
            raise RuntimeError("a fault of the encoding")
        return 1.0

    monkeypatch.setattr(estimate, "measure_step", fails)
    runs, cost = made(["nope", "rope"])
    found = estimate_seconds(runs, cost, (), workers=1, **ON)
    assert found == pytest.approx(START_SECONDS + sum(seconds(c, 1) for c in cost.values()))
    assert estimate_seconds(runs[:1], cost, (), workers=1, **ON) is None


def test_steps_are_measured_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    (run,), _ = made(["fire"])
    torch.manual_seed(3)
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    assert 0 < measure_step(run, seconds=0.05) < 5
    assert 0 < measure_step(dataclasses.replace(run, training=dataclasses.replace(TRAINING, steps=1))) < 5
    assert torch.equal(torch.random.get_rng_state(), before)
    monkeypatch.setattr(estimate, "MEASURING_SECONDS", 0.0)
    assert estimate_seconds([run], made(["fire"])[1], (), workers=1, compute=Compute(threads=threads + 1))
    assert torch.get_num_threads() == threads


def test_the_executor_tells_it_before_anything_starts(
    study_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study: Study = load(study_file(encodings='["nope"]'))
    heard: list[Event] = []
    monkeypatch.setattr(estimate, "MEASURING_SECONDS", 0.0)
    execute(study, tmp_path / "results", executor=Inline(), estimate=True, on_event=heard.append)
    (begun,) = (event for event in heard if isinstance(event, Begun))
    assert begun.seconds is not None
    assert START_SECONDS < begun.seconds < 60
    view = Overview(study)
    view.update(begun)
    assert view.opening(begun, tmp_path).endswith(f"this takes about {round(begun.seconds)} s")
    first_of_two = Overview(dataclasses.replace(study, then=lambda store: study))
    first_of_two.update(begun)
    assert first_of_two.opening(begun, tmp_path).endswith(" s, and another stage follows")
    assert view.eta() == begun.seconds
    done = dataclasses.replace(begun, counts={**begun.counts, "done": 1})
    assert view.opening(done, tmp_path).startswith(f"{study.name}: the run is done")
    heard.clear()
    execute(study, tmp_path / "results", executor=Inline(), estimate=True, on_event=heard.append)
    assert [event.seconds for event in heard if isinstance(event, Begun)] == [None]  # nothing is left to do
