"""`lengthwise upgrade`: bring a results database to the tables of this version. Imports no torch."""

from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.printing import one_line


def command(*, place: Place = DEFAULT_PLACE) -> int:
    """Upgrade a results database that an older version of Lengthwise has written. No results are lost.

    Other commands say when this is necessary. Stop all workers first: the upgrade is refused while one of them has a run. If the
    upgrade fails or is interrupted, the database stays as it was. Older versions of Lengthwise cannot read an upgraded database.

    Example: lengthwise upgrade --results lengthwise-results
    """
    from lengthwise.store import upgrade_results

    done = upgrade_results(place.results, store=place.store)
    if done.before == done.after:
        print(f"nothing to do: {one_line(done.name)} has revision {done.after} of the tables, which is the newest")
    else:
        print(f"upgraded {one_line(done.name)} from revision {done.before} of the tables to revision {done.after}")
    return 0
