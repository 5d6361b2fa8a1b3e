"""Studies with stages: the best learning rate by hand, and a second stage that follows from the first."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, StopWhenLearned, TrainingConfig
from lengthwise.store import open_store
from lengthwise.studies import Study, best_runs, continued, grid, load
from lengthwise.studies.execution import Outcome
from lengthwise.studies.stored import stored_run

MODEL = ModelConfig(d_model=8, num_layers=1, num_heads=1)


def runs(encoding: str = "rope") -> list[Any]:
    rates = (1e-3, 3e-3, 1e-2)
    return [
        run
        for rate in rates
        for run in grid([encoding], ["copy"], model=MODEL, training=TrainingConfig(train_length=4, learning_rate=rate))
    ]


class Scores:
    """A store with these scores at the training length, and training losses."""

    def __init__(self, rows: dict[str, tuple[float | None, list[float]]], better: str = "higher"):
        self.rows, self.better = rows, better
        self.steps: dict[str, int] = {}

    def scores(self, keys: list[str]) -> list[Any]:
        score = self.rows[keys[0]][0]
        other = [SimpleNamespace(length=4, mean=9.0, question={"shift": {"symbols": 3}})]
        other += [SimpleNamespace(length=8, mean=9.0, question={})]
        return other + [SimpleNamespace(length=4, mean=score, question={})] * (score is not None)

    def answer(self, key: str, measurement: str, question: dict[str, Any]) -> Any:
        assert (measurement, question) == ("training", {})
        losses = self.rows[key][1]
        return SimpleNamespace(rows={"loss": losses}) if losses else None

    def runs_of(self, keys: list[str]) -> dict[str, Any]:
        return {key: SimpleNamespace(better=self.better, step=self.steps.get(key, 9)) for key in keys}


@pytest.mark.parametrize(
    ("better", "found", "best"),
    [
        ("higher", [(0.5, [1.0]), (0.9, [2.0]), (0.1, [0.5])], 1),
        ("lower", [(0.5, [1.0]), (0.9, [2.0]), (0.1, [0.5])], 2),
        ("higher", [(1.0, [0.3]), (1.0, [0.1]), (1.0, [0.2])], 1),  # the loss decides
        ("higher", [(1.0, [5.0] * 9 + [0.1]), (1.0, [0.2] * 10), (0.0, [0.0])], 0),  # its end does
        ("higher", [(None, []), (0.0, []), (float("nan"), [])], 1),
    ],
)
def test_the_best_learning_rate(better: str, found: list[Any], best: int) -> None:
    rates, others = runs(), runs("nope")
    rows = {run.key: row for run, row in zip(rates, found, strict=True)}
    rows |= {run.key: (0.1 * n, []) for n, run in enumerate(others)}
    chosen = best_runs(Scores(rows, better), [*rates, *others])  # type: ignore[arg-type]
    assert chosen == (rates[best], others[2 if better == "higher" else 0])


@pytest.mark.parametrize(("steps", "best"), [((7, 3, 5), 1), ((9, 9, 9), 2)])
def test_trainings_that_end_once_the_task_is_learned_are_ranked_by_their_steps(
    steps: tuple[int, ...], best: int
) -> None:
    stop = StopWhenLearned(score=0.9)
    rates = [replace(run, training=replace(run.training, stop=stop)) for run in runs()]
    scores = Scores({run.key: (0.9 + n / 100, []) for n, run in enumerate(rates)})
    scores.steps = {run.key: step for run, step in zip(rates, steps, strict=True)}
    assert best_runs(scores, rates) == (rates[best],)  # type: ignore[arg-type]


def test_a_group_without_a_score_has_no_best_run() -> None:
    store: Any = Scores({run.key: (None, []) for run in runs()})
    with pytest.raises(ConfigError, match="no run of RoPE on Copy has a score at length 4"):
        best_runs(store, runs())


STAGES = """
from dataclasses import replace
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, best_runs, continued, grid

MODEL = ModelConfig(d_model=8, num_layers=1, num_heads=1)
EVALUATION = EvaluationConfig(lengths=(4,), examples=8)
RATES = [
    run
    for rate in (1e-4, 1e-2)
    for run in grid(["nope"], ["copy:symbols=3"], [9], model=MODEL,
                    training=TrainingConfig(train_length=4, steps=5, learning_rate=rate))
]

def following(store):
    runs = [replace(run, seed=1) for run in best_runs(store, RATES)]
    return Study(name="second", question="?", runs=tuple(runs), evaluation=EVALUATION)

