"""Compare the 189 scores of a complete quickstart with those that were stored on several processors.

    lengthwise run quickstart --results FOLDER     (five to nine minutes on two cores)
    python -m tests.frozen.quickstart FOLDER

With the same processor, version of Python (whose library is the text) and PyTorch, all of them are the same numbers.
Elsewhere, rounding differs, and a thousand training steps enlarge that. Then run the quickstart of the last commit and
store its scores, so that those of the next commits can be compared with them:

    python -m tests.frozen.quickstart FOLDER --record "my processor"
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lengthwise.cli import main as lengthwise
from tests.frozen.comparison import load, save

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "results" / "study-quickstart.json"
Scores = dict[str, float]  # by encoding, task, seed and length


def stored_scores() -> dict[str, Scores]:
    """Return the scores by processor."""
    benchmark = json.loads(BENCHMARK.read_text(encoding="utf-8"))
    rows = benchmark["figures"]["scores"]
    scores = {f"{row['label']}, {row['task']}, seed {row['seed']}, length {row['length']}": row["mean"] for row in rows}
    return {f"{benchmark['made']['processor']} ({BENCHMARK.name})": scores, **load("quickstart")}


def scores_of(results: str) -> Scores:
    """Return the scores of a results folder, as `lengthwise export scores` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scores.csv"
        if lengthwise(["export", "scores", "quickstart", "--out", str(file), "--results", results]) != 0:
            raise SystemExit(2)
        with file.open(newline="", encoding="utf-8") as lines:
            return {
                f"{row['label']}, {row['task']}, seed {row['seed']}, length {row['length']}": float(row["mean"])
                for row in csv.DictReader(lines)
            }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="results folder of a complete quickstart")
    parser.add_argument(
        "--record", metavar="PROCESSOR", help="store the scores under this name instead of comparing them"
    )
    options = parser.parse_args(arguments)
    current = scores_of(options.results)
    if options.record:
        save("quickstart", load("quickstart") | {options.record: current}, digits=17)
        return 0
    found = False
    for processor, expected in stored_scores().items():
        changed = [row for row in expected if current.get(row) != expected[row]]
        print(f"{processor}: {len(expected) - len(changed)} of {len(expected)} scores are the same numbers")
        found = found or not changed
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
