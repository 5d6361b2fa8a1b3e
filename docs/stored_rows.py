"""The scores in benchmarks/results, which generated pages quote, as findings of studies."""

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from lengthwise.analysis.differences import flat
from lengthwise.analysis.estimates import Estimate, interval_of
from lengthwise.analysis.findings import SHIFTED, Baseline, Point, Series, TaskFindings
from lengthwise.metrics import stored_metric

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def stored_studies() -> dict[str, dict[str, Any]]:
    """Return what `benchmarks/study_rows.py` stored, by the name of the study."""
    files = (json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("study-*.json")))
    return {stored["figures"]["study"]: stored["figures"] for stored in files}


def tasks_of(figures: dict[str, Any]) -> tuple[TaskFindings, ...]:
    """Return the findings of a stored study."""
    return tuple(findings_of(panel, figures["scores"]) for panel in figures["panels"])


def findings_of(panel: dict[str, Any], scores: list[dict[str, Any]]) -> TaskFindings:
    """Return the findings of a panel: scores that may be compared with each other."""
    metric = stored_metric(panel["metric"], panel["better"], None)
    keys, shift = set(panel["keys"]), {n: value for n, value in panel["settings"].items() if n.startswith(SHIFTED)}
    by_label: dict[str, dict[int, list[Estimate]]] = defaultdict(lambda: defaultdict(list))
    for row in scores:
        if row["key"] in keys and flat(row["asked"].get("shift", {}), SHIFTED) == shift:
            score = {name: row[name] for name in ("key", "seed", "mean", "standard_error", "n")}
            finite = {name: math.nan if value is None else value for name, value in score.items()}  # JSON has no NaN
            estimate = Estimate(**finite, groups=tuple(row.get("groups", ())))
            by_label[row["label"]][row["length"]].append(estimate)

    def point(length: int, seeds: list[Estimate]) -> Point:
        return Point(
            length=length,
            interval=interval_of(seeds, metric.limits, share=metric.share),
            seeds=tuple(seeds),
        )

    return TaskFindings(
        title=panel["title"],
        name=panel["task"],
        metric=metric,
        unit=panel["unit"],
        train_length=panel["train_length"],
        shortest=panel["shortest"],
        trained=(panel["trained"][0], panel["trained"][1]),
        lengths=tuple(sorted({length for by_length in by_label.values() for length in by_length})),
        series=tuple(
            Series(label=label, encoding=label, points=tuple(point(n, by_length[n]) for n in sorted(by_length)))
            for label, by_length in by_label.items()
        ),
        settings=panel["settings"],
        keys=tuple(panel["keys"]),
        baselines=tuple(
            Baseline(
                label=row["label"],
                floor=row["floor"],
                scores={int(length): score for length, score in row["scores"].items()},
            )
            for row in panel["baselines"]
        ),
    )
