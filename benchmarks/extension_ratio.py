"""Print how much longer sequences each run of a study solves than it was trained on: its extension ratio.

    lengthwise run addition/robust --results robust
    python benchmarks/extension_ratio.py "addition: robust" --results robust

The ratio is the longest evaluated length up to which every score is at least 0.98, divided by the training length. A
run has learned its task if this holds for all evaluated lengths up to the training length; otherwise its ratio is 0.
For each combination of encoding, positions and task there is one row, with the ratios of all its seeds and orders of
the data; then, for the ingredients of robust addition, the mean ratio with and without each.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from lengthwise.store import Store, open_store
from lengthwise.store.rows import RunRow

INGREDIENTS = {  # by the configuration of a run
    "FIRE": lambda config: config["encoding"]["is"] == "FIRE",
    "randomized positions": lambda config: config["training"]["positions"] is not None,
    "reversed digits": lambda config: config["task"]["reverse"],
    "index hints": lambda config: config["task"].get("hints") is not None,
}


def extension_ratio(scores: Mapping[int, float], trained: int, least: float = 0.98) -> float:
    """Return the longest length up to which all scores are at least `least`, over the training length; 0 if not
    learned.
    """
    solved = 0
    for length in sorted(scores):
        if scores[length] < least:
            break
        solved = length
    return solved / trained if solved >= trained else 0.0


def ratios(store: Store, study: str, least: float) -> list[tuple[RunRow, float]]:
    """Return the finished runs of a study with their ratios."""
    finished = [run for run in store.runs(study) if run.status == "done"]
    scores = {run.key: {score.length: score.mean for score in store.scores([run.key])} for run in finished}
    return [(run, extension_ratio(scores[run.key], run.config["training"]["train_length"], least)) for run in finished]


def table(found: Sequence[tuple[RunRow, float]]) -> list[str]:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, ratio in found:
        groups[run.label, run.task].append(ratio)
    lines = [f"{'runs':>4} {'learned':>7} {'mean':>5} {'least':>5} {'most':>5}"]
    for (label, task), values in sorted(groups.items(), key=lambda group: -mean(group[1])):
        learned = sum(value > 0 for value in values)
        lines.append(
            f"{len(values):4} {learned:7} {mean(values):5.2f} {min(values):5.2f} {max(values):5.2f}  {label}, {task}"
        )
    return lines


def effects(found: Sequence[tuple[RunRow, float]]) -> list[str]:
    lines = [f"{'with':>5} {'without':>7}"]
    for name, has in INGREDIENTS.items():
        parts: tuple[list[float], list[float]] = ([], [])
        for run, ratio in found:
            parts[not has(run.config)].append(ratio)
        lines.append(
            " ".join(
                f"{mean(part) if part else math.nan:{width}.2f}" for part, width in zip(parts, (5, 7), strict=True)
            )
            + f"  {name}"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="its name, as `lengthwise list studies` says it")
    parser.add_argument("--results", required=True, help="the folder of its results")
    parser.add_argument("--least", type=float, default=0.98, help="the score of a solved length [default: 0.98]")
    asked: Any = parser.parse_args(arguments)
    with open_store(asked.results, create=False) as store:
        found = ratios(store, asked.study, asked.least)
    print("\n".join(table(found)))
    if found and all(run.config["task"]["is"] == "Addition" for run, _ in found):
        print("\n".join(effects(found)))


if __name__ == "__main__":
    main()
