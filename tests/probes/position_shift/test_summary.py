"""Stored scores at shifted positions to paired differences over seeds, and to the section of the page."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_examples, over_seeds
from lengthwise.metrics import EXACT_MATCH
from lengthwise.probes import PROBES
from lengthwise.report.palette import looks

ASKED = {"probe": "position-shift", "length": 6, "shifts": [0, 1, 9], "examples": 4, "seed": 0}
LABELS = {"a0": "RoPE", "a1": "RoPE", "b0": "Learned", "c0": "ALiBi"}


def result(scores: list[Any], changes: list[Any], **more: Any) -> dict[str, Any]:
    differences = [None if score is None else score - scores[0] for score in scores]
    errors = [None if score is None else 0.0 for score in scores]
    return {
        "shifts": [0, 1, 9],
        "scores": scores,
        "standard_errors": errors,
        "differences": differences,
        "difference_errors": [None if error is None else 0.001 for error in errors],
        "logit_changes": changes,
        "better": "higher",
        "invariant": True,
        "max_length": None,
        "n": 4,
    } | more


def row(key: str, result: dict[str, Any], **asked: Any) -> Any:
    return SimpleNamespace(key=key, asked=ASKED | asked, result=result, facts={"device": "cpu"})


ROWS = [
    row("a0", result([0.9, 0.9, 0.8], [0, 1e-6, 2e-6])),
    row("a1", result([0.5, 0.5, 0.6], [0, 3e-6, 1e-6])),
    row("b0", result([0.9, 0.1, None], [0, 4.5, None], invariant=False, max_length=12)),
    row("c0", result([0.7, 0.7, 0.7], [0, 0, 0])),
]


def summary_of(rows: list[Any]) -> Any:
    (found,) = probe_summaries(rows, LABELS, {}, (0.0, 1.0))["position-shift"]
    return found


def test_differences_are_those_of_each_run():
    rope, learned, alibi = summary_of(ROWS).series
    assert rope.scores[0].mean == pytest.approx(0.7)
    assert rope.scores[0].high == 1, "within the limits of the metric"
    assert rope.differences[2].mean == pytest.approx(0.0)
    assert rope.differences[2].half_width == pytest.approx(over_seeds([-0.1, 0.1]).half_width)
    assert rope.changes == (0, 3e-6, 2e-6)
    assert (rope.exact, alibi.exact) == (False, True)
    assert learned.differences[1] == over_examples(0.1 - 0.9, 0.001)
    assert learned.scores[2] is None
    assert math.isnan(learned.changes[2])


def test_the_section():
    task: Any = SimpleNamespace(title="Copy", metric=EXACT_MATCH, metric_label="exact match", unit="symbols")
    section = PROBES.find("position-shift").section(summary_of(ROWS), task, looks(list(LABELS.values())))
    assert (section["exact"], section["rounded"], section["limited"]) == ("ALiBi", "RoPE", "Learned (12 positions)")
    rope, learned, _ = section["rows"]
    assert [cell["mean"] for cell in rope["cells"]] == ["invariant", "0.700", "0.000", "0.000"]
    assert [cell["mean"] for cell in learned["cells"]] == ["not invariant", "0.900", "−0.800", "–"]
    assert [cell["mean"] for cell in section["changes"][1]["cells"]] == ["4.5e+00", "–"]
    assert [cell["mean"] for cell in section["changes"][2]["cells"]] == ["none", "none"]
    assert "Horizontal axis: number added to all position IDs, from 0 to 9" in section["panel"]["chart"].described
