"""`lengthwise export answers`: the answers of a measurement as a table."""

from lengthwise.cli.export.tables import Force, Out, write_table
from lengthwise.cli.options import DEFAULT_PLACE, Place


def command(study: str, measurement: str, /, *, out: Out, force: Force = False, place: Place = DEFAULT_PLACE) -> int:
    """Write what a measurement stored about the runs of a study as CSV or Parquet, with one row for each row of its answers.

    Parquet needs pandas, the extra frames: pip install '.[frames]' in a clone of Lengthwise.

    Example: lengthwise export answers quickstart attended-distance --out distances.csv

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        measurement: The measurement's name; `lengthwise list probes` lists them.
        out: The file to write, which ends in .csv or .parquet, or - for CSV on the standard output.
        force: Overwrite the file if it exists.
    """
    from lengthwise.measurements import find

    return write_table(study, "answers", out, force, place, find(measurement).name)
