"""The page's section on what decoded answers said, and nothing where none were decoded."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render, write


@pytest.fixture(scope="module")
def decoded(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    """As if the copies had been decoded with steps before them, which ALiBi alone gets wrong."""
    runs, scores = make_rows()
    label = {run.key: run.label for run in runs if run.task == "Copy"}
    told = []
    for score in scores:
        if score.key in label:
            bad = label[score.key] == "ALiBi"
            kept = [{"question": "a <b> c", "generated": "a & " * 200}] if bad else []
            details = {
                "means": {"output": 0.25 if bad else 1.0, "failed steps": 3.5 if bad else 0.0},
                "order": ["output", "failed steps"],
                "unreadable": score.n if bad else 0,
                "kept": kept,
                **({"broken": [{"question": "d e", "generated": "<i>out"}]} if bad else {}),
            }
            score = dataclasses.replace(score, facts={**score.facts, "details": details})
        told.append(score)
    return from_rows([make_study()], runs, told)


def test_the_page_has_the_numbers(decoded: Findings) -> None:
    page = render(decoded)
    assert page.count('<section class="generated-answers"') == 1
    section = page[page.index('<section class="generated-answers"') :]
    section = section[: section.index("</section>")]
    assert [section.count(f">{name}</button></th>") for name in ("output", "failed steps", "unreadable")] == [2, 2, 2]
    assert section.count("<td") == 7 * 2 * 3
    line = section[section.index("<span>ALiBi</span>") :]
    assert ">0.250</td>" in line[: line.index("</tr>")]
    assert ">3.500</td>" in line[: line.index("</tr>")]
    assert ">1.000</td>" in line[: line.index("</tr>")]
    assert [section.count(f"<summary>Sample answers {words}") for words in ("that could not", "with steps")] == [1, 1]
    assert section.count("<code>") == 3 + 3, "of each encoding and kind some"
    assert section.count("<code>&lt;i&gt;out</code>") == 3
    assert "a &lt;b&gt; c" in section
    assert "a <b> c" not in page


def test_further_scores_are_shown_without_words_about_generated_answers(
    make_rows: Callable[..., Any], make_study: Callable[..., Any]
) -> None:
    runs, scores = make_rows()
    copies = {run.key for run in runs if run.task == "Copy"}
    details = {"means": {"exact match": 0.125}, "order": ["exact match"]}
    told = [
        dataclasses.replace(score, facts={**score.facts, "details": details}) if score.key in copies else score
        for score in scores
    ]
    page = render(from_rows([make_study()], runs, told))
    section = page[page.index('<section class="generated-answers"') :]
    section = section[: section.index("</section>")]
    assert "Further scores</h3>" in section
    assert section.count(">exact match</button></th>") == 2
    assert section.count(">0.125</td>") == section.count("<td") == 7 * 2
    assert "unreadable" not in section and "steps" not in section


def test_nothing_where_nothing_was_decoded(quickstart: Findings) -> None:
    assert "Generated answers" not in render(quickstart)


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, 1100])
def test_it_fits(browser: Any, decoded: Findings, tmp_path: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(write(decoded, tmp_path / "page.html").resolve().as_uri())
    page.evaluate("document.querySelectorAll('section.generated-answers details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("section.generated-answers code").first.is_visible()
    page.locator("section.generated-answers button", has_text="failed steps").first.click()
    page.locator("section.generated-answers button", has_text="failed steps").first.click()
    labels = page.locator("section.generated-answers tbody th span").all_inner_texts()
    assert "ALiBi" in (labels[0], labels[-1]), "sorted by it, ALiBi is first or last"
    page.close()
