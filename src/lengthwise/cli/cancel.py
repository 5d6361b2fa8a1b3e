"""`lengthwise cancel`: stop runs that are not finished. Imports no torch."""

from typing import TYPE_CHECKING

from lengthwise.cli.options import Place
from lengthwise.cli.selection import Runs, change, description, require_one

if TYPE_CHECKING:
    from lengthwise.store import RunRow


def command(*runs: Runs, study: str | None = None, place: Place = Place()) -> int:
    """Stop runs that are not finished. Workers on any machine stop them within seconds, and do not start them.

    Their checkpoints and scores stay. The report shows these runs as failed with the error "cancelled". `lengthwise
    retry` or `lengthwise run` continues them.

    Example: lengthwise cancel 3f9a 77c0; lengthwise cancel --study quickstart

    Args:
        runs: Keys of the runs, or their first digits.
        study: Study whose unfinished runs are stopped.
    """
    require_one("cancel", runs, study, place)
    return change(runs, study, place, lambda store, keys: store.cancel(keys), _report)


def _report(row: "RunRow") -> str:
    where = f", which was running on {(row.worker or '').partition(':')[0]}" if row.status == "running" else ""
    return f"cancelled: {description(row)}{where}"
