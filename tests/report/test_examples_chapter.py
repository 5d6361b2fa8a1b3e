"""The page's section on the lengths of a task's examples, and nothing where nobody asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.probes.example_lengths.section import COLOURS
from lengthwise.report import render, write
from lengthwise.store.rows import ProbeRow


@pytest.fixture(scope="module")
def counted(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    runs, scores = make_rows()
    key = next(run.key for run in runs if run.task == "Copy")
    result = {"train": {str(n): 1000 * n for n in range(1, 31)}, "test": {str(n): 5 for n in range(20, 101)}}
    row = ProbeRow(key=key, asked={"probe": "lengths", "field": "input"}, result=result, facts={}, created=0.0)
    return from_rows([make_study()], runs, scores, [row])


def test_the_page_has_the_numbers(counted: Findings) -> None:
    page = render(counted)
    assert page.count('<section class="examples"') == 1
    assert "training: 465,000 examples, length 1 to 30, mean 20.3" in page
    assert "test: 405 examples, length 20 to 100, mean 60.0" in page
    assert "Horizontal axis: words per question, from 1 to 100. Vertical axis: share of examples, from 0 % to" in page
    row = '<th scope="row" data-sort="25">25–29</th><td data-sort="135000">135,000</td><td data-sort="25">25</td>'
    assert row in page


def test_nothing_where_nothing_was_asked(quickstart: Findings) -> None:
    assert "Lengths of examples" not in render(quickstart)


@pytest.mark.medium
def test_the_table_looks_and_sorts_as_the_others(opened: Any, counted: Findings, tmp_path: Path) -> None:
    page = opened(write(counted, tmp_path / "page.html"))
    page.evaluate("document.querySelectorAll('section.examples details').forEach((d) => { d.open = true; })")
    table = page.locator("section.examples table")
    counts = [int(text.replace(",", "")) for text in table.locator("td:nth-child(2)").all_text_contents()]
    assert counts != sorted(counts)
    table.locator("button", has_text="training").click()
    found = [int(text.replace(",", "")) for text in table.locator("td:nth-child(2)").all_text_contents()]
    assert found == sorted(counts)
    other = page.locator("section.task table.scores").first.locator("tbody td").first
    looks = "e => (({borderBottomWidth, padding, textAlign}) => [borderBottomWidth, padding, textAlign])(getComputedStyle(e))"
    assert table.locator("tbody td").first.evaluate(looks) == other.evaluate(looks)


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, pytest.param(1100, marks=pytest.mark.slow)])
def test_it_fits_and_bars_are_shares(opened: Any, counted: Findings, tmp_path: Path, width: int) -> None:
    page = opened(write(counted, tmp_path / "page.html"), viewport={"width": width, "height": 900})
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    (task,) = [task for task in counted.tasks if task.probes]
    bins = task.probes["lengths"][0].bins(24)
    chart = page.locator(".examples .chart")
    heights = list(
        zip(
            *(
                [bar.bounding_box()["height"] for bar in chart.locator(f'.mark-rect path[fill="{colour}"]').all()]
                for colour in COLOURS
            ),
            strict=True,
        )
    )
    assert len(heights) == len(bins)
    labels = chart.locator(".role-axis-label text").all_text_contents()
    assert labels[-2:] == ["0", "29%"]
    assert labels[:2] == ["0", "5"], "the first length of bins"
    top = max(max(train / 465_000, test / 405) for _, _, train, test in bins)
    tall = max(map(max, heights))
    for (_, _, train, test), (a, b) in zip(bins, heights, strict=True):
        assert a == pytest.approx(tall * train / 465_000 / top, abs=1)
        assert b == pytest.approx(tall * test / 405 / top, abs=1)
