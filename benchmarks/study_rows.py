"""Store the rows of a finished study, so that claims in the documentation can be checked.

    lengthwise run studies/nope/small.py --results /tmp/nope-small
    python benchmarks/study_rows.py "nope: small" --results /tmp/nope-small --name study-nope-small

The file contains every score with the key, commit, machine, steps and learning rate of its run, the means over seeds
with their intervals, and mean reciprocal ranks. Scores on functions in context have the means of groups of prompts, on
which their intervals depend (docs/statistics.md). A panel is a set of runs whose scores may be compared with each
other: its settings, its baselines and the versions of its classes decide whether a score answers a claim
(docs/claims.py). A study that is not finished is refused, because its rows would be mistaken for the whole study.
"""

import argparse
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import save, without_folders

from lengthwise.analysis import TaskFindings, findings, ranking
from lengthwise.analysis.claims.evidence import class_versions
from lengthwise.config import ConfigError
from lengthwise.store import RunRow, Store, open_store

RUN = (
    "commit",
    "uncommitted_changes",
    "device",
    "platform",
    "python",
    "threads",
    "matmul_library",
    "versions",
)  # facts of a run that stay


def rows_of(store: Store, study: str) -> dict[str, Any]:
    """Everything of a study that its documents quote. `ConfigError` where a run of it is not done."""
    known = {row.name: row for row in store.studies()}
    if study not in known:
        raise ConfigError(f"there is no study {study!r} in these results; there are: {', '.join(known)}")
    runs = store.runs(study)
    if undone := [run.key for run in runs if run.status != "done"]:
        raise ConfigError(
            f"{len(undone)} of {len(runs)} runs of {study!r} are not done, such as {undone[0]}; finish it first"
        )
    found = findings(store, study)
    order = ranking(found.tasks)
    return {
        "study": study,
        "command": shlex.join(map(without_folders, shlex.split(known[study].command))),
        "runs": [
            {
                "key": run.key,
                "label": run.label,
                "task": run.task,
                "seed": run.seed,
                "seconds": run.facts.get("seconds"),
                "steps": run.step,
                "learning_rate": (run.config.get("training") or {}).get("learning_rate"),
            }
            | {name: run.facts.get(name) for name in RUN}
            for run in runs
        ],
        "panels": [panel_of(task, runs) for task in found.tasks],
        "scores": [
            {
                "key": run.key,
                "label": run.label,
                "task": run.task,
                "seed": run.seed,
                "length": score.length,
                "asked": score.question,
                "metric": run.metric,
                "n": score.n,
                "mean": number(score.mean),
                "standard_error": number(score.standard_error),
            }
            | ({"groups": score.groups} if score.groups and math.isfinite(score.mean) else {})
            for run in runs
            for score in store.scores([run.key])
        ],
        "means": [
            {
                "task": task.title,
                "label": series.label,
                "length": point.length,
                "kind": task.kind(point.length),
                "seeds": point.n_seeds,
                "mean": number(point.interval.mean),
                "low": number(point.interval.low),
                "high": number(point.interval.high),
            }
            for task in found.tasks
            for series in task.series
            for point in series.points
        ],
        "ranks": []
        if order is None
        else [
            {"label": rank.label, **{name: number(getattr(rank.longer, name)) for name in ("mean", "low", "high")}}
            for rank in order.ranks
            if rank.longer is not None
        ],
    }


def panel_of(task: TaskFindings, runs: Sequence[RunRow]) -> dict[str, Any]:
    """Return the facts of runs whose scores may be compared with each other."""
    configs = [run.config for run in runs if run.key in task.keys]
    classes: dict[str, int] = {}
    for config in configs:
        classes |= class_versions(config)
    return {
        "title": task.title,
        "task": task.name,
        "metric": task.metric.name,
        "better": task.metric.better,
        "unit": task.unit,
        "train_length": task.train_length,
        "shortest": task.shortest,
        "trained": task.trained or (task.shortest, task.train_length),
        "settings": {
            name: without_folders(value) if name == "task.path" else value for name, value in task.settings.items()
        },
        "baselines": [
            {"label": baseline.label, "floor": baseline.floor, "scores": dict(baseline.scores)}
            for baseline in task.baselines
        ],
        "classes": classes,
        "keys": task.keys,
    }


def without_paths(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows without the folders of this machine's paths, which are settings of tests on another text."""
    asked = (score["asked"].get("shift", {}).get("path", "") for score in rows["scores"])
    text = json.dumps(rows)
    for path in {path for path in asked if Path(path).is_absolute()}:
        text = text.replace(json.dumps(path)[1:-1], without_folders(path))
    return dict(json.loads(text))


def number(value: float) -> float | None:
    """A number that JSON has; None for one that is not finite."""
    return value if math.isfinite(value) else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="its name, as `lengthwise list studies` says it")
    parser.add_argument("--results", required=True, help="the folder of its results")
    parser.add_argument("--name", required=True, help="of the file in benchmarks/results, without .json")
    asked = parser.parse_args(arguments)
    try:
        with open_store(asked.results, create=False) as store:
            rows = without_paths(rows_of(store, asked.study))
    except ValueError as error:
        parser.exit(2, f"study_rows: {error}\n")
    save(asked.name, rows)


if __name__ == "__main__":
    main()
