"""Measure how long `lengthwise serve` takes to answer on a large store while two other processes write to it.

    python benchmarks/serve.py --store
    python benchmarks/serve.py --folder FOLDER     # keeps the results, and uses them again

The store is that of large_store.py: 2,000 runs with 40 lengths each. A second study has the runs that the writers
train: each of them reports a step every 0.1 s, and every 20 steps it stores the scores of a run and takes the next one.
Each address is requested again and again over a new connection, as a browser would, and the time includes the whole
answer. The first requests are included.
"""

import argparse
import http.client
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from large_store import LENGTHS, NAMES, SEEDS, TASKS, fill
from record import save

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.store import open_results, worker_name
from lengthwise.studies import Study, grid
from lengthwise.tasks import Copy

WRITERS = 2
EVERY = 0.1  # seconds between two steps of a writer
STEPS = 20  # of a run
CHOSEN = 10  # runs side by side
REQUESTS = 60  # of each address


def write(folder: str) -> None:
    """Train made-up runs until there are none."""
    worker = worker_name()
    with open_results(folder, create=False) as store:
        while (row := store.claim("writing", worker)) is not None:
            for step in range(1, STEPS + 1):
                time.sleep(EVERY)
                store.heartbeat(row.key, worker, step, STEPS)
            curve = {"step": list(range(1, STEPS + 1)), "loss": [2.3 / step for step in range(1, STEPS + 1)]}
            score = {"mean": [0.5], "standard_error": [0.02], "n": [512]}
            answers = [("training", {}, curve), *(("scores", asked, score) for asked in row.questions)]
            store.add_answers(
                row.key,
                [{"measurement": m, "question": q, "rows": table, "facts": {}} for m, q, table in answers],
                worker=worker,
            )
            store.finish(row.key, worker, {"seconds": 2.0})


def prepare(folder: Path) -> list[str]:
    """Fill the store, and return the keys of runs to compare."""
    is_new = not (folder / "results.db").exists()
    with open_results(folder) as store:
        if is_new:
            fill(store)
        training = TrainingConfig(train_length=20, steps=STEPS)
        runs = grid(["nope", "rope"], [Copy], seeds=500, model=ModelConfig(), training=training)
        lengths = tuple(range(10, 10 + 10 * LENGTHS, 10))
        study = Study(name="writing", question="", runs=runs, evaluation=EvaluationConfig(lengths=lengths))
        store.add_study(**study.metadata(), runs=study.rows())
        members = store.members()
        return members["large"][:: len(members["large"]) // (CHOSEN - 1)][: CHOSEN - 1] + members["writing"][:1]


def seconds(port: int, address: str) -> float:
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", address)
    answer = connection.getresponse()
    answer.read()
    took = time.perf_counter() - start
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{address}: status {answer.status}")
    return took


def measure(folder: Path) -> dict[str, Any]:
    runs = ",".join(prepare(folder))
    addresses = {
        "studies": "/",
        "a study": f"/study?{urlencode({'name': 'large', 'page': 7})}",
        "a study with curves": f"/study?{urlencode({'name': 'large', 'runs': runs})}",
        "a study with a filter": f"/study?{urlencode({'name': 'large', 'words': 'seed 3'})}",
        "a study in progress": f"/study?{urlencode({'name': 'writing'})}",
        "runs side by side": f"/compare?{urlencode({'runs': runs})}",
        "report": f"/report?{urlencode({'study': 'large'})}",
        "style": "/files/style.css",
    }
    writers = [subprocess.Popen([sys.executable, __file__, "--write", str(folder)]) for _ in range(WRITERS)]
    command = [sys.executable, "-m", "lengthwise", "serve", "--port", "0", "--results", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        match = re.search(r":(\d+)/", line)
        assert match, line
        port = int(match[1])
        times: dict[str, list[float]] = {name: [] for name in addresses}
        for _ in range(REQUESTS):
            for name, address in addresses.items():
                times[name].append(seconds(port, address))
                time.sleep(0.02)
        assert all(writer.poll() is None for writer in writers), "a writer has ended too early"
    finally:
        for process in (server, *writers):
            process.terminate()
            process.wait()
    found: dict[str, Any] = {"runs": len(NAMES) * len(TASKS) * SEEDS, "lengths": LENGTHS, "writers": WRITERS}
    found |= {"runs side by side": CHOSEN, "requests of each address": REQUESTS}
    rows = [
        {
            "address": name,
            "median, ms": round(1000 * statistics.median(each), 1),
            "maximum, ms": round(1000 * max(each), 1),
        }
        for name, each in times.items()
    ]
    return found | {"answers": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep the results in this folder, and use those that it has")
    parser.add_argument("--store", action="store_true", help="store the figures in benchmarks/results/serve.json")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write)
        return
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(options.folder or Path(temporary))
    for row in found["answers"]:
        print(f"{row['address']:24} median {row['median, ms']:8} ms   maximum {row['maximum, ms']:8} ms")
    if options.store:
        save("serve", found)


if __name__ == "__main__":
    main()
