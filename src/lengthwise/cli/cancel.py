"""`lengthwise cancel`: take runs back that are not finished. Imports no torch."""

from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.selection import Runs, description, require_one, selected


def command(*runs: Runs, study: str | None = None, place: Place = DEFAULT_PLACE) -> int:
    """Take runs back that are not finished. Workers stop them within seconds, on any machine, and do not start them.

    Their checkpoints and scores stay. The report shows these runs as failed with the error "cancelled". `lengthwise retry` or
    `lengthwise run` continues them.

    Example: lengthwise cancel 3f9a 77c0; lengthwise cancel --study quickstart

    Args:
        runs: Keys of the runs, or their first digits.
        study: Study whose unfinished runs are taken back.
    """
    require_one("cancel", runs, study, place)
    with place.open() as store:
        rows = selected(store, runs, study)
        changed = store.cancel(list(rows))
    for key in changed:
        place_of = (rows[key].worker or "").partition(":")[0]
        where = f", which was running on {place_of}" if rows[key].status == "running" else ""
        print(f"cancelled {description(rows[key])}{where}")
    for key, row in rows.items():
        if key not in changed and study is None:
            print(f"left alone {description(row)}: it is {row.status}")
    if not changed and study is not None:
        print("no run is unfinished")
    return 0
