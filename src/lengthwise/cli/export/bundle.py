"""`lengthwise export bundle`: a study in one file, for `lengthwise import` on another machine."""

from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.collection import without_collection
from lengthwise.cli.export.tables import Force
from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.output_file import new_file
from lengthwise.cli.printing import counted, one_line
from lengthwise.values import ConfigError


def command(
    study: str,
    /,
    *,
    out: str,
    weights: Annotated[bool, Parameter(negative="--no-weights")] = True,
    force: Force = False,
    place: Place = DEFAULT_PLACE,
) -> int:
    """Write a study with its runs, scores, training curves, probes and weights as one file for `lengthwise import` elsewhere.

    It is a zip file with an SQLite database, the weights in safetensors and a list of SHA-256 sums. It has no code.

    Example: lengthwise export bundle quickstart --out quickstart.zip

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .zip.
        weights: Write the weights of trained runs too. Without them, `lengthwise probe` cannot measure the imported runs.
        force: Overwrite the file if it exists.
    """
    from lengthwise.exchange.bundle import export_bundle

    path = new_file(out, force)
    if path.suffix != ".zip":
        raise ConfigError(f"--out must end in .zip, got {out!r}")
    with place.open() as store, without_collection():
        counts = export_bundle(store, study, path, weights=weights)
    parts = f"{counted(counts['runs'], 'run')}, {counted(counts['scores'], 'score')}"
    print(f"{one_line(path)}: {one_line(study)} with {parts} and the weights of {counted(counts['weights'], 'run')}")
    return 0
