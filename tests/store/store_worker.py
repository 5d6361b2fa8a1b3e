"""One process that works on a study, as an executor's worker does: claims, writes what it did, and finishes.

    python store_worker.py WHERE LOG RUNS PAUSE [hang]

A line of LOG is "claim KEY PID CLAIMS" or "finish KEY PID". With `hang`, the third run is claimed, never finished.
"""

import os
import random
import sys
import time
from pathlib import Path

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
        data = [{"key": k, "seed": 0, "train_length": 8, "config": {}, "asked": asked, **about} for k in keys]
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
                store.add_curve(row.key, [curve_point(1, 9.0), curve_point(7, 9.0)], worker=worker)
                print("holding", row.key, flush=True)
                time.sleep(999)
            for step in range(3):
                time.sleep(pause * chance.random())
                store.add_curve(row.key, [curve_point(step, 1.0)], worker=worker)
                assert store.heartbeat(row.key, worker, step, 3)
            for question in store.missing(row.key, row.asked):
                score = {"asked": question, "length": question["length"], "metric": "m", "better": "higher"}
                score |= {"n": 1, "mean": 0.5, "standard_error": 0.1, "out_of_distribution": False, "seconds": 0.1}
                store.add_scores(row.key, [score], worker=worker)
            store.finish(row.key, worker, {"pid": os.getpid()})
            write(f"finish {row.key} {os.getpid()}")


def curve_point(step: int, loss: float) -> dict[str, float]:
    return {"step": step, "loss": loss, "learning_rate": 0.1, "gradient_norm": 1.0, "tokens_per_second": 10.0}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:] == ["hang"])
