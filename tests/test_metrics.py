"""Metrics: one definition each, with everything that the report derives from it."""

import math
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.metrics import ACCURACY, CROSS_ENTROPY, EXACT_MATCH, METRICS, SQUARED_ERROR, Metric, stored_metric
from lengthwise.tasks import TASKS

DISTANCE = Metric(name="edit distance", better="lower", low=0, unit="edits", from_zero=True)


def test_names_are_unique_and_every_task_has_a_listed_metric() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert {make.metric for make in TASKS} <= set(METRICS)


def test_labels_have_the_unit_per_unit_of_length() -> None:
    assert CROSS_ENTROPY.label("bytes") == "cross-entropy (nats per byte)"
    assert EXACT_MATCH.label("bytes") == "exact match"
    assert DISTANCE.unit_text("symbols") == "edits per symbol"


def test_limits() -> None:
    assert EXACT_MATCH.limits == ACCURACY.limits == (0.0, 1.0)
    assert SQUARED_ERROR.limits == (0.0, math.inf)
    assert CROSS_ENTROPY.limits is None


@pytest.mark.parametrize("metric", [*METRICS, DISTANCE, Metric(name="exact match", better="higher")])
def test_a_stored_run_gives_the_metric_back(metric: Metric) -> None:
    facts = {"device": "cpu", **metric.facts()}
    assert stored_metric(metric.name, metric.better, facts) == metric
    assert ("metric" in facts) == (metric not in METRICS)


def test_an_unknown_metric_has_only_its_name_and_direction() -> None:
    assert stored_metric("beauty", "higher", None) == Metric(name="beauty", better="higher")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": " "}, "Metric.name must not be empty"),
        ({"better": "more"}, "Metric.better must be one of 'higher', 'lower', got 'more'"),
        ({"low": "0"}, "Metric.low must be float or None, got '0' (str)"),
        ({"share": 1}, "Metric.share must be true or false, got 1 (int)"),
        ({"low": 1.0, "high": 1.0}, "Metric.low must be below Metric.high, got 1.0 and 1.0"),
        ({"share": True, "low": 0.0}, "a share of correct answers always lies between 0 and 1"),
    ],
)
def test_bad_metrics_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Metric(**{"name": "m", "better": "higher", **changes})
    assert str(error.value).startswith(says)
