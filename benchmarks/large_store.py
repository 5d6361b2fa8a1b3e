"""Measure commands on a large store: 2,000 runs (20 encodings, 10 tasks, 10 seeds) with 40 lengths each.

    python benchmarks/large_store.py --store
    python benchmarks/large_store.py --folder FOLDER     # keeps the results, and uses them again

The scores are made up and the runs were never trained; the rows are those that a study writes. Every command runs in a
process of its own, so its time includes the start of Python. The time until the page is painted is that of headless
Chromium.
"""

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import save

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.measurements import Table
from lengthwise.store import Store, open_results
from lengthwise.studies import Study, grid
from lengthwise.tasks import Copy

NAMES = [name for name in ENCODINGS.names() if name not in ("Learned",)][:20]
TASKS = [choose(Copy, symbols=symbols) for symbols in range(2, 12)]
SEEDS, LENGTHS, POINTS = 10, 40, 150
WORKER = "benchmark"


def the_study() -> Study:
    runs = grid(NAMES, TASKS, seeds=SEEDS, model=ModelConfig(), training=TrainingConfig(train_length=20, steps=5000))
    lengths = tuple(range(10, 10 + 10 * LENGTHS, 10))
    return Study(name="large", question="How fast?", runs=runs, evaluation=EvaluationConfig(lengths=lengths))


def answer(measurement: str, question: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    table = Table.from_rows(rows).to_data()
    return {"measurement": measurement, "question": question, "rows": table, "facts": {"seconds": 0.1}}


def fill(store: Store) -> None:
    """Store made-up scores and curves of all runs."""
    study = the_study()
    store.add_study(**study.metadata(), runs=study.rows())
    draw = random.Random(0)
    steepness = {name: draw.uniform(0.5, 5) for name in NAMES}
    while (row := store.claim("large", WORKER)) is not None:
        scale = 40 * steepness[row.encoding] * draw.uniform(0.8, 1.2)
        answers = []
        for asked in row.questions:
            mean = min(1.0, math.exp(-max(0.0, asked["length"] - 20) / scale))
            score = {"mean": mean, "standard_error": math.sqrt(mean * (1 - mean) / 512), "n": 512}
            answers.append(answer("scores", asked, [score]))
        points = [
            {
                "step": (n + 1) * 5000 // POINTS,
                "loss": 2.3 * math.exp(-n / 40) + 0.1 * draw.random(),
                "learning_rate": 1e-3 * (1 - n / POINTS),
                "gradient_norm": 1.0,
                "tokens_per_second": 1e4,
            }
            for n in range(POINTS)
        ]
        store.add_answers(row.key, [*answers, answer("training", {}, points)], worker=WORKER)
        store.finish(row.key, WORKER, {"seconds": 60.0, "parameters": 800_000, "device": "cpu", "backend": "fused"})


def seconds(*words: Any, folder: Path) -> float:
    command = [sys.executable, "-m", "lengthwise", *map(str, words), "--results", str(folder)]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def first_paint(page: Path) -> float | None:
    """Return the seconds until Chromium paints the page, or None without Chromium."""
    from playwright.sync_api import sync_playwright

    program = next((p for p in ("/usr/bin/chromium", "/usr/bin/google-chrome") if os.path.exists(p)), None)
    if program is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.resolve().as_uri())
        painted = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return float(painted) / 1000


def measure(folder: Path) -> dict[str, Any]:
    if not (folder / "results.db").exists():
        with open_results(folder) as store:
            fill(store)
    page = folder / "report.html"
    found: dict[str, Any] = {"runs": len(NAMES) * len(TASKS) * SEEDS, "lengths": LENGTHS, "points of a curve": POINTS}
    found["list runs, s"] = round(seconds("list", "runs", folder=folder), 2)
    found["report, s"] = round(seconds("report", "--study", "large", "--output", page, folder=folder), 2)
    found["page, MB"] = round(page.stat().st_size / 1e6, 2)
    out = folder / "scores.parquet"
    found["export to Parquet, s"] = round(
        seconds("export", "scores", "large", "--out", out, "--force", folder=folder), 2
    )
    found["first paint, s"] = first_paint(page)
    return {name: value for name, value in found.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="keep the results in this folder, and use those that it has")
    parser.add_argument("--store", action="store_true", help="store the figures in benchmarks/results/large_store.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(options.folder or Path(temporary))
    for name, value in found.items():
        print(f"{name:24} {value}")
    if options.store:
        save("large_store", found)


if __name__ == "__main__":
    main()
