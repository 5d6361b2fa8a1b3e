"""`lengthwise export curves`: the training curves of a study as a table."""

from lengthwise.cli.export.tables import Force, Out, write_table
from lengthwise.cli.options import DEFAULT_PLACE, Place


def command(study: str, /, *, out: Out, force: Force = False, place: Place = DEFAULT_PLACE) -> int:
    """Write the training curves of a study as CSV or Parquet, with one row for each recorded step of each run.

    Parquet needs pandas, the extra frames: pip install '.[frames]' in a clone of Lengthwise.

    Example: lengthwise export curves quickstart --out curves.parquet

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .csv or .parquet, or - for CSV on the standard output.
        force: Overwrite the file if it exists.
    """
    return write_table(study, "curves", out, force, place)
