"""Scores and losses of short trainings, as recorded in scores.json: runs of the quickstart and of three other studies.

The studies are those that are shipped, so the runs differ in encodings, tasks, position schemes, widths and the
protocol of the evaluation. On the same processor the numbers are the same to the last bit; on others they differ by the
rounding of float32, which few training steps hardly enlarge. The complete quickstart: quickstart.py.
"""

import csv
import dataclasses
import math
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.config import EvaluationConfig, Inline, Run, choose
from lengthwise.studies import Study, execute, load
from lengthwise.tasks import Text
from tests.frozen.comparison import load as load_record

WORDS = 150  # of the invented language
TOLERANCE = 5e-5  # of a score or a loss, or a share of it where it is above 1; measured: 5e-6 with AVX2 and without it
Rows = dict[str, list[Any]]


def write_text(folder: Path) -> Path:
    """Write forty files of an invented language, because the text of the quickstart differs between
    versions of Python.
    """
    draw = random.Random(0).random
    letters = "etaoinshrdlu"
    words = ["".join(letters[int(12 * draw() ** 2)] for _ in range(2 + int(5 * draw()))) for _ in range(WORDS)]
    (folder / "text").mkdir()
    for number in range(40):
        text = [words[int(WORDS * draw() ** 3)] + (".\n" if draw() < 0.1 else " ") for _ in range(1500)]
        (folder / "text" / f"{number}.txt").write_text("".join(text), encoding="utf-8")
    return folder / "text"


def changed(study: Study, run: Callable[[Run], Run], **evaluation: Any) -> Study:
    """Return a study with other runs, and with some fields of every evaluation replaced."""
    old = study.evaluation
    new: Any = (
        dataclasses.replace(old, **evaluation)
        if isinstance(old, EvaluationConfig)
        else {name: dataclasses.replace(one, **evaluation) for name, one in old.items()}
    )
    return dataclasses.replace(study, runs=tuple(map(run, study.runs)), evaluation=new)


def with_steps(run: Run, steps: int) -> Run:
    return dataclasses.replace(run, training=dataclasses.replace(run.training, steps=steps))


def quickstart(folder: Path) -> Study:
    """Return the quickstart: the same 42 runs with 189 scores, on another text, with 10 steps and fewer examples."""
    text = choose(Text, path=str(write_text(folder)))

    def short(run: Run) -> Run:
        return with_steps(dataclasses.replace(run, task=text) if run.task.cls is Text else run, 10)

    return changed(load("quickstart"), short, tokens=2048, examples=32)


def axes(folder: Path) -> Study:
    """Return the study with two axes of positions: 5 runs."""
    return changed(load("axes/small", {"seeds": "1", "steps": "20"}), lambda run: run, examples=16)


def memorization(folder: Path) -> Study:
    """Return the study of widths: 6 runs on a fixed set of tagged sentences, which are joined in the evaluation."""
    study = load("memorization/widths", {"seeds": "1", "steps": "100"})  # with fewer, no entity is found
    return changed(study, lambda run: run, lengths=(1, 2, 8), tokens=4096)


def icfl(folder: Path) -> Study:
    """Return half of the study of in-context learning with one seed: 16 runs, evaluated with other inputs too."""
    study = load("icfl/small")
    classes = {"LinearRegression", "Threshold"}
    runs = tuple(run for run in study.runs if run.seed == 1 and run.task.name in classes)
    evaluation = {
        name: one
        for name, one in dict(study.evaluation).items()  # type: ignore[call-overload]
        if name in classes
    }
    half = dataclasses.replace(study, runs=runs, evaluation=evaluation)
    return changed(half, lambda run: with_steps(run, 10), examples=20, lengths=(1, 6, 12, 24, 48), prompt=48)


STUDIES: Mapping[str, Callable[[Path], Study]] = {
    "quickstart": quickstart,
    "axes/small": axes,
    "memorization/widths": memorization,
    "icfl/small": icfl,
}


def rows_of(name: str, folder: Path) -> Rows:
    """Train and evaluate a short study. Return what `lengthwise export` writes, without what depends on the machine.

    For each score: its mean, its standard error and the number of examples. For each run: the last loss and gradient
    norm.
    """
    study = STUDIES[name](folder)
    execute(study, folder / "results", executor=Inline())
    rows: Rows = {}
    for kind, columns in (("scores", ("mean", "standard_error", "n")), ("training", ("loss", "gradient_norm", "step"))):
        file = folder / f"{kind}.csv"
        assert (
            main(["export", "answers", study.name, kind, "--out", str(file), "--results", str(folder / "results")]) == 0
        )
        with file.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                run = f"{row['key']} {row['label']}, {row['task']}, seed {row['seed']}"
                where = f", length {row['length']} {row['question']}: {row['metric']}" if kind == "scores" else ""
                rows[run + where] = [float(row[column]) if row[column] else None for column in columns]
    return rows


def record() -> dict[str, Any]:
    """Return what scores.json is to contain. Numbers that differ from the recorded ones only by rounding stay."""
    found = {}
    for name in STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            rows, recorded = rows_of(name, Path(folder)), RECORDED.get(name, {})
            same = {row for row in rows.keys() & recorded.keys() if is_close(rows[row], recorded[row])}
            found[name] = {row: recorded[row] if row in same else rows[row] for row in rows}
    return found


RECORDED = load_record("scores")


def is_close(current: list[Any], recorded: list[Any]) -> bool:
    return all(
        a == b if a is None or b is None else math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(current, recorded, strict=True)
    )


@pytest.mark.parametrize(
    "name",
    [
        "axes/small",
        pytest.param("quickstart", marks=pytest.mark.medium),
        pytest.param("memorization/widths", marks=pytest.mark.slow),
        pytest.param("icfl/small", marks=pytest.mark.slow),
    ],
)
def test_scores_and_losses_are_the_recorded_ones(name: str, tmp_path: Path) -> None:
    rows, recorded = rows_of(name, tmp_path), RECORDED[name]
    assert list(rows) == list(recorded)
    assert {row: rows[row] for row in rows if not is_close(rows[row], recorded[row])} == {}


def test_the_quickstart_has_189_scores() -> None:
    rows = RECORDED["quickstart"]
    assert sum(", length " in row for row in rows) == 189
    assert len(rows) == 189 + 42


def test_small_differences_are_noticed() -> None:
    assert is_close([2.5, None, 8.0], [2.50005, None, 8.0])
    assert not is_close([2.5, None, 8.0], [2.5005, None, 8.0])
    assert not is_close([0.0, 0.1, 8.0], [0.0001, 0.1, 8.0])
    assert not is_close([0.0, 0.1, 8.0], [0.0, None, 8.0])
