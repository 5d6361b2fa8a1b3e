"""The executors, by the name of `--executor`: one module each, one line each in the list below."""

from lengthwise.config import ConfigError, near_miss
from lengthwise.studies.executors.base import Executor, WorkerError
from lengthwise.studies.executors.inline import Inline
from lengthwise.studies.executors.local import Local

EXECUTORS: dict[str, type[Executor]] = {
    "local": Local,
    "inline": Inline,
}


def executor_named(name: str) -> type[Executor]:
    if name not in EXECUTORS:
        raise ConfigError(
            f"there is no executor {name!r}{near_miss(name, EXECUTORS)}; available: {', '.join(EXECUTORS)}"
        )
    return EXECUTORS[name]


__all__ = ["EXECUTORS", "Executor", "WorkerError", "executor_named"]