study = Study(name="first", question="?", runs=tuple(RATES), evaluation=EVALUATION, then=following)
"""


def test_run_goes_on_unless_a_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES.replace("best_runs(store, RATES)", "RATES[:1]"))
    open_store(results).close()
    import_module("lengthwise.cli.compare")  # otherwise it would import the patched function, and keep it
    for code, expected in ((0, ["first", "second"]), (1, ["first"])):
        executed: list[str] = []

        def execute(study: Study, *_: Any, code: int = code, executed: list[str] = executed) -> int:
            executed.append(study.name)
            return code

        monkeypatch.setattr("lengthwise.cli.run.run_study", execute)
        assert main(["run", str(file), "--results", results]) == code
        assert executed == expected


@pytest.mark.slow
def test_run_executes_all_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES)
    assert main(["run", str(file), "--results", results, "--on", "inline"]) == 0
    assert main(["list", "studies", "--results", results]) == 0
    said = capsys.readouterr()
    assert "first" in said.out
    assert "second" in said.out
    assert main(["run", str(file), "--results", results, "--on", "inline"]) == 0  # both stages are done


@pytest.mark.medium
def test_two_workers_go_through_the_stages_together(tmp_path: Path) -> None:
    """Neither begins the second stage before the other one has finished its run of the first."""
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES)
    words = [sys.executable, "-m", "lengthwise", "work", str(file), "--results", results, "--on", "inline"]
    processes = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    with open_store(results) as store:
        assert [study.name for study in store.studies()] == ["first", "second"]
        for name, number in (("first", 2), ("second", 1)):
            rows = store.runs(name)
            assert [(row.status, row.claims) for row in rows] == [("done", 1)] * number
            assert all(len(store.scores([row.key])) == 1 for row in rows)
        chosen = best_runs(store, [stored_run(row) for row in store.runs("first")])
        assert [row.config["training"]["learning_rate"] for row in store.runs("second")] == [
            run.training.learning_rate for run in chosen
        ]


def test_work_stops_where_the_time_is_over_or_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES.replace("best_runs(store, RATES)", "RATES[:1]"))
    open_store(results).close()
    finished = Outcome({"pending": 0, "running": 0, "done": 2, "failed": 0}, ())
    late = replace(finished, counts=finished.counts | {"pending": 1}, out_of_time=True)
    for outcome, code, expected in ((finished, 0, ["first", "second"]), (late, 0, ["first"])):
        executed: list[str] = []

        def execute(study: Study, *, outcome: Outcome = outcome, executed: list[str] = executed, **_: Any) -> Outcome:
            executed.append(study.name)
            return outcome

        monkeypatch.setattr("lengthwise.studies.execute", execute)
        assert main(["work", str(file), "--results", results, "--max-minutes", "1"]) == code
        assert executed == expected
    failed = [(run.key, "the disk is full") for run in load(file).runs]
    executed = []
    monkeypatch.setattr(
        "lengthwise.studies.execute",
        lambda study, **_: executed.append(study.name) or replace(finished, failed=tuple(failed)),
    )
    assert main(["work", str(file), "--results", results]) == 1
    assert executed == ["first"]


@pytest.mark.slow
def test_torchrun_works_on_all_stages(tmp_path: Path) -> None:
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "lengthwise"]
    done = subprocess.run(
        [*torchrun, "work", str(file), "--results", results], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with open_store(results) as store:
        assert [study.progress["done"] for study in store.studies()] == [2, 1]


def test_what_is_no_stage() -> None:
    study = Study(
        name="x", question="?", runs=tuple(runs()), evaluation=EvaluationConfig(lengths=(4,)), then=lambda store: 3
    )
    with pytest.raises(ConfigError, match="study 'x': `then` must return a Study, got 3"):
        study.following(Scores({}))  # type: ignore[arg-type]


@pytest.mark.parametrize("then", [3, "second"])
def test_then_is_a_function_of_the_store(then: Any) -> None:
    with pytest.raises(
        ConfigError, match="study 'x': `then` must be a function of the store that returns a Study, got "
    ):
        Study(name="x", runs=tuple(runs()), evaluation=EvaluationConfig(lengths=(4,)), then=then)


@pytest.mark.parametrize("returned", ["study", 'Study(name="first", runs=tuple(RATES[:1]), evaluation=EVALUATION)'])
def test_every_stage_has_its_own_name(
    returned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, results = tmp_path / "stages.py", str(tmp_path / "results")
    file.write_text(STAGES.replace("    runs = [", f"    return {returned}\n    runs = ["))
    open_store(results).close()
    executed: list[str] = []
    monkeypatch.setattr("lengthwise.cli.run.run_study", lambda study, *_: executed.append(study.name) or 0)
    assert main(["run", str(file), "--results", results]) == 2
    assert executed == ["first"]
    assert "study 'first': a second stage has the name 'first'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"share": "0.1"}, "share must be a number of more than 0 and at most 1000, got '0.1'"),
        ({"share": True}, "got True"),
        ({"share": 10**400}, r"got 1\.000e\+400"),
        ({"share": float("nan")}, "got nan"),
        ({"share": 0.1, "model": MODEL}, "model must be a dict such as {'qk_norm': True}, got ModelConfig"),
        ({"share": 0.1, "model": {3: True}}, "ModelConfig has no setting 3"),
        ({"share": 0.1, "model": {"share_encoding": True}}, "omit share_encoding, and write 'fire-s'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_run_cannot_continue_with(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        continued(runs()[:1], ["fire"], **settings)


@pytest.mark.parametrize("wrong", ["rope", ["rope"], runs()[0]], ids=["text", "names", "one run"])
def test_what_are_no_runs(wrong: Any) -> None:
    store: Any = Scores({})
    with pytest.raises(ConfigError, match=r"continued\(\): parents must be a list of Run"):
        continued(wrong, ["nope"], steps=0)
    with pytest.raises(ConfigError, match="best_runs: runs must be a list of Run"):
        best_runs(store, wrong)
