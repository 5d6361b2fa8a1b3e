"""Claims: one worker per run, dead workers lose theirs, and who lost a claim cannot write."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lengthwise.store import ClaimLost, Store, StoreError, claims, open_store, schema, worker_name
from lengthwise.store.claims import MAX_DEATHS
from lengthwise.store.workers import is_dead
from tests.made_answers import losses

FAR = "elsewhere:1:a"
FAR_TOO = "elsewhere:1:b"


@pytest.fixture
def study(store: Store, make: Any) -> Store:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000"), make.run("b100000000000000")])
    return store


def claimed(store: Store, worker: str) -> str | None:
    row = store.claim("s", worker)
    return None if row is None else row.key


def test_runs_are_claimed_once_in_the_study_s_order(study: Store) -> None:
    row = study.claim("s", FAR)
    assert row is not None
    assert (row.key, row.worker, row.status, row.claims) == ("a100000000000000", FAR, "running", 1)
    assert claimed(study, FAR_TOO) == "b100000000000000"
    assert claimed(study, FAR) is None
    assert study.progress("s") == {"pending": 0, "running": 2, "done": 0, "failed": 0}


def test_a_released_run_is_claimed_again(study: Store) -> None:
    claimed(study, FAR)
    assert not study.release("a100000000000000", FAR_TOO), "not by another"
    assert study.release("a100000000000000", FAR)
    assert not study.release("a100000000000000", FAR)
    assert study.run("a100000000000000").status == "pending"
    assert claimed(study, FAR_TOO) == "a100000000000000"


def test_a_heartbeat_tells_how_far_it_is_and_keeps_the_run(study: Store, silence: Callable[[str, float], None]) -> None:
    claimed(study, FAR)
    silence("a100000000000000", 59)
    assert study.heartbeat("a100000000000000", FAR, 120, 1000)
    silence("a100000000000000", 59)
    assert (
        study.run("a100000000000000").step,
        study.run("a100000000000000").steps,
        study.run("a100000000000000").status,
    ) == (120, 1000, "running")
    assert claimed(study, FAR_TOO) == "b100000000000000"
    assert not study.heartbeat("a100000000000000", FAR_TOO, 1, 2)
    assert not study.heartbeat("zz", FAR, 1, 2)


def test_sixty_seconds_of_silence_lose_the_run(study: Store, silence: Callable[[str, float], None]) -> None:
    claimed(study, FAR)
    study.heartbeat("a100000000000000", FAR, 120, 1000)
    silence("a100000000000000", 61)
    assert study.run("a100000000000000").status == "pending", "it shows as what it is: waiting for someone"
    row = study.claim("s", FAR_TOO)
    assert row is not None
    assert (row.key, row.worker, row.claims, row.step) == ("a100000000000000", FAR_TOO, 2, 120)


def test_a_clock_that_was_set_back_does_not_hold_a_run_for_hours(
    study: Store, silence: Callable[[str, float], None]
) -> None:
    claimed(study, FAR)
    silence("a100000000000000", -3600)
    assert claimed(study, FAR_TOO) == "a100000000000000"


@pytest.mark.parametrize("later", ["claimed", "finished", "released"])
def test_who_lost_the_claim_cannot_write(
    study: Store, make: Any, silence: Callable[[str, float], None], later: str
) -> None:
    claimed(study, FAR)
    study.add_answers("a100000000000000", [make.curve(make.point(10, 2.0))], worker=FAR)
    silence("a100000000000000", 61)
    assert claimed(study, FAR_TOO) == "a100000000000000"
    study.add_answers("a100000000000000", [make.curve(make.point(10, 2.0), make.point(20, 1.0))], worker=FAR_TOO)
    if later == "finished":
        study.add_answers("a100000000000000", [make.score(8, 0.5), make.score(16, 0.5)], worker=FAR_TOO)
        study.finish("a100000000000000", FAR_TOO, {"by": "b"})
    elif later == "released":
        study.release("a100000000000000", FAR_TOO)
    before = study.run("a100000000000000"), study.answers(["a100000000000000"])

    assert not study.heartbeat("a100000000000000", FAR, 999, 1000)
    assert not study.release("a100000000000000", FAR)
    assert not study.fail("a100000000000000", FAR, "late")
    with pytest.raises(
        ClaimLost, match=f"run a100000000000000 is (not )?held by .*, so {FAR} cannot write to it; nothing was stored"
    ):
        study.add_answers(
            "a100000000000000", [make.score(8, 0.1), make.score(16, 0.1), make.score(32, 0.1)], worker=FAR
        )
    with pytest.raises(ClaimLost):
        study.add_answers("a100000000000000", [make.curve(make.point(5, 9.0))], worker=FAR)
    with pytest.raises(ClaimLost):
        study.finish("a100000000000000", FAR, {"by": "a"})
    assert (study.run("a100000000000000"), study.answers(["a100000000000000"])) == before


def test_a_trained_run_with_a_question_open_is_pending(study: Store, make: Any) -> None:
    claimed(study, FAR)
    study.add_answers("a100000000000000", [make.score(8)], worker=FAR)
    study.finish("a100000000000000", FAR, {})
    assert study.run("a100000000000000").status == "pending"


def test_a_question_that_comes_while_a_run_is_worked_on_is_not_lost(study: Store, make: Any) -> None:
    claimed(study, FAR)
    study.add_study("s", evaluation={}, runs=[make.run("a100000000000000", (8, 16, 32))])
    study.add_answers("a100000000000000", [make.score(8), make.score(16)], worker=FAR)
    study.finish("a100000000000000", FAR, {})
    assert study.progress("s")["pending"] == 1
    row = study.claim("s", FAR)
    assert row is not None
    assert study.missing("a100000000000000", row.questions) == [make.question(32)]


def test_the_last_moment_before_finish_is_not_lost(
    study: Store, make: Any, silence: Callable[[str, float], None]
) -> None:
    """Killed after the last score and before `finish`: another claims it, has nothing left to answer, and finishes."""
    claimed(study, FAR)
    study.add_answers("a100000000000000", [make.score(8), make.score(16)], worker=FAR)
    silence("a100000000000000", 61)
    row = study.claim("s", FAR_TOO)
    assert row is not None
    assert study.missing("a100000000000000", row.questions) == []
    study.finish("a100000000000000", FAR_TOO, {})
    assert study.run("a100000000000000").status == "done"


# ---- dead or alive ----------------------------------------------------------------------------------------------


def test_a_process_that_ended_is_dead_at_once_and_this_one_lives(study: Store) -> None:
    code = "from lengthwise.store.workers import worker_name; print(worker_name())"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert is_dead(ended, 0.0)
    mine, mine_too = worker_name(), worker_name()
    assert mine != mine_too
    assert not is_dead(mine, 0.0)
    assert is_dead(mine, 61.0)
    assert claimed(study, ended) == "a100000000000000"
    assert claimed(study, mine) == "a100000000000000", "the dead worker's run is there at once"
    assert claimed(study, mine_too) == "b100000000000000", "two workers of one process are two"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process started")
def test_a_pid_that_another_process_got_is_not_the_worker() -> None:
    host, pid, token = worker_name().rsplit(":", 2)
    namespace, started, rest = token.split("-")
    assert is_dead(f"{host}:{pid}:{namespace}-{int(started) - 1}-{rest}", 0.0)
    assert not is_dead(f"{host}:{pid}:{namespace}-{started}-{rest}", 0.0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="zombies are seen through /proc")
def test_a_killed_child_that_nobody_waited_for_is_dead() -> None:
    code = "import time; from lengthwise.store import worker_name; print(worker_name(), flush=True); time.sleep(99)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not is_dead(name, 0.0)
    child.kill()
    assert child.stdout.read() == ""  # it is gone, and as long as nobody calls wait() it is a zombie
    os.kill(child.pid, 0)
    for _ in range(100):
        if is_dead(name, 0.0):
            break
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(name, 0.0)
    child.wait()


def test_only_silence_tells_about_workers_elsewhere() -> None:
    host, _, token = worker_name().rsplit(":", 2)
    namespace, started, rest = token.split("-")
    unused_pid = 2**22 + 1
    elsewhere = [
        f"other:{unused_pid}:{token}",
        f"{host}:{unused_pid}:{namespace}1-{started}-{rest}",
        "w",
        "a:b:c",
        "::",
    ]
    for worker in elsewhere:
        assert not is_dead(worker, 59.0)
        assert is_dead(worker, 61.0)
    if sys.platform != "win32":
        assert is_dead(f"{host}:{unused_pid}:{token}", 0.0)


@pytest.mark.medium
def test_threads_share_a_store(store: Store, make: Any) -> None:
    """A worker's heartbeat may come from a thread of its own while the main one writes."""
    store.add_study("s", evaluation={}, runs=[make.run(f"{n:016x}") for n in range(24)])

    def work(number: int) -> list[str]:
        worker, done = f"elsewhere:{number}:w", []
        while (key := claimed(store, worker)) is not None:
            for step in range(3):
                store.add_answers(key, [make.curve(make.point(step))], worker=worker)
                assert store.heartbeat(key, worker, step, 3)
            store.add_answers(key, [make.score(8), make.score(16)], worker=worker)
            store.finish(key, worker, {})
            done.append(key)
        return done

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(4)))
    assert sorted(key for keys in done for key in keys) == [f"{n:016x}" for n in range(24)]
    assert {(row.status, row.claims) for row in store.runs()} == {("done", 1)}


