"""What a task has to say about a length (few examples, shared ones) stands beside its scores, once."""

import importlib.util
import io
from pathlib import Path

from rich.console import Console

from lengthwise.report import render, table
from tests.made_answers import changed

NOTE = "at length 1 there are only 26 sequences, <b>a pittance</b> to split"


def test_a_note_is_shown_once_beside_the_scores():
    spec = importlib.util.spec_from_file_location("report_rows", Path(__file__).parents[1] / "report" / "conftest.py")
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)
    runs, scores = fixtures.rows()
    noted = [changed(s, note=NOTE) if "examples" in s.question else s for s in scores]
    found = fixtures.from_rows([fixtures.study_row()], runs, noted)
    assert [task.notes for task in found.tasks if task.metric.name == "exact match"] == [(NOTE,)]
    assert [task.notes for task in found.tasks if task.metric.name != "exact match"] == [()]
    page = render(found)
    assert page.count("a pittance") == 1
    assert "<b>a pittance" not in page
    console = Console(file=io.StringIO(), width=200)
    console.print(table(found))
    assert console.file.getvalue().count("a pittance") == 1
