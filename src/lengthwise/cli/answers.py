"""Answers in files: what commands print of them, and the page that they write."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise import cache_folder
from lengthwise.cli.printing import one_line, print_json, stdout

if TYPE_CHECKING:
    from lengthwise.measurements.answer_file import FileAnswer

ANSWERS = ".jsonl"  # the ending of files of measurements
PICTURES = ("svg", "png", "pdf")


def show_answers(answers: "Sequence[FileAnswer]", page: Path | None, json: bool) -> None:
    """Print the answers as tables or as JSON. Write the page with their charts and tables, or a picture of the charts.

    `page`: a file that ends in .svg, .png or .pdf, or else an HTML page.
    """
    from lengthwise.analysis.answer_files import of_files
    from lengthwise.report.answer_table import file_tables
    from lengthwise.report.pictures import content

    summary = of_files(answers)
    if json:
        print_json([answer.header() | {"rows": answer.rows} for answer in answers], indent=None)
    else:
        console = stdout()
        for table in file_tables(summary):
            console.print(table)
    if page is not None:
        suffix = page.suffix.lower().removeprefix(".")
        kind = suffix if suffix in PICTURES else "html"
        cache_folder.write(page, content(summary, kind))
        if not json:
            print(f"{'Page' if kind == 'html' else 'Picture'}: {one_line(page)}.")
