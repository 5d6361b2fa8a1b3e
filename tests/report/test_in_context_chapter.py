"""The page's section on functions learned in context: its numbers, its pictures in a real browser, names that cannot break out."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render, write
from lengthwise.store.rows import ProbeRow, RunRow

LABELS = ("NoPE", "RoPE", "ALiBi", "FIRE")
PHONE = {"width": 390, "height": 844}
HEADS = ("begin", "middle", "end")


def probes_of(runs: list[RunRow]) -> list[ProbeRow]:
    chance, probes = random.Random(5), []

    def near(value: float) -> float:
        return round(value * (1 + 0.1 * chance.random()), 6)

    def row(run: RunRow, asked: dict[str, Any], result: dict[str, Any]) -> None:
        asked = asked | {"examples": 64, "seed": 0}
        facts = {"device": "cpu (a fast one)"}
        probes.append(ProbeRow(key=run.key, asked=asked, result=result | {"n": 64}, facts=facts, created=1.0))

    def made(kind: str, at: Any, start: int, stop: int, curve: bool = True) -> dict[str, Any]:
        groups = [near(1.5) for _ in range(8)]
        data = {"kind": kind, "at": at, "start": start, "stop": stop, "score": sum(groups) / 8, "low": 1.4, "high": 1.7}
        means = [near(1.5) for _ in range(stop)]
        return data | {"groups": groups} | ({"curve": {"mean": means, "low": means, "high": means}} if curve else {})

    for run in runs:
        heads = [[[near(0.01) for _ in range(199)] for _ in range(2)] for _ in range(3)]
        last = {kind: [[near(0.01) for _ in range(50)] for _ in range(2)] for kind in ("trained", "long", "repeated")}
        asked: dict[str, Any] = {"probe": "recency", "length": 200, "points": 50, "repeats": 4}
        row(run, asked, {"layers": heads, "last": last, "train_length": 50})
        asked = {"probe": "duplicates", "length": 400, "points": 50, "noise": [5, 6], "resamples": 100}
        found = [made("noise", n, 50, 58) for n in (5, 6)] + [made("all", "all", 399, 400)]
        found += [made("instruction", at, s, s + 32) for at, s in zip(HEADS, (0, 184, 368), strict=True)]
        found += [made("target", at, s, s + 8) for at, s in zip(HEADS, (50, 212, 392), strict=True)]
        row(run, asked, {"prompts": found})
        asked = {"probe": "lost-in-the-middle", "length": 400, "points": 50, "positions": 3, "resamples": 100}
        found = [made("answers", at, 392, 400) for at in HEADS]
        found += [made("serial", at, 399, 400, curve=False) for at in (0, 199, 398, "none")]
        row(run, asked, {"prompts": found})
        asked = {"probe": "induction", "length": 80, "points": 12, "repeats": 4, "neighbours": 1}
        shares = [[near(0.1), near(0.55)] for _ in range(3)]
        result = {"induction": shares, "nearest": shares, "uniform": {"induction": 0.0321, "nearest": 0.0083}}
        row(run, asked, result | {"prefix_score": near(0.16), "nearest_score": near(0.02), "start": 41})
    return probes


def found_of(make_rows: Any, make_study: Any, labels: tuple[str, ...]) -> Findings:
    runs, scores = make_rows(labels=labels)
    return from_rows([make_study()], runs, scores, probes_of([run for run in runs if run.task == "Text"]))


@pytest.fixture(scope="module")
def probed(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    return found_of(make_rows, make_study, LABELS)


def said(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).replace("&nbsp;", " ").split())


def test_the_page_has_the_numbers(probed: Findings) -> None:
    page = render(probed)
    text = said(page)
    assert page.count('<section class="in-context"') == 1, "of the task that was asked"
    found = probed.tasks[0].probes
    for group in (*found["duplicates"], *found["lost-in-the-middle"]):
        for series in group.series:
            assert all(f"{i.mean:.3f}" in page for i in series.scores if i is not None)
    for series in found["recency"][0].series:
        assert f"{series.recent[0].mean:.1%}" in page
        assert f"{series.best.mean:.1%}" in page
    for one in found["induction"][0].series:
        assert f"{one.prefix.mean:.3f}" in page
        assert one.heads == 9, "one of two in each of three layers, three seeds"
    assert "its attention weights on the labels of 200 examples" in text
    assert "If all tokens had the same weight, each would have 0.0025" in text
    assert "target from example 51 target from example 213 target from example 393" in text
    assert "Each prompt repeats 12 examples 4 times." in text
    assert "a head that gives the same weight to all tokens that it sees scores 0.032." in text
    assert "The instruction consists of the first 2 d examples." in text
    assert "cpu (a fast one)" in text


def test_nothing_where_nothing_was_asked(quickstart: Findings) -> None:
    assert '<section class="in-context"' not in render(quickstart)


def test_names_cannot_break_out(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> None:
    evil = '"><script>alert(1)</script>'
    page = render(found_of(make_rows, make_study, ("NoPE", evil)))
    assert evil not in page
    assert "<script>alert" not in page


# ---- in a browser -----------------------------------------------------------------------------------------------


def line(page: Any, slot: int) -> int:
    """Count the marks of a colour in the charts of the chapter that are no small multiples of one encoding."""
    shared = page.locator(".in-context .plot:not(.multiple[data-series] .plot)")
    return int(shared.locator(f'path[stroke="var(--c{slot})"], path[fill="var(--c{slot})"]').count())


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, pytest.param(1200, marks=pytest.mark.slow)])
def test_it_fits_and_follows_the_legend(opened: Any, probed: Findings, tmp_path: Path, width: int) -> None:
    page = opened(write(probed, tmp_path / "page.html"), viewport={"width": width, "height": 900})
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator(".in-context .chart")
    assert charts.count() == 5 + 10 + 4 * len(LABELS), "line charts, scores at each example, weights"
    descriptions = [chart.get_attribute("aria-label") for chart in charts.all()]
    assert all("Vertical axis: " in text for text in descriptions)
    assert line(page, 2) > 20
    names = page.locator(".in-context .chart text", has_text="ALiBi")
    assert names.count() == 5, "at the ends of lines"
    for box in (name.bounding_box() for name in names.all()):
        assert box["x"] + box["width"] <= width
    multiples = page.locator('.in-context .multiple[data-series="ALiBi"]')
    assert multiples.count() == 4
    page.locator('.in-context .key[data-label="ALiBi"]').click()
    page.wait_for_timeout(100)
    assert line(page, 2) == names.count() == 0
    assert not any(multiple.is_visible() for multiple in multiples.all())
    details = page.locator(".in-context details").first
    details.evaluate("e => { e.open = true; }")
    late = details.locator('.multiple[data-series="RoPE"] .chart svg')
    late.first.wait_for()
    assert late.first.bounding_box()["width"] > 100, "a chart in a closed element is drawn when it opens"
    page.locator(".in-context .all").click()
    page.wait_for_timeout(100)
    assert line(page, 2) > 20
    assert page.messages == []


@pytest.mark.medium
def test_charts_are_drawn_when_they_are_near_and_before_printing(
    browser: Any, probed: Findings, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    page.goto(write(probed, tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    charts, drawn = page.locator(".chart").count(), page.locator(".chart svg")
    assert 0 < drawn.count() < charts
    page.locator('.key[data-label="ALiBi"]').first.click()
    page.pdf()
    assert drawn.count() == charts
    assert line(page, 1) > 20
    assert line(page, 2) == 0, "what was hidden before a chart was drawn stays hidden"
    page.close()


@pytest.mark.medium
def test_long_and_hostile_names_are_text_and_leave_room_for_the_chart(
    opened: Any, make_rows: Any, make_study: Any, tmp_path: Path
) -> None:
    name = "FIRE(</script><img src=x onerror='window.hacked=1'>, width=64, transform='log', threshold=128.0)"
    page = opened(write(found_of(make_rows, make_study, ("NoPE", name)), tmp_path / "page.html"), viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    chart = page.locator(".in-context .chart[tabindex]").first
    ends = chart.locator("text", has_text="FIRE(")
    assert ends.text_content().endswith("…")
    box, frame = ends.bounding_box(), chart.bounding_box()
    assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    points = chart.locator(".mark-symbol path[fill]").evaluate_all("all => all.map((e) => e.getBoundingClientRect().x)")
    assert max(points) - min(points) > 80
    chart.focus()
    page.keyboard.press("ArrowLeft")
    assert name in page.locator(".in-context .tip:visible").inner_text()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.messages == []
