"""The study of robust addition: all combinations of its four ingredients, and the table of its extension ratios."""

import importlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.store import open_store
from lengthwise.studies import Study, load
from lengthwise.tasks.base import Task

ROOT = Path(__file__).parents[2]
FILE = ROOT / "studies" / "addition" / "robust.py"


@pytest.fixture(scope="module")
def study() -> Study:
    return load(FILE)


@pytest.fixture
def extension_ratio(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("extension_ratio")


def test_the_study_can_be_run(study: Study) -> None:
    study.check()
    text = FILE.read_text()
    for words in ("Question:", "Expectation", "Outcome", "Cost:", f"Command: {study.command}"):
        assert words in text


def test_all_combinations_have_all_seeds_and_orders(study: Study, extension_ratio) -> None:
    names = extension_ratio.INGREDIENTS
    combinations = Counter(tuple(bool(has(run.to_data())) for has in names.values()) for run in study.runs)
    assert combinations == dict.fromkeys(combinations, 10)
    assert len(combinations) == 16
    per_combination = {(run.seed, run.data_seed) for run in study.runs}
    assert per_combination == {(seed, order) for seed in range(5) for order in range(2)}
    assert len({run.seed for run in study.runs[:16]} | {run.data_seed for run in study.runs[:16]}) == 1, (
        "one of each first"
    )


def test_the_longest_sums_fit_the_positions(study: Study) -> None:
    for run in study.runs[:16]:
        task: Task = run.task.build()
        assert task.tokens(9) < 64
        assert task.tokens(9) == (6 * 9 + 5 if dict(run.task.settings)["hints"] else 3 * 9 + 4)


@pytest.mark.parametrize(
    ("scores", "ratio"),
    [
        ({1: 1.0, 2: 0.99, 3: 0.98, 4: 0.98, 5: 0.979, 6: 1.0}, 4 / 3),
        ({3: 1.0, 2: 1.0, 1: 1.0}, 1.0),
        ({1: 1.0, 2: 0.9, 3: 1.0, 4: 1.0}, 0.0),
        ({1: 1.0, 2: 1.0, 3: 0.97, 4: 1.0}, 0.0),
        ({2: 1.0, 4: 1.0, 6: 1.0}, 2.0),
    ],
)
def test_the_extension_ratio(scores: dict[int, float], ratio: float, extension_ratio) -> None:
    assert extension_ratio.extension_ratio(scores, 3) == pytest.approx(ratio)


def test_the_table_has_a_row_for_each_combination_and_ingredient(study: Study, extension_ratio) -> None:
    rows = [SimpleNamespace(**row) for row in study.rows()]
    found = [(row, 2.0 if "hints" in row.config["task"] else float(row.seed > 2)) for row in rows]
    lines = extension_ratio.table(found)
    assert len(lines) == 17
    assert lines[1].split()[:5] == ["10", "10", "2.00", "2.00", "2.00"]
    assert lines[-1].split()[:5] == ["10", "4", "0.40", "0.00", "1.00"]
    effects = {line.split(maxsplit=2)[2]: line.split()[:2] for line in extension_ratio.effects(found)[1:]}
    assert effects["index hints"] == ["2.00", "0.40"]
    assert effects["FIRE"] == ["1.20", "1.20"]


def test_the_command_prints_the_finished_runs(tmp_path: Path, study: Study, extension_ratio, capsys) -> None:
    with open_store(tmp_path) as store:
        store.add_study(**study.metadata(), runs=study.rows())
    extension_ratio.main([study.name, "--results", str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()) == 1, "no run is finished"
