"""The sections of statistics on the page."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import palette
from lengthwise.report.page import render
from lengthwise.report.statistics import over_tasks_sections, statistics_section


def test_a_task_has_its_statistics(quickstart: Findings) -> None:
    """Copy: NoPE has 1.000 at 20 and about 0.6 at 40 symbols, so 0.8 lies between them, and seven encodings have 21 pairs."""
    copy = quickstart.tasks[1]
    section = statistics_section(copy, palette.looks(quickstart.labels))
    assert section is not None
    nope = next(row for row in section["rows"] if row["label"] == "NoPE")
    assert 20 < int(nope["cells"][0]["mean"]) < 40
    assert " … " in nope["cells"][0]["spread"]
    assert len(section["comparisons"]) == 21
    page = render(quickstart)
    assert page.count('<h3 class="part">Statistics</h3>') == 2
    assert "least 3.3 standard deviations of the differences" in re.sub(r"\s+", " ", page)
    assert "a score of at least 0.8" in page
    assert over_tasks_sections(quickstart, palette.looks(quickstart.labels)) == [], "two metrics"


def test_one_seed_has_no_intervals(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> None:
    runs, scores = make_rows()
    alone = [run for run in runs if run.seed == 0]
    keys = {run.key for run in alone}
    found = from_rows([make_study()], alone, [score for score in scores if score.key in keys])
    page = render(found)
    assert "have one seed each: there is no interval between seeds, no comparison and no effect size." in page
    assert "one seed: no interval" in page


def test_a_hidden_encoding_is_faded_in_its_pairs(quickstart: Findings, tmp_path: Path, opened: Any) -> None:
    """Seven encodings have 21 pairs, and each of them is in six."""
    file = tmp_path / "page.html"
    file.write_text(render(quickstart), encoding="utf-8")
    page = opened(file)
    pairs = page.locator("#task-copy .statistics tr[data-second]")
    assert pairs.count() == 21
    page.locator(".key", has_text="ALiBi").first.click()
    assert page.locator("#task-copy .statistics tr[data-second].off").count() == 6
