"""`lengthwise import`: add a study from a bundle that `lengthwise export bundle` has written. Imports no torch."""

from pathlib import Path

from lengthwise.cli.options import Place
from lengthwise.cli.printing import counted, one_line
from lengthwise.values import require_no_address


def command(file: str, /, *, place: Place = Place()) -> int:
    """Add the study in a bundle to the results, which are created if there are none.

    The bundle is checked first, and it is added completely or not at all. Existing results stay; if the bundle has
    other scores for the same runs, nothing is imported.

    Example: lengthwise import quickstart.zip --results lengthwise-results

    Args:
        file: The bundle, a file that `lengthwise export bundle` has written.
    """
    from lengthwise.exchange.bundle import opened_bundle
    from lengthwise.store import open_results

    require_no_address("the bundle", file)
    with opened_bundle(Path(file)) as bundle, open_results(place.results, store=place.store) as store:
        added = bundle.add_to(store)
        name = store.name
    kinds = {"runs": "run", "answers": "answer", "weights": "weights file"}
    counts = [counted(added[table], noun) for table, noun in kinds.items() if added[table]]
    new = f"added {', '.join(counts)}" if counts else "updated" if any(added.values()) else "nothing new"
    print(f"{one_line(bundle.study)} in {one_line(name)}: {new}")
    return 0
