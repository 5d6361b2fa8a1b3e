"""The executors, by the name of `--executor`: one module each, one line each in the list below."""

from lengthwise.studies.executors.base import Executor, WorkerError
from lengthwise.studies.executors.inline import Inline
from lengthwise.studies.executors.local import Local
from lengthwise.values import ConfigError, unlisted

EXECUTORS: dict[str, type[Executor]] = {
    "local": Local,
    "inline": Inline,
}


def executor_named(name: str) -> type[Executor]:
    if name not in EXECUTORS:
        raise ConfigError(f"there is no executor {unlisted(name, EXECUTORS)}")
    return EXECUTORS[name]


__all__ = ["EXECUTORS", "Executor", "WorkerError", "executor_named"]
