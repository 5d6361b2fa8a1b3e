"""Studies, runs and scores: what is stored comes back, and stays what it was."""

import math
from typing import Any

import pytest

from lengthwise.store import Store, StoreError, open_store
from tests.made_answers import losses


def finish(store: Store, make: Any, key: str, lengths: tuple[int, ...] = (8, 16), study: str = "s") -> None:
    row = store.claim(study, f"elsewhere:1:{key}")
    assert row is not None
    assert row.key == key
    store.add_answers(key, [make.score(n) for n in lengths], worker=f"elsewhere:1:{key}")
    store.finish(key, f"elsewhere:1:{key}", {"seconds": 1.5})


def test_everything_stored_comes_back(store: Store, make: Any) -> None:
    about = {"question": "Does it?", "expectation": "No — 0 %", "cost": "1 min", "command": "lengthwise run s"}
    store.add_study(
        "s",
        **about,
        evaluation={"Copy": {"lengths": [8, 16]}},
        runs=[make.run("b100000000000000", seed=7), make.run("a100000000000000")],
    )
    first, second = store.runs("s")
    assert (first.key, second.key) == ("b100000000000000", "a100000000000000"), "a study keeps its order"
    assert first.config == {"encoding": {"is": "FIRE"}, "seed": 0}
    assert (first.label, first.task, first.unit, first.seed) == ("FIRE(hidden_layers=1)", "Copy", "symbols", 7)
    assert first.questions == [make.question(8), make.question(16)]
    assert (first.status, first.worker, first.claims, first.error, first.facts) == ("pending", None, 0, None, {})
    (study,) = store.studies()
    assert {k: getattr(study, k) for k in about} == about
    assert study.evaluation == {"Copy": {"lengths": [8, 16]}}
    assert study.progress == {"pending": 2, "running": 0, "done": 0, "failed": 0}

    store.add_answers("a100000000000000", [make.score(16, 0.25, facts={"device": "cpu"}), make.score(8, 0.75)])
    short, long = store.scores(["a100000000000000"])
    assert (short.length, short.mean, short.question) == (8, 0.75, make.question(8))
    assert (long.length, long.mean, long.question) == (16, 0.25, make.question(16))
    assert (long.n, long.standard_error, long.groups, long.baselines, long.note) == (256, 0.01, [], [], "")
    assert [row.facts for row in store.answers(["a100000000000000"])] == [{}, {"device": "cpu"}]
    assert store.scores(["b100000000000000"]) == []


def test_it_is_all_there_after_closing(where: str, make: Any) -> None:
    with open_store(where) as store:
        store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
        finish(store, make, "a100000000000000")
        url = store.url
    with open_store(url, create=False) as again:
        assert again.url == url
        assert [row.status for row in again.runs()] == ["done"]
        assert again.run("a100000000000000").facts == {"seconds": 1.5}
        assert len(again.scores(["a100000000000000"])) == 2


def test_adding_a_study_again_changes_nothing(store: Store, make: Any) -> None:
    runs = [make.run("a100000000000000"), make.run("b100000000000000")]
    store.add_study("s", evaluation={"x": 1}, runs=runs)
    finish(store, make, "a100000000000000")
    held = store.claim("s", "elsewhere:1:w")
    before = store.runs(), store.scores(["a100000000000000", "b100000000000000"])
    store.add_study("s", evaluation={"x": 1}, runs=runs)
    assert (store.runs(), store.scores(["a100000000000000", "b100000000000000"])) == before
    assert held is not None
    assert store.heartbeat("b100000000000000", "elsewhere:1:w", 1, 10), "whoever works on a run keeps it"


