"""Filters, links to parts of the page, and an address that shows the same again, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render
from lengthwise.report.page import section_ids

Make = Callable[..., Any]
LABELS = ("NoPE", "RoPE", "ALiBi", "FIRE", "T5", "KerpleLog", "PRoPE")


@pytest.fixture
def study(make_row: Make, make_score: Make, make_study: Make) -> Findings:
    """Seven encodings on three tasks."""
    runs = [
        make_row(key=f"{n:015x}{k}", label=label, encoding=label, task=task)
        for k, task in enumerate(("Text", "Copy", "Copy sums"))
        for n, label in enumerate(LABELS)
    ]
    return from_rows([make_study()], runs, [make_score(run, length, 2.0) for run in runs for length in (128, 256)])


def test_the_ids_of_sections_hang_on_their_titles() -> None:
    assert section_ids(["Copy(symbols=2)", "Text", "Copy (symbols 2)", "Ω", "Text"]) == [
        "task-copy-symbols-2",
        "task-text",
        "task-copy-symbols-2-2",
        "task-task",
        "task-text-2",
    ]


def visible(page: Any, selector: str) -> list[str]:
    return [
        part.inner_text().split("\n")[0].removesuffix(" #")
        for part in page.locator(selector).all()
        if part.is_visible()
    ]


@pytest.mark.medium
def test_filters_and_their_address(study: Findings, tmp_path: Path, opened: Any) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(study))
    page = opened(file)
    page.fill("input[name=tasks]", "COPY")
    assert visible(page, ".task h2") == ["Copy", "Copy sums"]
    assert visible(page, ".overview .multiple p a") == ["Copy", "Copy sums"]
    assert visible(page, "nav a") == ["Copy", "Copy sums"]
    page.fill("input[name=encodings]", "rope fire")
    assert page.locator("output").inner_text() == "3 encodings, 2 tasks"
    rows = page.locator("#task-copy .scores").first.locator("tbody tr")
    assert [r.get_attribute("data-label") for r in rows.all() if "off" not in (r.get_attribute("class") or "")] == [
        "RoPE", "FIRE", "PRoPE"
    ]  # fmt: skip
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]")
    assert page.input_value("input[name=encodings]") == "rope fire"
    assert visible(page, ".task h2") == ["Copy", "Copy sums"]
    page.fill("input[name=tasks]", "")
    page.fill("input[name=encodings]", "")
    assert "#" not in page.url and len(visible(page, ".task h2")) == 3
    page.locator(".key", has_text="ALiBi").first.click()
    assert page.url.endswith("#/hide=ALiBi")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("#task-text .key[aria-pressed=false]").all_inner_texts() == ["ALiBi"]


@pytest.mark.medium
def test_a_link_to_a_run_opens_the_table_of_runs(study: Findings, tmp_path: Path, opened: Any) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(study))
    page = opened(file)
    row = page.locator(f"#run-{study.runs[3].key}")
    assert not row.is_visible()
    page.evaluate(f"location.hash = 'run-{study.runs[3].key}'")
    row.wait_for()
    assert study.runs[3].key in row.inner_text()
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#/encodings=%3Cimg%20src%3Dx%3E&hide=%22%3E")
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    assert page.input_value("input[name=encodings]") == "<img src=x>"
    assert page.locator("img").count() == 0, "text of the address stays text"
    assert page.messages == []
