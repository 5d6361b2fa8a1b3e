"""`lengthwise export scores`: the scores of a study as a table."""

from lengthwise.cli.export.tables import Force, Out, write_table
from lengthwise.cli.options import DEFAULT_PLACE, Place


def command(study: str, /, *, out: Out, force: Force = False, place: Place = DEFAULT_PLACE) -> int:
    """Write the scores of a study as CSV, Parquet or LaTeX.

    CSV and Parquet have one row for each run and question. LaTeX has for each task a table of encodings and lengths, with means
    over seeds and their 95 % intervals; it needs the package booktabs. Parquet and LaTeX need pandas, the extra frames: pip install
    '.[frames]' in a clone of Lengthwise.

    Example: lengthwise export scores quickstart --out scores.csv; lengthwise export scores quickstart --out scores.tex

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .csv, .parquet or .tex, or - for CSV on the standard output.
        force: Overwrite the file if it exists.
    """
    return write_table(study, "scores", out, force, place)
