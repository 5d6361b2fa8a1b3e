"""What the analysis says of stored rows: means and ranks as in benchmarks/results/, statistics as in analysis.json.

The ends of intervals are not compared, because another method gives other ones.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, findings, ranking
from lengthwise.analysis.statistics import statistics_of
from lengthwise.store import open_store
from lengthwise.studies import load
from tests.frozen.comparison import load as load_record
from tests.made_answers import score_answer

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
STUDIES = (
    "quickstart",
    "nope/small",
    "icfl/small",
)  # cross-entropy, shares of right answers, squared errors and shifted inputs
TOLERANCE = 1e-9  # of sums in float64, as a share
EFFECTIVE_LENGTH = 1e-3  # a share too: it is searched for in steps


def figures(name: str) -> dict[str, Any]:
    """Return the rows of a study, as benchmarks/study_rows.py stored them."""
    return json.loads((RESULTS / f"study-{name.replace('/', '-')}.json").read_text(encoding="utf-8"))["figures"]


def analyzed(name: str, folder: Path) -> Findings:
    """Store the rows of a finished study in a new database, and return its findings.

    The runs are those of the study's file. Runs and scores of the two belong together if encoding, task, seed and
    question do, because the rows were stored under older keys.
    """
    study = load(name)
    scores: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for score in figures(name)["scores"]:
        scores.setdefault((score["label"], score["task"], score["seed"]), []).append(score)
    with open_store(folder) as store:
        store.add_study(runs=study.rows(), **study.metadata())
        for run in study.rows():
            own = scores.pop((run["label"], run["task"], run["seed"]))
            answers = [
                score_answer(
                    score["asked"],
                    math.nan if score["mean"] is None else score["mean"],
                    score["n"],
                    score["standard_error"],
                )
                for score in own
            ]
            store.add_answers(run["key"], answers)
        assert not scores, "rows of runs that the study does not have"
        return findings(store, study.name)


def means_of(found: Findings) -> dict[str, Any]:
    """Return the mean of every encoding at every length, with its kind and the number of seeds."""
    return {
        f"{task.title}, {series.label}, length {point.length}": [
            task.kind(point.length), point.interval.mean, len(point.seeds)
        ]
        for task in found.tasks
        for series in task.series
        for point in series.points
    }  # fmt: skip


def statistics_without_intervals(found: Findings) -> dict[str, Any]:
    """Return effective lengths, areas, interquartile means and ranks, and the differences of all pairs of encodings."""
    statistics, order = statistics_of(found), ranking(found.tasks)
    values: dict[str, Any] = {}
    for task in statistics.tasks:
        for row in task.encodings:
            effective, area = row.effective, row.area
            where = f"{task.title}, {row.label}: "
            bound = effective is None or not 0 < effective.value < math.inf  # "< 64" or "≥ 512"
            values[where + "effective length"] = (effective and effective.text) if bound else effective.value
            values[where + "area"] = None if area is None else area.mean
        for pair in task.comparisons:
            values[f"{task.title}, {pair.first} and {pair.second}: difference"] = pair.difference.mean
    for group in statistics.over_tasks:
        for label, interval in group.interquartile.items():
            values[f"{', '.join(group.tasks)}, {label}: interquartile mean"] = interval.mean
    for place, rank in enumerate(order.ranks if order is not None else (), 1):
        values[f"rank {place}"] = [rank.label, None if rank.longer is None else rank.longer.mean]
    return values


def record() -> dict[str, Any]:
    """Return what analysis.json is to contain."""
    found = {}
    for name in STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = statistics_without_intervals(analyzed(name, Path(folder)))
    return found


RECORDED = load_record("analysis")


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Findings]:
    return request.param, analyzed(request.param, tmp_path_factory.mktemp("results"))


@pytest.mark.medium
def test_means_are_those_that_were_stored_with_the_rows(study: tuple[str, Findings]) -> None:
    name, found = study
    expected = {
        f"{row['task']}, {row['label']}, length {row['length']}": [row["kind"], row["mean"], row["seeds"]]
        for row in figures(name)["means"]
    }
    assert len(expected) == len(figures(name)["means"]) >= 63
    assert_close(means_of(found), expected)


def test_ranks_are_those_that_were_stored_with_the_rows(study: tuple[str, Findings]) -> None:
    name, found = study
    order = ranking(found.tasks)
    assert order is not None
    ranks = {rank.label: rank.longer.mean for rank in order.ranks if rank.longer is not None}
    expected = {row["label"]: row["mean"] for row in figures(name)["ranks"]}
    assert list(ranks) == list(expected)
    assert_close(ranks, expected)


def test_statistics_are_the_recorded_ones(study: tuple[str, Findings]) -> None:
    name, found = study
    assert_close(statistics_without_intervals(found), RECORDED[name])


def test_a_small_difference_is_noticed() -> None:
    recorded = dict(RECORDED["quickstart"])
    (name, value), *_ = ((name, value) for name, value in recorded.items() if name.endswith(": area"))
    with pytest.raises(AssertionError):
        assert_close(recorded | {name: value * (1 + 1e-8)}, recorded)
    (name, value), *_ = ((name, value) for name, value in recorded.items() if name.endswith("effective length"))
    with pytest.raises(AssertionError):
        assert_close(recorded | {name: value * 1.01}, recorded)


def assert_close(current: dict[str, Any], expected: dict[str, Any]) -> None:
    assert current.keys() == expected.keys()
    changed = {
        name: (current[name], expected[name]) for name in expected if not is_close(name, current[name], expected[name])
    }
    assert changed == {}


def is_close(name: str, current: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(current) == len(expected) and all(
            is_close(name, a, b) for a, b in zip(current, expected, strict=True)
        )
    if isinstance(expected, float) and isinstance(current, float):
        share = EFFECTIVE_LENGTH if name.endswith("effective length") else TOLERANCE
        return math.isclose(current, expected, rel_tol=share, abs_tol=TOLERANCE)
    return current == expected
