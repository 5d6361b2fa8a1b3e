"""Checks of the JSON objects in a database: the settings of runs, questions, details of scores, published numbers."""

from dataclasses import fields
from functools import lru_cache
from typing import Any

from lengthwise.metrics import Metric
from lengthwise.store.checks import (
    COUNT,
    SIZE,
    Check,
    Unreadable,
    anything,
    each,
    flag,
    name,
    named,
    number,
    optional,
    parsed,
    record,
    text,
    whole,
)
from lengthwise.values import ConfigError

OBJECT = record()


def _config(value: Any) -> Any:
    return CONFIG(value)


CONFIG: Check = record(
    {},
    {
        "parent": optional(_config),
        "encoding": OBJECT,
        "task": OBJECT,
        "model": record({}, {"mixer": optional(name)}),
        "training": record(
            {},
            {
                "train_length": SIZE,
                "steps": COUNT,
                "batch_size": SIZE,
                "train_examples": optional(SIZE),
                "min_length": optional(SIZE),
                "curriculum": optional(record({}, {"length": optional(SIZE)})),
                "positions": optional(OBJECT),
            },
        ),
    },
)
QUESTION = record(
    {"length": SIZE}, {"examples": SIZE, "tokens": SIZE, "prompt": SIZE, "seed": whole(), "shift": OBJECT}
)
# All runs of a study have the same few questions. Their rows share one dict for each, which nobody changes.
question_text = lru_cache(4096)(parsed(QUESTION))


_ANSWER = record({"question": text, "generated": text}, closed=True)
GENERATED = record({"unreadable": number, "means": named(number)})
DETAILS = record(
    {},
    {
        "means": named(number),
        "order": each(name),
        "unreadable": number,
        "kept": each(_ANSWER),
        "broken": each(_ANSWER),
        "groups": each(number),
        "by_position": each(record({"first": COUNT, "last": COUNT, "mean": number, "n": SIZE}, closed=True)),
        "baselines": each(record({"name": name, "score": number, "floor": flag}, closed=True)),
    },
)
PUBLISHED = record(
    {"source": name}, {"about": text, "scores": named(named(number)), "ranks": named(number)}, closed=True
)

_METRIC = record({}, {f.name: anything for f in fields(Metric) if f.name not in ("name", "better")}, closed=True)


def _metric(value: Any) -> Any:
    """Check what a run stores about the metric of a user's own task (`Metric.facts`)."""
    try:
        Metric(name="own", better="higher", **_METRIC(value))
    except ConfigError:
        raise Unreadable("is not a metric") from None
    return value


RUN_FACTS = record({}, {"metric": _metric})
SCORE_FACTS = record({}, {"details": optional(DETAILS)})
