"""One process that works on a study, as an executor's worker does: claims, writes what it did, and finishes.

    python store_worker.py WHERE LOG RUNS PAUSE [hang]

A line of LOG is "claim KEY PID CLAIMS" or "finish KEY PID". With `hang`, the third run is claimed, never finished.
"""

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from lengthwise.store import open_store, worker_name


def main(where: str, log: Path, runs: int, pause: float, hang: bool) -> None:
    worker = worker_name()
    keys = [f"{n:016x}" for n in range(runs)]
    about = {"label": "L", "encoding": "E", "task": "T", "metric": "m", "better": "higher", "unit": "u"}
    asked = [{"length": 8}, {"length": 16}]
    chance = random.Random(os.getpid())

    def write(line: str) -> None:
        with log.open("a") as file:  # a short line in one write to the end of the file: processes do not mix
            file.write(line + "\n")

    with open_store(where) as store:
        data = [{"key": k, "seed": 0, "train_length": 8, "config": {}, "questions": asked, **about} for k in keys]
        store.add_study("s", evaluation={}, runs=data)
        print("ready", flush=True)
        claims = 0
        while True:
            row = store.claim("s", worker)
            if row is None:
                if not store.progress("s")["running"] + store.progress("s")["pending"]:
                    return
                time.sleep(0.02)
                continue
            write(f"claim {row.key} {os.getpid()} {row.claims}")
            claims += 1
            if hang and claims == 3:
                store.add_answers(row.key, [answer("training", {}, step=[1, 7], loss=[9.0, 9.0])], worker=worker)
                print("holding", row.key, flush=True)
                time.sleep(999)
            for step in range(3):
                time.sleep(pause * chance.random())
                assert store.heartbeat(row.key, worker, step, 3)
            store.add_answers(row.key, [answer("training", {}, step=[1, 2], loss=[1.0, 1.0])], worker=worker)
            for question in store.missing(row.key, row.questions):
                store.add_answers(
                    row.key, [answer("scores", question, mean=[0.5], standard_error=[0.1], n=[1])], worker=worker
                )
            store.finish(row.key, worker, {"pid": os.getpid()})
            write(f"finish {row.key} {os.getpid()}")


def answer(measurement: str, question: dict[str, Any], **rows: list[Any]) -> dict[str, Any]:
    return {"measurement": measurement, "question": question, "rows": rows, "facts": {}}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:] == ["hang"])
