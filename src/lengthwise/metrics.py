"""Metrics: what scores measure, and how tables, charts and sentences treat them. Reports need this without PyTorch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lengthwise.validation import validated
from lengthwise.values import ConfigError

Better = Literal["higher", "lower"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What the scores of a task measure. Each task has one; a task outside of Lengthwise may define its own.

    `name`: as stored and shown, such as "edit distance". `better`: which scores are better.
    `low`, `high`: the limits of all scores. Intervals end there, and stored scores beyond them are left out. None: no
    limit.
    `share`: a score is the share of correct answers, from 0 to 1. A mean over lengths then weights each example
    equally, and a model that gets fewer than half of the answers right at the training length has not learned the task.
    `unit`: "nats" for scores in nats per unit of length, which are shown as "nats per byte". Empty: scores have no
    unit.
    `from_zero`: charts start at 0, the best score.
    `scale`: the name of a baseline. A loss at a longer length counts as small if it is a small part of that baseline's
    score.
    """

    name: str
    better: Better
    low: float | None = None
    high: float | None = None
    share: bool = False
    unit: str = ""
    from_zero: bool = False
    scale: str = ""

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, validated(getattr(self, f.name), f.type, f"Metric.{f.name}"))
        if not self.name.strip():
            raise ConfigError("Metric.name must not be empty")
        if self.share and (self.low, self.high) != (None, None):
            raise ConfigError(
                "a share of correct answers always lies between 0 and 1; leave Metric.low and Metric.high out"
            )
        if self.limits is not None and not self.limits[0] < self.limits[1]:
            raise ConfigError(f"Metric.low must be below Metric.high, got {self.low} and {self.high}")

    @property
    def limits(self) -> tuple[float, float] | None:
        """Return the limits of all scores, or None without limits."""
        if self.share:
            return 0.0, 1.0
        if self.low is None and self.high is None:
            return None
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def unit_text(self, unit_of_length: str) -> str:
        """Return the unit of scores, such as `nats per byte` for the unit of length "bytes", or "" without one."""
        return f"{self.unit} per {unit_of_length.removesuffix('s')}" if self.unit else ""

    def label(self, unit_of_length: str) -> str:
        """Return the name with its unit, for headings and axes: `cross-entropy (nats per byte)`."""
        return f"{self.name} ({self.unit_text(unit_of_length)})" if self.unit else self.name

    def facts(self) -> dict[str, Any]:
        """Return what a run stores about a metric that is not in `METRICS`, beside its name and direction."""
        if self in METRICS:
            return {}
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self) if f.name not in ("name", "better")}
        return {"metric": {name: value for name, (value, default) in values.items() if value != default}}


EXACT_MATCH = Metric(name="exact match", better="higher", share=True)
ACCURACY = Metric(name="accuracy", better="higher", share=True)
TOKEN_ACCURACY = Metric(name="token accuracy", better="higher", low=0.0, high=1.0)  # share of an answer's tokens
CROSS_ENTROPY = Metric(name="cross-entropy", better="lower", unit="nats")
SQUARED_ERROR = Metric(name="squared error", better="lower", low=0.0, from_zero=True, scale="zero")
ANSWER_F1 = Metric(name="F1", better="higher", low=0.0)  # of the words of answers
ROUGE = Metric(name="ROUGE", better="higher", low=0.0)  # the geometric mean of ROUGE-1, ROUGE-2 and ROUGE-L
BENCHMARK_AVERAGE = Metric(name="benchmark average", better="higher")  # of scores of several data sets
ENTITY_F1 = Metric(name="entity F1", better="higher", low=0.0, high=1.0)  # of the entities of all sentences together
TOTAL_VARIATION = Metric(name="total variation", better="lower", low=0.0, high=1.0)

METRICS = (
    EXACT_MATCH,
    ACCURACY,
    TOKEN_ACCURACY,
    CROSS_ENTROPY,
    SQUARED_ERROR,
    TOTAL_VARIATION,
    ANSWER_F1,
    ENTITY_F1,
    ROUGE,
    BENCHMARK_AVERAGE,
)


def stored_metric(name: str, better: Any, facts: Mapping[str, Any] | None) -> Metric:
    """Return the metric of a stored run, from its name, its direction and the run's `facts` (see `Metric.facts`)."""
    settings = (facts or {}).get("metric")
    if settings is not None:
        return Metric(name=name, better=better, **settings)
    plain = Metric(name=name, better=better)
    return replace(next((metric for metric in METRICS if metric.name == name), plain), better=better)
