"""Measure what it costs to schedule runs: on one machine, and for many workers that share a PostgreSQL server.

    python benchmarks/scheduling.py [--runs 500] [--seconds 1] [--store postgresql://user@host/name]

`runs` of `seconds` each are executed by two worker processes on this machine. Scheduling costs the part of the workers'
time, from the start of the first run to the end of the last one, in which they have no run.

With --store, the address of an empty database, 200 simulated workers (50 threads in each of 4 processes) claim and
finish 5,000 runs, and then 16 processes store scores of 16 runs at once. Each worker has a connection of its own all
the time, so the server needs `max_connections` of at least 250.
"""

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from record import save
from stand_in import study as stand_in

from lengthwise.config import Local
from lengthwise.store import Store, open_store
from lengthwise.studies import Event, execute
from lengthwise.studies.events import Done, Started

PROCESSES, THREADS, CLAIMS = 4, 50, 5000
START_SECONDS = 20.0  # in which the simulated workers open the store
WRITERS, SCORES = 16, 200
QUESTION = {"length": 2, "examples": 4, "seed": 0}


def on_this_machine(runs: int, seconds: float, workers: int = 2) -> dict[str, Any]:
    times: list[float] = []
    inside = 0.0

    def listen(event: Event) -> None:
        nonlocal inside
        if isinstance(event, (Started, Done)):
            times.append(time.perf_counter())
        if isinstance(event, Done):
            inside += event.seconds

    with tempfile.TemporaryDirectory(prefix="lengthwise-scheduling-") as folder:
        begin = time.perf_counter()
        outcome = execute(stand_in(runs, seconds), folder, executor=Local(workers=workers), on_event=listen)
        wall = time.perf_counter() - begin
    assert outcome.counts["done"] == runs
    assert inside >= runs * seconds, "every run waits"
    between = workers * (times[-1] - times[0])
    return {
        "runs": runs,
        "workers": workers,
        "seconds_per_run": inside / runs,
        "scheduling_share": 1 - inside / between,
        "start_and_end_seconds": wall - (times[-1] - times[0]),
        "wall_seconds": wall,
    }


def row(number: int, asked: list[dict[str, Any]]) -> dict[str, Any]:
    names = {
        "label": "NoPE",
        "encoding": "NoPE",
        "task": "Copy",
        "metric": "accuracy",
        "better": "higher",
        "unit": "symbols",
    }
    config = {"training": {"steps": 1}}
    return {"key": f"{number:016x}", **names, "seed": number, "train_length": 2, "config": config, "questions": asked}


def answer(measurement: str, question: dict[str, Any], **columns: list[Any]) -> dict[str, Any]:
    return {"measurement": measurement, "question": question, "rows": columns, "facts": {}}


def claim_all(store: Store, worker: str) -> list[tuple[str, float]]:
    """Claim and finish runs until none is left. Return their keys and the seconds of each claim."""
    claimed = []
    while True:
        begin = time.perf_counter()
        run = store.claim("claims", worker)
        if run is None:
            return claimed
        claimed.append((run.key, time.perf_counter() - begin))
        store.finish(run.key, worker, {})


def claiming_process(address: str, begin: float, process: int) -> list[tuple[str, float]]:
    stores = [open_store(address, create=False) for _ in range(THREADS)]
    time.sleep(max(0.0, begin - time.time()))  # all workers begin together
    with ThreadPoolExecutor(THREADS) as pool:
        names = [f"simulated:{process * THREADS + n + 1}:0-0-0" for n in range(THREADS)]
        return [pair for pairs in pool.map(claim_all, stores, names) for pair in pairs]


def claims(address: str) -> dict[str, Any]:
    with open_store(address) as store:
        store.add_study("claims", evaluation={}, runs=[row(n, []) for n in range(CLAIMS)])
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        begin = time.time() + START_SECONDS
        work = partial(claiming_process, address, begin)
        claimed = [pair for pairs in pool.map(work, range(PROCESSES)) for pair in pairs]
        seconds = time.time() - begin
    with open_store(address, create=False) as store:
        assert store.progress("claims") == {"pending": 0, "running": 0, "done": CLAIMS, "failed": 0}
        assert all(run.claims == 1 for run in store.runs("claims"))
    assert len({key for key, _ in claimed}) == len(claimed) == CLAIMS
    waits = sorted(wait for _, wait in claimed)
    return {
        "workers": PROCESSES * THREADS,
        "runs": CLAIMS,
        "claims_per_second": CLAIMS / seconds,
        "median_claim_seconds": waits[len(waits) // 2],
        "slowest_claim_seconds": waits[-1],
    }


def write(address: str, writer: int) -> int:
    with open_store(address, create=False) as store:
        worker = f"simulated:{writer + 1}:0-0-0"
        run = store.claim("writers", worker)
        assert run is not None
        for number in range(SCORES):
            question = {**QUESTION, "seed": number}
            score = answer("scores", question, mean=[0.5], standard_error=[0.1], n=[4])
            store.add_answers(run.key, [score], worker=worker)
            store.heartbeat(run.key, worker, number, SCORES)
        store.finish(run.key, worker, {})
        return SCORES


def writers(address: str) -> dict[str, Any]:
    with open_store(address) as store:
        store.add_study("writers", evaluation={}, runs=[row(CLAIMS + n, [QUESTION]) for n in range(WRITERS)])
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        begin = time.perf_counter()
        written = sum(pool.map(write, [address] * WRITERS, range(WRITERS)))
        seconds = time.perf_counter() - begin
    with open_store(address, create=False) as store:
        for run in store.runs("writers"):
            assert len(store.scores([run.key])) == SCORES
            assert run.status == "done" and run.claims == 1
    return {"processes": WRITERS, "scores": written, "scores_per_second": written / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--store", help="address of an empty PostgreSQL database")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/scheduling.json")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    if arguments.store:
        figures["claims"] = claims(arguments.store)
        print(figures["claims"], flush=True)
        figures["writers"] = writers(arguments.store)
        print(figures["writers"], flush=True)
    if arguments.runs:
        figures["on_this_machine"] = on_this_machine(arguments.runs, arguments.seconds)
        print(figures["on_this_machine"], flush=True)
    if arguments.save:
        save("scheduling", figures)


if __name__ == "__main__":
    main()
