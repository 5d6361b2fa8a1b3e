"""Answers in files: what commands print of them, and the page that they write."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise import cache_folder
from lengthwise.cli.printing import one_line, print_json, stdout

if TYPE_CHECKING:
    from lengthwise.measurements.answer_file import FileAnswer


def show_answers(answers: "Sequence[FileAnswer]", page: Path | None, json: bool) -> None:
    """Print the answers as tables or as JSON, and write the page with their charts and tables."""
    from lengthwise.analysis.answer_files import of_files
    from lengthwise.report.answer_page import content
    from lengthwise.report.answer_table import file_tables

    summary = of_files(answers)
    if json:
        print_json([answer.header() | {"rows": answer.rows} for answer in answers], indent=None)
    else:
        console = stdout()
        for part in file_tables(summary):
            console.print(part)
    if page is not None:
        cache_folder.write(page, content(summary, "html"))
        if not json:
            print(f"Page: {one_line(page)}.")
