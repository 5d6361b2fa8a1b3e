"""Bar charts of the lengths of training and test examples."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.lengths import Histogram
from lengthwise.probes.example_lengths.summary import ExampleLengthsSummary
from lengthwise.report.charts.small import bar_chart
from lengthwise.report.palette import Look

BINS = 24  # bars that fit side by side on a phone
COLOURS = ("var(--c0)", "var(--c1)")  # of training and test


def section(lengths: ExampleLengthsSummary, task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for the lengths of one field."""
    bins = lengths.bins(BINS)
    train, test = lengths.train, lengths.test
    shares = [(of_train / train.total, of_test / test.total) for _, _, of_train, of_test in bins]
    highest = max(map(max, shares))
    title = lengths.unit or task.unit
    top = f"{highest:.0%}" if highest >= 0.1 else f"{highest:.1%}"
    summaries = {"train": _summary(train), "test": _summary(test)}
    return {
        "title": title,
        "chart": bar_chart(
            f"{task.title}: bar chart of the lengths of examples. Horizontal axis: {title}, from "
            f"{min(train.shortest, test.shortest):,} to {max(train.longest, test.longest):,}. Vertical axis: share of examples, "
            f"from 0 % to {top}. Training: {summaries['train']}. Test: {summaries['test']}. The table below has all numbers.",
            dict(zip(COLOURS, zip(*shares, strict=True), strict=True)),
            (highest, top),
            {n + 0.5: f"{first:,}" for n, (first, *_) in enumerate(bins)},
        ).named(
            "lengths of examples",
            title,
            "share of examples",
            keys=dict(zip(COLOURS, ("training", "test"), strict=True)),
        ),
        "origin": "" if lengths.drawn is None else lengths.origin,
        "bars": [
            {
                "first": first,
                "range": f"{first:,}" if first == last else f"{first:,}–{last:,}",
                "cells": [(f"{count:,}", count) for count in counts],
            }
            for first, last, *counts in bins
        ],
        "summaries": summaries,
    }


def _summary(part: Histogram) -> str:
    lengths = f"{part.shortest:,}" if part.shortest == part.longest else f"{part.shortest:,} to {part.longest:,}"
    return f"{part.total:,} examples, length {lengths}, mean {part.mean:.1f}"
