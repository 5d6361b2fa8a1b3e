"""`lengthwise run`: what it prints."""

from pathlib import Path

import pytest

from lengthwise.cli import main
from lengthwise.cli.progress import Lines
from lengthwise.cli.study_progress import StudyProgress
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.studies import Study, grid
from lengthwise.studies.events import Begun, Counted, Done, Failed, Note, Started


def test_run_shows_progress_then_the_table_then_the_page(finished: Path) -> None:
    out, err = (finished.parent / "said.txt").read_text().split("\n====\n")
    assert "tiny: 2 runs; 1 worker, results in" in err
    assert "NoPE, Copy, seed 0: starts" in err
    assert "[2/2] FIRE-S, Copy, seed 0: done in" in err
    assert "exact match" in out
    assert "FIRE-S" in out
    assert out.rstrip().endswith(f"Report: {finished / 'report.html'}")
    assert "FIRE-S" in (finished / "report.html").read_text(encoding="utf-8")


def test_lines_of_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(
        name="tiny",
        runs=grid(["nope"], ["copy"], 6, training=TrainingConfig(train_length=4)),
        evaluation=EvaluationConfig(lengths=(4,)),
    )
    first, second, *_ = (run.key for run in study.runs)
    counts = {"pending": 3, "running": 0, "done": 3, "failed": 0}
    show = StudyProgress(study, "results", Lines())
    show(Begun(counts=counts, workers=2, costs={}, seconds=100))
    show(Started(key=first, what="train"))
    show(Started(key=first, what="continue"))
    show(Started(key=second, what="evaluate", where="node1"))
    show(Done(key=first, scores=((4, 0.5),), seconds=1))
    for _ in range(2):
        show(Counted(counts={"pending": 0, "running": 1, "done": 5, "failed": 0}, waiting=True))
    show(Note(key=second, text="a note"))
    show(Failed(key=second, error="no"))
    assert capsys.readouterr().err.splitlines() == [
        "tiny: 6 runs, 3 of them already done; 2 workers, results in results; this takes about 1 min 40 s",
        "NoPE, Copy, seed 0: starts",
        "NoPE, Copy, seed 0: continues from its checkpoint",
        "NoPE, Copy, seed 1 on node1: is already trained, evaluating new lengths",
        "[4/6] NoPE, Copy, seed 0: done in 1 s; exact match 0.5 at 4",
        "waiting for 1 run of another command",
        "NoPE, Copy, seed 1 on node1: a note",
        "[5/6] NoPE, Copy, seed 1 on node1: failed: no",
    ]


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
