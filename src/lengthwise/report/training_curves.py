"""The charts and the table of the training: loss and learning rate by step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.training_curves import TrainingCurve
from lengthwise.report.charts.chart import Chart, curve, curve_chart
from lengthwise.report.charts.scales import frame
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell

SEED_OPACITY = 0.6  # of the lines of several seeds
NO_LOOK = Look(slot=0, cycle=0)  # of lines that belong to no encoding


def training_curves(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if no training curve is stored."""
    if not task.curves:
        return None
    every = [curve for curves in task.curves.values() for curve in curves]
    bottom, top = frame(loss for curve in every for loss in curve.losses)
    last = max(curve.steps[-1] for curve in every)
    charts = []
    for label, curves in task.curves.items():
        opacity = 1.0 if len(curves) == 1 else SEED_OPACITY
        rows = [row for c in curves for row in curve(label, zip(c.steps, c.losses, strict=True), c.seed, opacity)]
        described = (
            f"{task.title}, {label}: line chart of the training loss. Horizontal axis: steps 0 to {last:,}. Vertical axis: from "
            f"{bottom:g} to {top:g} nats per scored token. One line for each of {len(curves)} seeds. The table below has "
            "the last losses."
        )
        look = {label: looks[label]}
        chart = curve_chart(described, rows, look, (0, last), (bottom, top), unit=" steps")
        chart = chart.named(f"training loss of {label}", "step", "loss (nats per scored token)", note=_count(curves))
        charts.append({"label": label, "name": label, "look": looks[label], "chart": chart})
    return {
        "charts": charts,
        "schedules": [{"label": "all runs", "chart": _schedules(task, every, last)}],
        "heads": HEADS,
        "one_schedule": len({curve.learning_rates for curve in every}) == 1,
        "rows": [
            {"label": label, "look": looks[label], "seeds": len(curves), "cells": _cells(curves)}
            for label, curves in task.curves.items()
        ],
    }


HEADS = ("last loss", "training time (s)", "peak memory (MB)", "parameters", "attention backend")


def _cells(curves: tuple[TrainingCurve, ...]) -> list[dict[str, str]]:
    """Return what training has reached and what it cost, for `HEADS`."""
    parameters = sorted({curve.parameters for curve in curves if curve.parameters is not None})
    backends = sorted({curve.backend for curve in curves if curve.backend is not None})
    return [
        interval_cell(_over_seeds([curve.last_loss for curve in curves])),
        interval_cell(_over_seeds([curve.seconds for curve in curves])),
        interval_cell(_over_seeds([curve.memory for curve in curves])),
        {
            "mean": " or ".join(f"{n:,}" for n in parameters) or "–",
            "spread": "",
            "sort": f"{max(parameters, default='')}",
        },
        {"mean": " or ".join(backends) or "–", "spread": "", "sort": " ".join(backends)},
    ]


def _over_seeds(values: list[float]) -> Interval:
    known = [value for value in values if math.isfinite(value)]
    return over_seeds(known) if len(known) > 1 else over_examples(known[0] if known else math.nan, math.nan)


def _schedules(task: TaskFindings, curves: list[TrainingCurve], last: int) -> Chart:
    """Return the chart of the learning rates. Runs with the same schedule share a line."""
    known = {curve.learning_rates: curve.steps for curve in curves}
    top = frame((0.0, *(rate for rates in known for rate in rates)))[1]
    described = (
        f"{task.title}: line chart of the learning rate. Horizontal axis: steps 0 to {last:,}. Vertical axis: 0 to {top:g}. "
        f"Different schedules: {len(known)}."
    )
    rows = [
        row
        for n, (rates, steps) in enumerate(known.items())
        for row in curve("all runs", zip(steps, rates, strict=True), n)
    ]
    chart = curve_chart(described, rows, {"all runs": NO_LOOK}, (0, last), (0, top), unit=" steps")
    return chart.named("learning rate", "step", "learning rate")


def _count(curves: Sequence[TrainingCurve]) -> str:
    return "one seed" if len(curves) == 1 else f"one line for each of {len(curves)} seeds"
