"""The table of generated answers: correct steps of scratchpads, and answers that cannot be read."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.report.palette import Look

SHOWN = 3  # sample answers for each kind and encoding


def generated_answers(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if no answer was decoded."""
    if task.generated_answers is None:
        return None
    groups = [
        (head, kind, [getattr(series, kind) for series in task.generated_answers.series])
        for head, kind in (
            ("shorter than training", "shorter"),
            ("in distribution", "within"),
            ("longer than training (extrapolation)", "longer"),
        )
    ]
    groups = [group for group in groups if any(group[2])]
    return {
        "names": task.generated_answers.names,
        "groups": [{"head": head, "new": kind == "longer"} for head, kind, _ in groups],
        "lines": [
            {
                "label": series.label,
                "look": looks[series.label],
                "cells": [
                    {
                        "text": figure(numbers[n][name]) if name in numbers[n] else "–",
                        "sort": str(numbers[n].get(name, "")),
                        "new": kind == "longer",
                        "first": kind == "longer" and not column and len(groups) > 1,
                    }
                    for _, kind, numbers in groups
                    for column, name in enumerate(task.generated_answers.names)
                ],
            }
            for n, series in enumerate(task.generated_answers.series)
        ],
        "samples": [
            (title, samples)
            for title, kind in (
                ("Sample answers that could not be read", "unread"),
                ("Sample answers with steps that could not be read", "broken"),
            )
            if (
                samples := [
                    (series.label, getattr(series, kind)[:SHOWN])
                    for series in task.generated_answers.series
                    if getattr(series, kind)
                ]
            )
        ],
    }
