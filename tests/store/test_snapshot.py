"""A bundle, a report and an export read the database as it is in one moment, whatever others write meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, update

from lengthwise.analysis import findings, gather
from lengthwise.exchange import columns
from lengthwise.store import Store, open_store, schema

KEYS = [f"{n:016x}" for n in range(3)]


@pytest.fixture
def meddle(store: Store, where: str, make: Any) -> Callable[[], None]:
    """Fill the store. The result deletes all scores by another connection, and changes the runs."""
    store.add_study("s", evaluation={}, runs=[make.run(key, seed=n) for n, key in enumerate(KEYS)])
    for key in KEYS:
        store.add_answers(key, [make.score(8), make.score(16, 0.25), make.curve(make.point(10))])

    def meddle() -> None:
        with open_store(where, timeout=10) as other, other._database.engine.begin() as connection:
            connection.execute(delete(schema.answers))
            connection.execute(update(schema.runs).values(step=7))

    return meddle


def after(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        result = function(*arguments)
        then()
        return result

    return wrapped


def test_a_snapshot_is_one_moment(store: Store, meddle: Callable[[], None]) -> None:
    with store.snapshot() as now:
        runs = now.runs("s")
        meddle()
        assert len(now.scores(KEYS)) == 6
        assert now.runs("s") == runs
    assert store.scores(KEYS) == []
    assert [run.step for run in store.runs("s")] == [7, 7, 7]


def test_a_snapshot_can_only_be_read(store: Store, make: Any) -> None:
    with store.snapshot() as now, pytest.raises(AssertionError, match="can only be read"):
        now.add_study("s", evaluation={}, runs=[])
    store.add_study("s", evaluation={}, runs=[])
    assert [study.name for study in store.studies()] == ["s"]


def test_the_rows_of_a_bundle_are_of_one_moment(store: Store, meddle: Callable[[], None]) -> None:
    with store.study_cells("s") as tables:
        runs = list(tables["runs"])
        meddle()
        assert (len(runs), len(list(tables["answers"]))) == (3, 9)


def test_a_report_is_of_one_moment(store: Store, meddle: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = repr(findings(store, "s"))
    monkeypatch.setattr(gather, "listing_times", after(gather.listing_times, meddle))
    assert repr(findings(store, "s")) == expected
    assert store.scores(KEYS) == []


def test_an_export_is_of_one_moment(store: Store, meddle: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = repr(columns.answer_columns(store, "s", "scores"))
    monkeypatch.setattr(Store, "runs", after(Store.runs, meddle))
    assert repr(columns.answer_columns(store, "s", "scores")) == expected
