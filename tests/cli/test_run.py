"""`lengthwise run`: what it prints."""

import re
from pathlib import Path

import pytest

from lengthwise.cli import main
from lengthwise.cli.progress import Lines
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.studies import Study, grid
from lengthwise.studies.events import Begun, Counted, Done, Failed, Started


def test_run_shows_progress_then_the_table_then_the_page(finished: Path) -> None:
    out, err = (finished.parent / "said.txt").read_text().split("\n====\n")
    assert "tiny: 2 runs; 1 worker, results in" in err
    assert "NoPE, Copy, seed 0: starts" in err
    assert "[2/2] FIRE-S, Copy, seed 0: done in" in err
    assert "exact match" in out
    assert "FIRE-S" in out
    assert out.rstrip().endswith(f"Report: {finished / 'report.html'}")
    assert "FIRE-S" in (finished / "report.html").read_text(encoding="utf-8")


def test_the_counter_of_ended_runs_repeats_and_skips_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(
        name="tiny",
        runs=grid(["nope"], ["copy"], 6, training=TrainingConfig(train_length=4)),
        evaluation=EvaluationConfig(lengths=(4,)),
    )
    keys = [run.key for run in study.runs]

    def numbers(others: int, *events: str | int) -> list[str]:
        """`start 0`, `done 0` and `failed 0` are events of the run 0; a number counts the ended runs of all calls."""
        show = Lines(study, Path("results"))
        show(
            Begun(
                total=6, counts={"pending": 6 - others, "running": 0, "done": others, "failed": 0}, workers=2, costs={}
            )
        )
        for event in events:
            if isinstance(event, int):
                show(Counted(counts={"pending": 0, "running": 6 - event, "done": event, "failed": 0}, waiting=False))
                continue
            word, key = event.split()[0], keys[int(event.split()[1])]
            show(
                Started(key=key, what="train")
                if word == "start"
                else Failed(key=key, error="no")
                if word == "failed"
                else Done(key=key, scores=(), seconds=1)
            )
        return re.findall(r"^\[(\d)/6\]", capsys.readouterr().err, re.MULTILINE)

    started = [f"start {n}" for n in range(3)]
    assert numbers(3, *started, 4, 5, "done 0", 5, "failed 1", 6, "done 2") == ["4", "5", "6"]
    assert numbers(3, *started, 6, "done 0", 6, "done 1", 6, "done 2") == ["4", "5", "6"]
    assert numbers(3, *started, "done 0", "done 1", 5, "done 2") == ["4", "5", "6"]
    assert numbers(0, *started, 1, "done 0", 4, "done 1", 6, "done 2") == ["1", "3", "6"], "another call has three runs"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["--set", "seeds"], "--set must be NAME=VALUE, got 'seeds'"),
        (["--set", "=3"], "--set must be NAME=VALUE, got '=3'"),
        (["--set", "seeds=1", "--set", "seeds=2"], "--set seeds is given twice; give it once"),
        (["--set", "seeds=2"], "has no options, because its `study` is not a function; omit seeds"),
    ],
)
def test_settings_that_no_study_has(settings: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    study = Path(__file__).parents[2] / "studies" / "quickstart.py"
    assert main(["run", str(study), *settings]) == 2
    assert says in capsys.readouterr().err
