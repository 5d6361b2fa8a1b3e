"""The page's section on attention: its numbers, its pictures in a real browser, and nothing where nothing was asked."""

import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.analysis.intervals import over_examples
from lengthwise.probes.attention_distance.section import _line
from lengthwise.report import render, table, write
from lengthwise.report.drawing import ticks_up_to
from lengthwise.store.rows import ProbeRow, RunRow

BINS = 20


@pytest.fixture(scope="module")
def probed(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    """The quick start with distances from NoPE and histograms on its copy task, six layers deep."""
    runs, scores = make_rows(labels=("NoPE", "RoPE", "ALiBi", "FIRE"))
    return from_rows([make_study()], runs, scores, probes_of([run for run in runs if run.task == "Copy"]))


def probes_of(runs: list[RunRow]) -> list[ProbeRow]:
    chance, probes = random.Random(3), []
    nopes = {run.seed: run for run in runs if run.label == "NoPE"}
    facts = {"versions": {"torch": "2.13.0+cpu"}, "device": "cpu (a fast one)"}
    for run in runs:
        against = nopes[(run.seed + 1) % 3] if run.label == "NoPE" else nopes[run.seed]
        for length in (20, 40):
            asked = {"probe": "attention-distance", "against": against.key, "length": length, "examples": 10, "seed": 0}
            layers = [0.05 + 0.04 * layer + 0.03 * chance.random() for layer in range(6)]
            result = {"layers": layers, "standard_errors": [0.01] * 6, "n": 10, "places": 400, "seconds": 0.1}
            probes.append(row(run, asked | {"variant": "jensen-shannon"}, result, facts))
        cuts = sorted(chance.randrange(500) for _ in range(BINS - 1))
        head = [b - a for a, b in zip([0, *cuts], [*cuts, 500], strict=True)]
        mass = [n / 500 for n in head]
        asked = {"probe": "attended-distance", "length": 40, "examples": 100, "seed": 0}
        result = {"bins": BINS, "most": [[head]] * 6, "mass": [[mass]] * 6, "queries": 500, "n": 100, "seconds": 0.1}
        probes.append(row(run, asked, result, facts))
    return probes


def row(run: RunRow, asked: dict[str, Any], result: dict[str, Any], facts: dict[str, Any]) -> ProbeRow:
    return ProbeRow(key=run.key, asked=asked, result=result, facts=facts, created=1.0)


def test_the_page_has_the_numbers(probed: Findings) -> None:
    page = render(probed)
    assert page.count('<section class="attention"') == 1, "of the task that was asked"
    (group,) = probed.tasks[1].probes["attention-distance"]
    for series in group.series:
        for layer in series.layers:
            assert f"{layer.mean:.4f}" in page
            assert f"{layer.low:.4f} … {layer.high:.4f}" in page
    text = " ".join(re.sub(r"<[^>]+>", " ", page).replace("&nbsp;", " ").split())
    assert "Distance from NoPE’s attention in each layer (nats) · compared with NoPE’s runs of the same seed" in text
    assert "over 10 test sequences of each length (20 and 40 symbols)." in text
    assert "NoPE (another seed) is the baseline" in text
    assert "Runs with the same seed start from the same weights" in text
    assert "3 seeds, 1,500 queries" in text
    assert "cpu (a fast one)" in text
    for share in probed.tasks[1].probes["attended-distance"][0].series[0].most:
        assert f"{share.mean:.1%}" in page


def test_the_terminal_has_them_in_short(probed: Findings) -> None:
    from rich.console import Console

    console = Console(width=80, record=True)
    console.print(table(probed))
    text = console.export_text()
    (group,) = probed.tasks[1].probes["attention-distance"]
    assert "Attention distance from NoPE" in text
    for series in group.series:
        assert f"{series.mean:.4f}" in text
    assert "NoPE (another seed)" in text


def test_nothing_where_nothing_was_asked(quickstart: Findings) -> None:
    assert '<section class="attention"' not in render(quickstart)


def test_names_cannot_break_out(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> None:
    evil = '"><script>alert(1)</script>'
    runs, scores = make_rows(labels=("NoPE", evil))
    page = render(from_rows([make_study()], runs, scores, probes_of([run for run in runs if run.task == "Copy"])))
    assert evil not in page
    assert "<script>alert" not in page


def test_a_layer_without_a_number_breaks_the_line() -> None:
    layers = [over_examples(mean, 0.01) for mean in (0.1, math.nan, 0.2, 0.3)]
    drawn = _line(layers, 0.4, 4)
    assert drawn["path"] == "M12.5,75.0M62.5,50.0L87.5,25.0"
    assert [p["x"] for p in drawn["points"]] == [12.5, 62.5, 87.5]
    assert drawn["band"].count("M") == 1, "a single layer has no area"


# ---- in a browser -----------------------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, probed: Findings, tmp_path: Path) -> Any:
    where = write(probed, tmp_path / "page.html")
    contexts = []

    def opened(**settings: Any) -> Any:
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.errors = []
        page.on("console", lambda m: page.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: page.errors.append(str(e)))
        page.goto(where.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_and_points_lie_where_the_numbers_are(opened: Any, probed: Findings, width: int) -> None:
    page = opened(viewport={"width": width, "height": 900})
    assert page.errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    frame = page.locator(".area").bounding_box()
    (group,) = probed.tasks[1].probes["attention-distance"]
    top = ticks_up_to(max(i.high for s in group.series for i in s.layers))[-1]
    fire = next(s for s in group.series if s.label == "FIRE")
    dots = [dot.bounding_box() for dot in page.locator('.dot[data-series="FIRE"]').all()]
    assert len(dots) == 6
    for n, (dot, layer) in enumerate(zip(dots, fire.layers, strict=True)):
        assert dot["x"] + dot["width"] / 2 == pytest.approx(frame["x"] + frame["width"] * (n + 0.5) / 6, abs=1.5)
        assert dot["y"] + dot["height"] / 2 == pytest.approx(frame["y"] + 240 * (1 - layer.mean / top), abs=1.5)
    bars = page.locator('.multiple[data-series="RoPE"] .bars span b').all()
    heights = [bar.bounding_box()["height"] for bar in bars]
    shares = [
        i.mean for i in next(s for s in probed.tasks[1].probes["attended-distance"][0].series if s.label == "RoPE").most
    ]
    assert len(heights) == BINS
    scale = max(heights) / max(shares)
    assert heights == pytest.approx([share * scale for share in shares], abs=1)


def test_the_legend_hides_an_encoding_everywhere(opened: Any) -> None:
    page = opened()
    parts = page.locator('[data-series="ALiBi"]')
    assert parts.count() == 1 + 6 + 1
    page.locator('.attention .key[data-label="ALiBi"]').click()
    assert not any(parts.nth(n).is_visible() for n in range(parts.count()))
    assert page.locator('.key[data-label="ALiBi"][aria-pressed="false"]').count() == 3, "all legends say so"
    page.locator(".attention .all").click()
    assert parts.last.is_visible()
    assert page.errors == []


def test_light_dark_and_paper(opened: Any) -> None:
    def looks(page: Any) -> list[str]:
        found: list[str] = page.evaluate(
            """() => [".multiple b", ".curve", ".ticks span"].map((selector) => {
              const style = getComputedStyle(document.querySelector(selector));
              return selector === ".curve" ? style.stroke : selector === ".multiple b" ? style.backgroundColor : style.color;
            })"""
        )
        return found

    light, dark = (looks(opened(color_scheme=scheme)) for scheme in ("light", "dark"))
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert looks(page) == light, "paper is white"
    assert page.locator(".plane").is_visible()
