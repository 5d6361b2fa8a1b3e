"""The table of answers: correct steps of scratchpads, answers that cannot be read, and a task's further scores."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.generated_answers import UNREADABLE
from lengthwise.analysis.numbers import figure
from lengthwise.report.palette import Look

SHOWN = 3  # sample answers for each kind and encoding


def generated_answers(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None without stored statistics."""
    if (answers := task.generated_answers) is None:
        return None
    heads = {
        "shorter": "shorter than training",
        "within": "in distribution",
        "longer": "longer than training (extrapolation)",
    }
    groups = [kind for kind in heads if any(getattr(series, kind) for series in answers.series)]
    samples = {
        "Sample answers that could not be read": [(s.label, s.unread[:SHOWN]) for s in answers.series if s.unread],
        "Sample answers with steps that could not be read": [
            (s.label, s.broken[:SHOWN]) for s in answers.series if s.broken
        ],
    }
    return {
        "names": answers.names,
        "generated": UNREADABLE in answers.names,
        "groups": [{"head": heads[kind], "new": kind == "longer"} for kind in groups],
        "lines": [
            {
                "label": series.label,
                "look": looks[series.label],
                "cells": [
                    {
                        "text": figure(numbers[name]) if name in numbers else "–",
                        "sort": str(numbers.get(name, "")),
                        "new": kind == "longer",
                        "first": kind == "longer" and not column and len(groups) > 1,
                    }
                    for kind in groups
                    for numbers in [getattr(series, kind)]
                    for column, name in enumerate(answers.names)
                ],
            }
            for series in answers.series
        ],
        "samples": [(title, found) for title, found in samples.items() if found],
    }