def test_a_new_length_makes_a_done_run_pending_and_keeps_its_training(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    finish(store, make, "a100000000000000")
    assert store.progress("s")["done"] == 1
    trained = store.run("a100000000000000").finished

    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000", (8, 16, 32))])
    assert store.run("a100000000000000").status == "pending"
    row = store.claim("s", "elsewhere:1:w")
    assert row is not None
    assert row.finished == trained, "the worker sees that it is trained"
    assert store.missing("a100000000000000", row.questions) == [make.question(32)]
    store.add_answers("a100000000000000", [make.score(32)], worker="elsewhere:1:w")
    store.finish("a100000000000000", "elsewhere:1:w", {"evaluated": True})
    assert store.run("a100000000000000").status == "done"
    assert store.run("a100000000000000").facts == {"seconds": 1.5, "evaluated": True}

    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000", (16,))])
    assert store.run("a100000000000000").status == "done", "asking for less is answered already"
    assert store.run("a100000000000000").questions == [make.question(16)]


def test_studies_share_runs_but_not_questions(store: Store, make: Any) -> None:
    store.add_study("long", evaluation={}, runs=[make.run("a100000000000000", (8, 99999))])
    store.add_study("short", evaluation={}, runs=[make.run("a100000000000000", (8,))])
    row = store.claim("short", "elsewhere:1:w")
    assert row is not None
    assert row.questions == [make.question(8)], "questions of another study are not answered"
    assert store.progress("long")["running"] == 1
    assert store.claim("long", "elsewhere:1:v") is None, "one worker per run, whatever the study"
    store.add_answers("a100000000000000", [make.score(8)], worker="elsewhere:1:w")
    store.finish("a100000000000000", "elsewhere:1:w", {})
    assert store.progress("short") == {"pending": 0, "running": 0, "done": 1, "failed": 0}
    assert store.progress("long") == {"pending": 1, "running": 0, "done": 0, "failed": 0}
    assert store.claim("short", "elsewhere:1:w") is None
    assert store.run("a100000000000000").questions == [make.question(8), make.question(99999)]
    assert store.run("a100000000000000").status == "pending"
    assert store.claim("long", "elsewhere:1:v") is not None


def test_a_run_that_left_its_study_is_kept_but_not_worked_on(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000"), make.run("b100000000000000")])
    store.add_study("s", evaluation={}, runs=[make.run("b100000000000000")])
    assert [row.key for row in store.runs("s")] == ["b100000000000000"]
    assert [row.key for row in store.runs()] == ["a100000000000000", "b100000000000000"]
    row = store.claim("s", "elsewhere:1:w")
    assert row is not None
    assert row.key == "b100000000000000"
    assert store.claim("s", "elsewhere:1:w") is None


def test_failed_runs_may_be_tried_again(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    store.claim("s", "elsewhere:1:w")
    assert store.fail("a100000000000000", "elsewhere:1:w", "the loss is not a number\x00 in d\udce9tail")
    assert store.run("a100000000000000").status == "failed"
    assert store.run("a100000000000000").error == "the loss is not a number\\x00 in d\\udce9tail"
    assert store.claim("s", "elsewhere:1:w") is None, "not by itself"
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    assert store.run("a100000000000000").status == "pending"
    assert store.run("a100000000000000").error is None
    assert store.claim("s", "elsewhere:1:w") is not None


def test_questions_are_equal_however_they_are_spelled(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000", (8,))])
    store.add_answers("a100000000000000", [make.score(8, question={"seed": 0, "examples": 256, "length": 8})])
    assert store.missing("a100000000000000", [make.question(8)]) == []
    assert store.missing("a100000000000000", [make.question(16), {**make.question(8), "seed": 1}]) == [
        make.question(16),
        {**make.question(8), "seed": 1},
    ]


def test_an_answered_question_keeps_its_answer(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    store.add_answers("a100000000000000", [make.score(8, 0.25)])
    store.add_answers("a100000000000000", [make.score(8, 0.75), make.score(16, 0.5)])
    assert [(s.length, s.mean) for s in store.scores(["a100000000000000"])] == [(8, 0.25), (16, 0.5)]


def test_numbers_that_are_none_come_back(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    scores = [make.score(8, math.nan, standard_error=math.inf), make.score(16, 1e-300, standard_error=None)]
    store.add_answers("a100000000000000", [*scores, make.curve(make.point(1, math.nan), make.point(2, math.inf))])
    undefined, tiny = store.scores(["a100000000000000"])
    assert math.isnan(undefined.mean) and math.isnan(tiny.standard_error)
    assert undefined.standard_error == math.inf
    assert tiny.mean == 1e-300
    (_, first), (_, second) = losses(store, "a100000000000000")
    assert math.isnan(first) and second == math.inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": None}, "its label must be a valid string, got None"),
        ({"seed": "1"}, "its seed must be a valid integer, got '1'"),
        ({"seed": 1.5}, "its seed must be a valid integer, got 1.5"),
        ({"seed": 2**63}, "its seed must be less than 9223372036854775808, got 9223372036854775808"),
        ({"seed": -(2**63) - 1}, "its seed must be greater than or equal to -9223372036854775808"),
        ({"label": ""}, "its label must have at least 1 character, got ''"),
        ({"seed": 2**70}, "its seed must be less than"),
        ({"config": {"rate": math.nan}}, "cannot be stored as JSON"),
    ],
)
def test_a_run_that_cannot_be_stored(store: Store, make: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(StoreError, match=r"^[^\n]*$") as caught:
        store.add_study("s", evaluation={}, runs=[make.run("b100000000000000"), make.run("a100000000000000", **change)])
    assert words in str(caught.value)
    assert store.runs() == [], "all or nothing"
    assert store.studies() == []


def test_rows_that_cannot_be_stored(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    with pytest.raises(StoreError, match="has no run 'zz'"):
        store.add_answers("zz", [make.score(8)])


def test_finding_a_run_by_the_beginning_of_its_key(store: Store, make: Any) -> None:
    with pytest.raises(StoreError, match=r"there are no runs in .*; run a study first"):
        store.run("a")
    one, other, third = ("0a11" + "0" * 12, "0a12" + "0" * 12, "0b00" + "0" * 12)
    store.add_study("s", evaluation={}, runs=[make.run(key) for key in (one, other, third)])
    assert store.run("0b").key == third
    assert store.run(" 0B00 ").key == third
    assert store.run(one.upper()).key == one
    with pytest.raises(
        StoreError, match=rf"2 keys start with '0a1': {one} \(FIRE\(hidden_layers=1\), Copy, seed 0\), {other} "
    ):
        store.run("0a1")
    with pytest.raises(StoreError, match=rf"no run has a key that starts with '0a2'; similar keys: {one} .*{other} "):
        store.run("0a2")
    for unknown in ("", "%", "_"):
        with pytest.raises(StoreError, match=r"no run has a key that starts with"):
            store.run(unknown)


def test_an_unknown_study_names_the_near_miss(store: Store, make: Any) -> None:
    with pytest.raises(StoreError, match="there is no study 's'; there are no studies yet"):
        store.runs("s")
    store.add_study("quickstart", evaluation={}, runs=[make.run("a100000000000000")])
    for ask in (store.runs, store.progress, lambda name: store.claim(name, "w")):
        with pytest.raises(StoreError, match="no study 'quikstart'; did you mean 'quickstart'"):
            ask("quikstart")


def test_names_that_are_hard_to_store(store: Store, make: Any) -> None:
    name = "d\udce9j\x00à <b>'\"; DROP TABLE runs --"
    store.add_study(name, question=name, evaluation={"à": "\udce9"}, runs=[make.run("a100000000000000", label=name)])
    assert store.progress(name)["pending"] == 1
    assert store.claim(name, "elsewhere:1:w") is not None
    assert store.runs(name)[0].label == "d\\udce9j\\x00à <b>'\"; DROP TABLE runs --"
    assert store.studies()[0].evaluation == {"à": "\udce9"}


def test_many_runs_in_one_study(store: Store, make: Any) -> None:
    keys = [f"{n:016x}" for n in range(1200)]
    store.add_study("s", evaluation={}, runs=[make.run(key, (8,)) for key in keys])
    assert [row.key for row in store.runs("s")] == keys
    assert store.progress("s")["pending"] == 1200


def test_a_name_that_cannot_be_stored(store: Store, make: Any) -> None:
    with pytest.raises(StoreError, match="cannot be stored, its name must be one line of printable text"):
        store.add_study("two\nlines", evaluation={}, runs=[])
    assert store.studies() == []
