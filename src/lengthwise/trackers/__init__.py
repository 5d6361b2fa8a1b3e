"""Trackers, which show training curves and scores beside the results database: one file each, one line each in the list below."""

import dataclasses
import importlib.util
import re
import typing
from collections.abc import Iterable
from typing import Any

from lengthwise.config.layers import split_at_commas
from lengthwise.trackers.base import Point, Status, TrackedRun, TrackedScore, Tracker
from lengthwise.trackers.mlflow import MLflow
from lengthwise.trackers.tensorboard import TensorBoard
from lengthwise.trackers.trackio import Trackio
from lengthwise.trackers.wandb import WandB
from lengthwise.validation import parse_value
from lengthwise.values import ConfigError, install_extra, require_known, unlisted

TRACKERS: dict[str, type[Tracker]] = {tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow, Trackio)}


def parse_trackers(text: str, option: str = "--trackers") -> tuple[Tracker, ...]:
    """Return the trackers of `tensorboard,wandb:project=fire,mode=offline`. Raise `ConfigError` for anything else."""
    settings: dict[str, dict[str, Any]] = {}
    name = ""
    for part in filter(None, map(str.strip, split_at_commas(text))):
        begin = re.fullmatch(r"([^:=]+)(?::(.*))?", part)
        if begin is not None:
            name, part = begin[1].strip().lower(), begin[2] or ""
            if name not in TRACKERS:
                raise ConfigError(f"{option} must be the names of trackers, and there is no {unlisted(name, TRACKERS)}")
            if name in settings:
                raise ConfigError(f"{option} names {name} twice; name it once")
            settings[name] = {}
        if part:
            _add_setting(settings, name, part, option)
    if not settings:
        raise ConfigError(f"{option} is empty; name one or more of {', '.join(TRACKERS)}")
    return tuple(TRACKERS[name](**values) for name, values in settings.items())


def _add_setting(settings: dict[str, dict[str, Any]], name: str, text: str, option: str) -> None:
    """Parse `NAME=VALUE`. Messages leave out the text, because a mistyped setting may contain a password."""
    setting, equals, value = text.partition("=")
    setting = setting.strip().replace("-", "_")
    if not name or not equals:
        example = f"{option} {name or 'wandb'}:{'folder=PATH' if name == 'tensorboard' else 'project=fire'}"
        raise ConfigError(f"{option} must be names with settings as NAME=VALUE, as in: {example}")
    tracker = TRACKERS[name]
    types = typing.get_type_hints(tracker)
    require_known(name, [setting], [field.name for field in dataclasses.fields(tracker)])
    if setting in settings[name]:
        raise ConfigError(f"{option} sets {name}:{setting} twice; omit one of them")
    settings[name][setting] = parse_value(value.strip(), types[setting], f"{name}: {setting}")


def require_usable(trackers: Iterable[Tracker], results: str, is_remote: bool) -> None:
    """Raise `ConfigError` if a library is missing, or if files have no folder because the results are at an address."""
    for tracker in trackers:
        found = importlib.util.find_spec(tracker.package)
        if found is None or found.origin is None:  # any folder of that name is found, but has no origin
            raise ConfigError(
                f"tracker {tracker.name} needs the package {tracker.package}, which is not installed; "
                f"{install_extra(tracker.name)}"
            )
        if is_remote and tracker.needs_results():
            raise ConfigError(
                f"tracker {tracker.name} writes files, and the results folder {results} is not on this machine; name a folder, as "
                f"in: --trackers {tracker.name}:folder=PATH"
            )


__all__ = [
    "TRACKERS",
    "Point",
    "Status",
    "TrackedRun",
    "TrackedScore",
    "Tracker",
    "parse_trackers",
    "require_usable",
]
