"""The queries for live pages: they agree with those that read whole rows."""

from typing import Any

from lengthwise.store import Store

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


def test_the_fingerprint_changes_with_the_rows(store: Store, make: Any) -> None:
    fill(store, make)
    seen = [store.fingerprint("s"), store.fingerprint("t")]
    assert store.fingerprint("s") == seen[0]
    store.heartbeat(SECOND, "elsewhere:1:x", 31, 100)
    seen.append(store.fingerprint("s"))
    assert store.fingerprint("t") == seen[1], "another study"
    store.add_answer(FIRST, "made-up", {}, {}, {})
    seen.append(store.fingerprint("s"))
    store.add_answers(FIRST, [make.score(8, question=make.question(8) | {"seed": 1})])
    seen.append(store.fingerprint("s"))
    assert len({seen[0], *seen[2:]}) == 4
