"""Numbers of a publication that a study cites: checked when the study is made, since nobody would see a wrong name later."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lengthwise.config import ConfigError, Run, near_miss

PARTS = ("source", "about", "scores", "ranks")


def require_published(study: str, given: Any, runs: Iterable[Run]) -> None:
    """Raise `ConfigError` for a part, a task or an encoding that there is not, and for what is no number."""
    what = f"study {study!r}: published"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} is {given!r}; give an object with {', '.join(PARTS)}")
    for name in given:
        if name not in PARTS:
            raise ConfigError(
                f"{what} has no part {name!r}{near_miss(str(name), PARTS)}; there are: {', '.join(PARTS)}"
            )
    if not isinstance(given.get("source"), str) or not given["source"].strip():
        raise ConfigError(f"{what} does not say its source; add 'source': who measured it, and where it is to be found")
    if not isinstance(given.get("about", ""), str):
        raise ConfigError(f"{what}: about is {given['about']!r}; it has to be text")
    runs = list(runs)
    tasks, encodings = ([*dict.fromkeys(names)] for names in ([r.task.label for r in runs], [r.label for r in runs]))
    scores = _object(f"{what}: scores", given.get("scores", {}), tasks)
    for task, by_encoding in scores.items():
        _numbers(f"{what}: scores of {task}", by_encoding, encodings)
    _numbers(f"{what}: ranks", given.get("ranks", {}), encodings)


def _object(what: str, given: Any, known: list[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} are {given!r}; give an object")
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{what} names {name!r}{near_miss(str(name), known)}, which no run has; there are: {', '.join(known)}"
            )
    return given


def _numbers(what: str, given: Any, known: list[str]) -> None:
    for name, value in _object(what, given, known).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigError(f"{what}: {name} is {value!r}; it has to be a number")
