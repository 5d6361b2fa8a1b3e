"""The sections of statistics on the page."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import palette, statistics
from lengthwise.report.page import render
from lengthwise.report.statistics import over_tasks_sections, statistics_section


def test_a_task_has_its_statistics(quickstart: Findings) -> None:
    """Copy: NoPE has 1.000 at 20 and about 0.6 at 40 symbols, so 0.8 is between; seven encodings have 21 pairs."""
    copy = quickstart.tasks[1]
    section = statistics_section(copy, palette.looks(quickstart.labels))
    assert section is not None
    nope = next(row for row in section["rows"] if row["label"] == "NoPE")
    assert 20 < int(nope["cells"][0]["mean"]) < 40
    assert " … " in nope["cells"][0]["spread"]
    assert len(section["comparisons"]["shown"]) == 21
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


@pytest.mark.medium
def test_many_pairs_are_compressed_until_their_table_is_opened(
    quickstart: Findings, tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without JavaScript there are the first rows. Opening the table adds the others, sorted and hidden like them."""
    whole = tmp_path / "whole.html"
    whole.write_text(render(quickstart), encoding="utf-8")
    monkeypatch.setattr(statistics, "PAIRS", 4)
    text = render(quickstart)
    assert text.count("data-second") == 2 * 4 and text.count("These are the 4 pairs with the smallest p of 21.") == 2
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    expected = (
        opened(whole)
        .locator("#task-copy .statistics tr[data-second]")
        .evaluate_all("rows => rows.map((r) => r.outerHTML)")
    )
    page = opened(file)
    page.locator(".key", has_text="ALiBi").first.click()
    page.locator("#task-copy .statistics summary").click()
    pairs = page.locator("#task-copy .statistics tr[data-second]")
    pairs.nth(20).wait_for()
    assert page.locator("#task-copy .statistics tr[data-second].off").count() == 6
    page.locator(".key", has_text="ALiBi").first.click()
    found = pairs.evaluate_all("rows => rows.map((r) => { r.removeAttribute('class'); return r.outerHTML; })")
    assert [normal(row) for row in found] == [normal(row) for row in expected]


def normal(row: str) -> str:
    """Return the HTML of a row without empty classes."""
    return row.replace(' class=""', "")


@pytest.mark.medium
def test_a_cell_shows_the_scores_of_its_seeds(quickstart: Findings, tmp_path: Path, opened: Any) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(quickstart), encoding="utf-8")
    page = opened(file)
    row = page.locator("#task-copy .scores tr[data-label=FIRE]").first
    cell = row.locator("td").last
    cell.hover()
    page.wait_for_function("(cell) => cell.title !== ''", arg=cell.element_handle())
    point = next(s for s in quickstart.tasks[1].series if s.label == "FIRE").points[-1]
    scores = ", ".join(f"{seed.mean:.3f}" for seed in point.seeds)
    assert cell.get_attribute("title").endswith(f"3 seeds × {point.seeds[0].n} examples; seeds 0 to 2: {scores}")


@pytest.mark.medium
def test_a_hidden_encoding_is_faded_in_its_pairs(quickstart: Findings, tmp_path: Path, opened: Any) -> None:
    """Seven encodings have 21 pairs, and each of them is in six."""
    file = tmp_path / "page.html"
    file.write_text(render(quickstart), encoding="utf-8")
    page = opened(file)
    pairs = page.locator("#task-copy .statistics tr[data-second]")
    assert pairs.count() == 21
    page.locator(".key", has_text="ALiBi").first.click()
    assert page.locator("#task-copy .statistics tr[data-second].off").count() == 6
