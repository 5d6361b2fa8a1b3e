"""`lengthwise retry`: let workers take failed runs again. Imports no torch."""

from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.selection import Runs, description, require_one, selected


def command(*runs: Runs, study: str | None = None, place: Place = DEFAULT_PLACE) -> int:
    """Let workers take failed and cancelled runs again. They continue from their last checkpoints.

    Workers that run take them at once. If there are none, start some with `lengthwise work`; `lengthwise run` does both.

    Example: lengthwise retry 3f9a 77c0; lengthwise retry --study quickstart

    Args:
        runs: Keys of the runs, or their first digits.
        study: Study whose failed runs are tried again.
    """
    require_one("retry", runs, study, place)
    with place.open() as store:
        rows = selected(store, runs, study)
        changed = store.retry(list(rows))
    for key in changed:
        print(f"tried again {description(rows[key])}")
    for key, row in rows.items():
        if key not in changed and study is None:
            print(f"left alone {description(row)}: it is {row.status}")
    if not changed and study is not None:
        print("no run has failed")
    return 0
