"""When every encoding scores the same at the longest length, none of them is called the best."""

import importlib.util
from pathlib import Path

from lengthwise.analysis.reading import reading
from tests.made_answers import changed


def _fixtures():
    spec = importlib.util.spec_from_file_location("report_rows", Path(__file__).parents[1] / "report" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nobody_is_best_among_equals():

    rows = _fixtures()
    runs, scores = rows.rows()
    longest = max(s.question["length"] for s in scores if "examples" in s.question)
    level = [
        changed(s, mean=0.0) if ("examples" in s.question, s.question["length"]) == (True, longest) else s
        for s in scores
    ]
    for seeds in (None, 0):
        some = [r for r in runs if seeds is None or r.seed == seeds]
        keys = {r.key for r in some}
        found = rows.from_rows([rows.study_row()], some, [s for s in level if s.key in keys])
        task = next(t for t in found.tasks if t.metric.name == "exact match")
        text = reading(task, len(task.keys))
        assert "encodings have a mean exact match of 0.000" in text
        assert "highest" not in text
