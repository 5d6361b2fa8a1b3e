"""What a task's models said, as a table: right steps of scratchpads, and answers that could not be read."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.report.palette import Look

SHOWN = 3  # answers of a kind and an encoding


def generated_answers(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """What the template needs for one task; None where no answer was decoded."""
    if task.generated_answers is None:
        return None
    groups = [
        (head, kind, [getattr(series, kind) for series in task.generated_answers.series])
        for head, kind in (
            ("shorter than trained", "shorter"),
            ("in distribution", "within"),
            ("never trained", "longer"),
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
                        "first": kind == "longer" and not place and len(groups) > 1,
                    }
                    for _, kind, numbers in groups
                    for place, name in enumerate(task.generated_answers.names)
                ],
            }
            for n, series in enumerate(task.generated_answers.series)
        ],
        "kept": [
            (words, some)
            for words, kind in (
                ("Some answers that could not be read", "unread"),
                ("Some answers with steps that could not be read", "broken"),
            )
            if (
                some := [
                    (series.label, getattr(series, kind)[:SHOWN])
                    for series in task.generated_answers.series
                    if getattr(series, kind)
                ]
            )
        ],
    }