def test_two_stores_see_each_other_s_claims(where: str, make: Any) -> None:
    with open_store(where) as one, open_store(where) as two:
        one.add_study("s", evaluation={}, runs=[make.run("a100000000000000"), make.run("b100000000000000")])
        assert claimed(two, FAR) == "a100000000000000"
        assert claimed(one, FAR_TOO) == "b100000000000000"
        assert claimed(two, FAR_TOO) is None


# ---- runs that are dropped --------------------------------------------------------------------------------------


def test_a_run_that_is_trained_again_has_the_curve_of_its_last_training(study: Store, make: Any) -> None:
    key = claimed(study, FAR)
    assert key is not None
    study.add_answers(key, [make.score(8), make.score(16), make.curve(make.point(5))], worker=FAR)
    study.finish(key, FAR, facts={})
    assert study.reopen([key]) == 1
    assert [answer.measurement for answer in study.answers([key])] == ["scores"] * 2
    assert claimed(study, FAR) == key
    study.add_answers(key, [make.curve(make.point(7))], worker=FAR)
    assert [step for step, _ in losses(study, key)] == [7]


def test_a_dropped_run_leaves_nothing(study: Store, make: Any) -> None:
    row = study.claim("s", FAR)
    assert row is not None
    study.add_answers("a100000000000000", [make.curve(make.point(5))], worker=FAR)
    study.fail("a100000000000000", FAR, "out of memory")
    study.add_answer("a100000000000000", "m", {}, {}, {})
    (dropped,) = study.drop(["a100000000000000"]).runs
    assert (dropped.key, dropped.status, dropped.error) == ("a100000000000000", "failed", "out of memory")
    assert [run.key for run in study.runs("s")] == ["b100000000000000"]
    assert study.progress("s") == {"pending": 1, "running": 0, "done": 0, "failed": 0}
    assert not study.answers(["a100000000000000"])
    study.add_study("s", evaluation={}, runs=[make.run("a100000000000000"), make.run("b100000000000000")])
    assert (study.run("a100000000000000").claims, study.run("a100000000000000").status) == (0, "pending"), (
        "it begins anew"
    )


