"""Check of the published numbers that a study cites. A misspelled task or encoding would otherwise go unnoticed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lengthwise.config import ConfigError, Run
from lengthwise.values import unlisted

FIELDS = ("source", "about", "scores", "ranks")


def require_published(study: str, published: Any, runs: Iterable[Run]) -> None:
    """Raise `ConfigError` for an unknown field, task or encoding, and for values that are not finite numbers."""
    where = f"study {study!r}: published"
    if not isinstance(published, Mapping):
        raise ConfigError(f"{where} must be a mapping with {', '.join(FIELDS)}, got {published!r}")
    for name in published:
        if name not in FIELDS:
            raise ConfigError(f"{where} has no field {unlisted(name, FIELDS)}")
    if not isinstance(published.get("source"), str) or not published["source"].strip():
        raise ConfigError(f"{where} lacks its source; add 'source': the authors and where to find the publication")
    if not isinstance(published.get("about", ""), str):
        raise ConfigError(f"{where}: about must be a string, got {published['about']!r}")
    runs = list(runs)
    tasks, encodings = ([*dict.fromkeys(names)] for names in ([r.task.label for r in runs], [r.label for r in runs]))
    scores = _mapping(f"{where}: scores", published.get("scores", {}), tasks)
    for task, by_encoding in scores.items():
        _require_numbers(f"{where}: scores of {task}", by_encoding, encodings)
    _require_numbers(f"{where}: ranks", published.get("ranks", {}), encodings)


def _mapping(where: str, value: Any, names: list[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a mapping, got {value!r}")
    for name in value:
        if name not in names:
            raise ConfigError(f"{where}: no run has {unlisted(name, names)}")
    return value


def _require_numbers(where: str, values: Any, names: list[str]) -> None:
    for name, value in _mapping(where, values, names).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigError(f"{where}: {name} must be a finite number, got {value!r}")
