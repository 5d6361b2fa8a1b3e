"""Measure the time of a whole study with `backend="auto"` and with other backends, and compare their scores.

    python benchmarks/study_time.py [--study studies/quickstart.py] [--backends sdpa] [--sources FOLDER] [--rounds 1]

Each variant runs in its own process with an empty results folder, in the order auto, variant, auto. The wall time
includes imports, training, scores and the report. `--sources` is the `src` folder of another version, which runs its
own copy of the study. Scores are compared run by run and length by length. Two variants that round differently are two
trainings, so their scores differ.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import save

from lengthwise.store import open_store
from lengthwise.studies.provenance import commit

ROOT = Path(__file__).resolve().parent.parent
Scores = dict[tuple[str, str, int, int], float]  # encoding, task, seed, length


def done(study: str, way: str) -> tuple[float, dict[str, float], Scores]:
    """Seconds of the whole study; seconds of training by task and encoding; scores."""
    backend, sources = ("auto", Path(way)) if os.sep in way else (way, ROOT / "src")
    with tempfile.TemporaryDirectory(prefix="lengthwise-study-") as folder:
        command = [sys.executable, "-m", "lengthwise", "run", study, "--results", folder, "--backend", backend]
        begin = time.perf_counter()
        subprocess.run(
            command,
            cwd=sources.parent,
            env={**os.environ, "PYTHONPATH": str(sources)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - begin
        with open_store(folder) as store:
            runs = store.runs()
            scores = {
                (run.encoding, run.task, run.seed, score.length): score.mean
                for run in runs
                for score in store.scores([run.key])
            }
        trained: dict[str, float] = {}
        for run in runs:
            name = f"{run.task}, {run.label}"
            trained[name] = trained.get(name, 0.0) + run.facts["seconds"]
    return seconds, trained, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="studies/quickstart.py")
    parser.add_argument("--backends", default="sdpa")
    parser.add_argument("--sources", help="the src of another version")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    others = [x for x in args.backends.split(",") if x]
    if args.sources:
        others.append(str(Path(args.sources).resolve()))
    figures: dict[str, Any] = {"study": args.study}
    before = done(args.study, "auto")
    for other in others:
        ratios, trained, seconds = [], [], []
        for _ in range(args.rounds):
            its, after = done(args.study, other), done(args.study, "auto")
            seconds.append({"seconds": its[0], "auto before": before[0], "auto after": after[0]})
            ratios.append(2 * its[0] / (before[0] + after[0]))
            trained.append({name: 2 * x / (before[1][name] + after[1][name]) for name, x in its[1].items()})
            before = after
        assert before[2].keys() == its[2].keys(), "the two ways have other runs or questions"
        off = {key: abs(before[2][key] - x) for key, x in its[2].items()}
        per_task = {
            task: max(x for key, x in off.items() if key[1] == task) for task in sorted({key[1] for key in off})
        }
        name = "other sources" if os.sep in other else other
        figures[name] = {
            **(commit(Path(other, "lengthwise", "__init__.py")) if os.sep in other else {}),
            "of the time of auto": statistics.median(ratios), "ratios": ratios, "seconds": seconds,
            "training, of auto": {x: statistics.median(each[x] for each in trained) for x in trained[0]},
            "largest difference of a score": per_task,
        }  # fmt: skip
        print(f"\n{name}: {figures[name]['of the time of auto']:.2f} of the time of auto ({ratios}, {seconds})")
        for what, ratio in figures[name]["training, of auto"].items():
            print(f"  {what:40} training {ratio:.2f}")
        print("  largest difference of a score:", ", ".join(f"{task} {x:.3g}" for task, x in per_task.items()))
        save("study_time", figures)


if __name__ == "__main__":
    main()