@pytest.mark.medium
def test_all_are_dropped_or_none(study: Store, make: Any) -> None:
    assert claimed(study, FAR) == "a100000000000000"
    with pytest.raises(StoreError, match=r"run a1000000 .* is running; .* nothing was deleted"):
        study.drop(["b100000000000000", "a100000000000000"])
    study.add_answers("a100000000000000", [make.score(8), make.score(16)], worker=FAR)
    study.finish("a100000000000000", FAR, {})
    with pytest.raises(StoreError, match="is finished and its results would be lost"):
        study.drop(["b100000000000000", "a100000000000000"])
    with pytest.raises(StoreError, match="has no run 'zz'"):
        study.drop(["b100000000000000", "zz"])
    assert [run.key for run in study.runs("s")] == ["a100000000000000", "b100000000000000"]
    dropped = study.drop(["b100000000000000", "a100000000000000", "b100000000000000"], finished=True)
    assert [run.key for run in dropped.runs] == ["b100000000000000", "a100000000000000"]
    assert study.runs() == []
    assert dropped.studies == ("s",)
    assert study.studies() == [], "a study without runs is not listed"
    assert study.scores(["a100000000000000"]) == []


def test_what_a_dead_worker_s_last_transaction_finishes_is_not_claimed(
    study: Store, make: Any, silence: Callable[[str, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may still be at it while another worker looks for runs."""
    claimed(study, FAR)
    study.add_answers("a100000000000000", [make.score(8), make.score(16)], worker=FAR)
    silence("a100000000000000", 61)
    seen, claimable = [], claims.claimable

    def late(connection: Any, *arguments: Any) -> Any:
        for row in claimable(connection, *arguments):
            if not seen:
                seen.append(row)
                values = {
                    "worker": None,
                    "heartbeat": None,
                    "finished": 1.0,
                }  # as `finish` leaves it, after the reading
                connection.execute(schema.runs.update().where(schema.runs.c.key == "a100000000000000").values(values))
            yield row

    monkeypatch.setattr(claims, "claimable", late)
    assert claimed(study, FAR_TOO) == "b100000000000000"
    assert study.run("a100000000000000").claims == 1


# ---- studies that are dropped -----------------------------------------------------------------------------------

A, B, C, D = ("a1" + "0" * 14, "b1" + "0" * 14, "c1" + "0" * 14, "d1" + "0" * 14)


def test_dropping_a_study_keeps_what_is_finished_shared_or_held(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run(key) for key in (A, B, C, D)])
    store.add_study("other", evaluation={}, runs=[make.run(C)])
    assert claimed(store, FAR) == A
    store.add_answers(A, [make.score(8), make.score(16)], worker=FAR)
    store.finish(A, FAR, {})
    assert claimed(store, FAR) == B
    dropped = store.drop_study("s")
    assert [run.key for run in dropped.runs] == [D]
    assert {run.key: why for run, why in dropped.remaining} == {
        A: "it is finished; --finished deletes it too",
        B: "it is running",
        C: "study other lists it too",
    }
    assert dropped.studies == ()
    assert [study.name for study in store.studies()] == ["s", "other"]
    store.release(B, FAR)
    dropped = store.drop_study("s", finished=True)
    assert [run.key for run in dropped.runs] == [A, B]
    assert dropped.studies == ("s",)
    assert [study.name for study in store.studies()] == ["other"]
    assert [run.key for run in store.runs()] == [C]
    assert store.scores([A]) == []


def test_the_last_run_takes_its_study_along(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run(A), make.run(B)])
    store.add_study("other", evaluation={}, runs=[make.run(B)])
    assert store.drop([A]).studies == ()
    assert store.drop([B]).studies == ("other", "s")
    assert store.studies() == []


def test_runs_that_leave_a_study_are_returned(store: Store, make: Any) -> None:
    assert store.add_study("s", evaluation={}, runs=[make.run(A), make.run(B)]) == []
    assert [run.key for run in store.add_study("s", evaluation={}, runs=[make.run(B), make.run(C)])] == [A]
    assert store.add_study("s", evaluation={}, runs=[make.run(B), make.run(C)]) == []
    assert {run.key for run in store.runs()} == {A, B, C}


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_failed_run_is_claimed_again_after_retry(study: Store) -> None:
    assert claimed(study, FAR) == "a100000000000000"
    assert study.release("a100000000000000", FAR, failed=True)
    row = study.claim("s", FAR)
    assert row is not None and (row.key, row.failures) == ("a100000000000000", 1)
    assert study.fail("a100000000000000", FAR, "out of memory")
    row = study.run("a100000000000000")
    assert (row.status, row.error, row.failures) == ("failed", "out of memory", 2)
    assert study.retry(["a100000000000000", "b100000000000000"]) == ["a100000000000000"]
    row = study.run("a100000000000000")
    assert (row.status, row.error, row.failures) == ("pending", None, 0)


def test_cancelled_runs_are_taken_from_their_workers(study: Store, make: Any) -> None:
    assert claimed(study, FAR) == "a100000000000000"
    assert study.cancel(["a100000000000000", "b100000000000000"]) == ["a100000000000000", "b100000000000000"]
    assert not study.heartbeat("a100000000000000", FAR, 5, 10)
    with pytest.raises(ClaimLost):
        study.add_answers("a100000000000000", [make.curve(make.point(5))], worker=FAR)
    assert claimed(study, FAR) is None
    assert not study.is_unfinished("s")
    assert [(row.status, row.error) for row in study.runs("s")] == [("failed", "cancelled")] * 2
    assert study.cancel(["a100000000000000"]) == []


def test_a_run_whose_workers_always_die_fails(study: Store, silence: Callable[[str, float], None]) -> None:
    study.fail("b100000000000000", FAR, "not claimed, so nothing happens")
    for death in range(MAX_DEATHS):
        row = study.claim("s", f"elsewhere:{death}:w")
        assert row is not None and (row.key, row.deaths) == ("a100000000000000", death)
        silence("a100000000000000", 61)
    assert claimed(study, FAR) == "b100000000000000"
    row = study.run("a100000000000000")
    assert (row.status, row.worker) == ("failed", None)
    assert row.error == "its workers ended 5 times without progress; if memory ran out, use fewer workers per machine"


@pytest.mark.parametrize("progress", ["step", "release"])
def test_progress_forgives_deaths(study: Store, silence: Callable[[str, float], None], progress: str) -> None:
    for death in range(2 * MAX_DEATHS):
        row = study.claim("s", f"elsewhere:{death}:w")
        assert row is not None and (row.key, row.deaths) == ("a100000000000000", death % (MAX_DEATHS - 1))
        if death % (MAX_DEATHS - 1) == MAX_DEATHS - 2:
            if progress == "step":
                assert study.heartbeat("a100000000000000", f"elsewhere:{death}:w", 10 + death, 1000)
                assert study.run("a100000000000000").deaths == 0
                study.release("a100000000000000", f"elsewhere:{death}:w")
            else:
                assert study.release("a100000000000000", f"elsewhere:{death}:w")
        else:
            assert study.heartbeat("a100000000000000", f"elsewhere:{death}:w", 0, 1000)
            silence("a100000000000000", 61)
