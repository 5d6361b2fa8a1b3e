"""The runs that a command is about: keys, or all runs of a study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lengthwise.cli.options import Place
from lengthwise.cli.printing import one_line
from lengthwise.config import ConfigError

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store

Runs = Annotated[str, Parameter(name="RUNS", show_default=False)]


def require_one(command: str, runs: Sequence[str], study: str | None, place: Place) -> None:
    """Raise `ConfigError` unless there are keys or a study, and not both."""
    if bool(runs) == (study is not None):
        raise ConfigError(
            f"{command} needs either the keys of runs or --study NAME, got {'both' if runs else 'neither'}; "
            f"`lengthwise list runs{place.option}` shows the keys"
        )


def selected(store: "Store", runs: Sequence[str], study: str | None) -> "dict[str, RunRow]":
    """Return the runs by key."""
    rows = store.runs(study) if study is not None else [store.run(prefix) for prefix in runs]
    return {row.key: row for row in rows}


def description(run: "RunRow") -> str:
    return f"{run.key} ({one_line(run.label)}, {one_line(run.task)}, seed {run.seed})"
