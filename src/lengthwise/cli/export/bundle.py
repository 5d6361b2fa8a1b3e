"""`lengthwise export bundle`: all rows of a study in one file, for `lengthwise import` on another machine."""

from lengthwise.cli.collection import without_collection
from lengthwise.cli.export.tables import Force
from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.output_file import new_file
from lengthwise.cli.printing import counted, one_line
from lengthwise.values import ConfigError


def command(study: str, /, *, out: str, force: Force = False, place: Place = DEFAULT_PLACE) -> int:
    """Write a study with its runs, scores, training curves and probes as one file that `lengthwise import` accepts elsewhere.

    The file has no weights and no code. It has a SHA-256 hash of each part.

    Example: lengthwise export bundle quickstart --out quickstart.zip

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .zip.
        force: Overwrite the file if it exists.
    """
    from lengthwise.exchange.bundles import write_bundle

    path = new_file(out, force)
    if path.suffix != ".zip":
        raise ConfigError(f"--out must end in .zip, got {out!r}")
    with place.open() as store, without_collection():
        rows = write_bundle(store, study, path)
    print(
        f"{one_line(path)}: {one_line(study)} with {counted(rows['runs'], 'run')} and {counted(rows['scores'], 'score')}"
    )
    return 0
