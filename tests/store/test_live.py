"""The queries for live pages: they agree with those that read whole rows."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import Store, StoreWarning, open_results

from .test_store_studies import finish

FIRST, SECOND, THIRD = "a100000000000000", "b100000000000000", "c100000000000000"


def fill(store: Store, make: Any) -> None:
    store.add_study("s", question="?", evaluation={}, runs=[make.run(FIRST), make.run(SECOND, seed=1)])
    store.add_study("t", question="?", evaluation={}, runs=[make.run(THIRD), make.run(FIRST)])
    finish(store, make, FIRST)
    claimed = store.claim("s", "elsewhere:1:x")
    assert claimed is not None
    store.heartbeat(SECOND, "elsewhere:1:x", 30, 100)


def test_the_overview_has_what_each_study_has(store: Store, make: Any) -> None:
    fill(store, make)
    found = store.overview()
    assert [study for study, _ in found] == store.studies()
    assert [runs for _, runs in found] == [store.activity("s"), store.activity("t")]
    second = found[0][1][1]
    assert (second.key, second.seed, second.status, second.step, second.steps) == (SECOND, 1, "running", 30, 100)
    assert (second.label, second.task, second.train_length) == (
        "FIRE(hidden_layers=1)",
        "Copy",
        store.runs()[0].train_length,
    )


def test_runs_by_their_keys(store: Store, make: Any) -> None:
    fill(store, make)
    every = {run.key: run for run in store.runs()}
    found = store.runs_of([THIRD, FIRST, "unknown", THIRD])
    assert list(found) == [THIRD, FIRST]
    assert all(found[key] == every[key] for key in found)
    assert store.runs_of([]) == {}


def test_means_at_some_lengths(store: Store, make: Any) -> None:
    fill(store, make)
    other = make.question(8) | {"seed": 1}
    store.add_scores(FIRST, [make.score(8, 0.125) | {"asked": other}])
    assert store.score_lengths([FIRST, SECOND]) == [8, 16]
    assert store.score_lengths([SECOND]) == []
    by_length = {n: [score.mean for score in store.scores([FIRST]) if score.length == n] for n in (8, 16)}
    found = store.means([FIRST, SECOND], [8, 32])
    assert set(found) == {(FIRST, 8)}
    assert sorted(found[FIRST, 8]) == sorted(by_length[8])
    assert len(by_length[8]) == 2


def test_damaged_scores_are_skipped(tmp_path: Path, make: Any) -> None:
    """Their rows are named by the columns that were read, which are not all of the primary key."""
    with open_results(tmp_path) as store:
        fill(store, make)
        with sqlite3.connect(tmp_path / "results.db") as connection:
            connection.execute("UPDATE scores SET mean = 'x' WHERE length = 8")
            connection.execute("UPDATE scores SET length = 'x' WHERE length = 16")
        connection.close()
        with pytest.warns(
            StoreWarning, match=rf"scores: skipped the row '{FIRST}', whose mean is text instead of a number"
        ):
            assert store.means([FIRST], [8]) == {}
        with pytest.warns(StoreWarning, match="scores: skipped a row, whose length is text instead of a whole number"):
            assert store.score_lengths([FIRST]) == [8]


def test_the_fingerprint_changes_with_the_rows(store: Store, make: Any) -> None:
    fill(store, make)
    seen = [store.fingerprint("s"), store.fingerprint("t")]
    assert store.fingerprint("s") == seen[0]
    store.heartbeat(SECOND, "elsewhere:1:x", 31, 100)
    seen.append(store.fingerprint("s"))
    assert store.fingerprint("t") == seen[1], "another study"
    store.add_probe(FIRST, {"probe": "made-up"}, {}, {})
    seen.append(store.fingerprint("s"))
    store.add_scores(FIRST, [make.score(8) | {"asked": make.question(8) | {"seed": 1}}])
    seen.append(store.fingerprint("s"))
    assert len({seen[0], *seen[2:]}) == 4
