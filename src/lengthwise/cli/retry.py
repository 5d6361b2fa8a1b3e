"""`lengthwise retry`: let workers take failed runs again. Imports no torch."""

from lengthwise.cli.options import Place
from lengthwise.cli.selection import Runs, change, description, require_one


def command(*runs: Runs, study: str | None = None, place: Place = Place()) -> int:
    """Let workers take failed and cancelled runs again. They continue from their last checkpoints.

    Workers that run take them at once. If there are none, start some with `lengthwise work`; `lengthwise run` does
    both.

    Example: lengthwise retry 3f9a 77c0; lengthwise retry --study quickstart

    Args:
        runs: Keys of the runs, or their first digits.
        study: Study whose failed runs are tried again.
    """
    require_one("retry", runs, study, place)
    return change(
        runs, study, place, lambda store, keys: store.retry(keys), lambda row: f"to be tried again: {description(row)}"
    )
