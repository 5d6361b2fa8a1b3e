"""The runs that a command is about: keys, or all runs of a study."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lengthwise.cli.options import Place
from lengthwise.cli.printing import one_line
from lengthwise.config import ConfigError

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store

Runs = Annotated[str, Parameter(name="RUNS")]


def require_one(command: str, runs: Sequence[str], study: str | None, place: Place) -> None:
    """Raise `ConfigError` unless there are keys or a study, and not both."""
    if bool(runs) == (study is not None):
        raise ConfigError(
            f"{command} needs either the keys of runs or --study NAME, got {'both' if runs else 'neither'}; "
            f"`lengthwise list runs{place.option}` shows the keys"
        )


def change(
    runs: Sequence[str],
    study: str | None,
    place: Place,
    action: "Callable[[Store, list[str]], list[str]]",
    report: "Callable[[RunRow], str]",
) -> int:
    """Apply `action`, which returns the keys that it has changed, to the runs, and print for each run what happened to
    it.

    `report`: the line for a changed run. Of a study, unchanged runs are only counted.
    """
    with place.open() as store:
        rows = store.runs(study) if study is not None else [store.run(prefix) for prefix in runs]
        changed = set(action(store, [row.key for row in rows]))
    for row in {row.key: row for row in rows}.values():
        if row.key in changed:
            print(report(row))
        elif study is None:
            print(f"unchanged: {description(row)} is {row.status}")
    if study is not None and (unchanged := len(rows) - len(changed)):
        print(f"unchanged: {unchanged} of {len(rows)} runs")
    return 0


def description(run: "RunRow") -> str:
    return f"{run.key} ({one_line(run.label)}, {one_line(run.task)}, seed {run.seed})"
