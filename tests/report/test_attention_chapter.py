"""The page's section on attention: its numbers, its pictures in a real browser, and nothing where nothing was asked."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.probes import PROBES
from lengthwise.report import render, table, write
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.palette import looks
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


def test_a_layer_without_a_number_interrupts_the_line(
    make_rows: Callable[..., Any], make_study: Callable[..., Any]
) -> None:
    runs, scores = make_rows(seeds=3, labels=("NoPE", "FIRE"))
    probes = probes_of([run for run in runs if run.task == "Copy"])
    for probe in probes:
        if "layers" in probe.result:
            probe.result["layers"][1] = None
    (_, task) = from_rows([make_study()], runs, scores, probes).tasks
    (summary,) = task.probes["attention-distance"]
    section = PROBES.find("attention-distance").section(summary, task, looks(("NoPE", "FIRE")))
    rows = section["chart"].data["spec"]["data"]["values"]
    assert [row["y"] is None for row in rows if row["e"] == "s0"] == [False, True, False, False, False, False]
    assert section["chart"].data["series"][0]["points"][1]["mean"] == "not finite"
    assert section["series"][0]["cells"][2]["mean"] == "not finite"


# ---- in a browser -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(probed: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(probed, tmp_path_factory.mktemp("page") / "page.html")


def centres(marks: Any) -> list[tuple[float, float]]:
    boxes = [mark.bounding_box() for mark in marks.all()]
    return [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]


@pytest.mark.medium
@pytest.mark.parametrize("width", [360, pytest.param(1200, marks=pytest.mark.slow)])
def test_it_fits_and_points_lie_where_the_numbers_are(opened: Any, path: Path, probed: Findings, width: int) -> None:
    page = opened(path, viewport={"width": width, "height": 900})
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    (group,) = probed.tasks[1].probes["attention-distance"]
    top = top_of_intervals(i for s in group.series for i in s.layers)
    fire = next(s for s in group.series if s.label == "FIRE")
    chart = page.locator(".attention .chart").first
    points = centres(chart.locator('.mark-symbol path[fill="var(--c3)"]'))
    assert len(points) == 6
    ticks = {float(text.text_content()): text for text in chart.locator(".mark-text.role-axis-label text").all()}
    (layers, heights) = ([n for n in ticks if n >= 1], [n for n in ticks if n < 1])
    assert layers == [1, 2, 3, 4, 5, 6]
    assert (min(heights), max(heights)) == (0, top)
    lowest, highest = (centres(chart.get_by_text(ticks[n].text_content(), exact=True))[0][1] for n in (0, top))
    for n, ((x, y), layer) in enumerate(zip(points, fire.layers, strict=True)):
        assert x == pytest.approx(centres(chart.get_by_text(f"{n + 1}", exact=True))[0][0], abs=1.5)
        assert y == pytest.approx(lowest + (highest - lowest) * layer.mean / top, abs=2)
    bars = page.locator('.multiple[data-series="RoPE"] .mark-rect path').all()
    heights = [bar.bounding_box()["height"] for bar in bars]
    (histograms,) = probed.tasks[1].probes["attended-distance"]
    shares = [i.mean for i in next(s for s in histograms.series if s.label == "RoPE").most]
    assert len(heights) == BINS
    scale = max(heights) / max(shares)
    assert heights == pytest.approx([share * scale for share in shares], abs=1)
    whiskers = page.locator('.multiple[data-series="RoPE"] .mark-rule.role-mark line')
    assert whiskers.count() == BINS, "an interval over three seeds in each bin"


@pytest.mark.medium
def test_the_legend_hides_an_encoding_everywhere(opened: Any, path: Path) -> None:
    page = opened(path)
    line = page.locator(".attention .chart").first.locator('path[stroke="var(--c2)"], path[fill="var(--c2)"]')
    multiple = page.locator('.multiple[data-series="ALiBi"]')
    assert line.count() > 6
    assert page.locator(".attention .chart text", has_text="ALiBi").count() == 1
    assert multiple.count() == 1
    page.locator('.attention .key[data-label="ALiBi"]').click()
    page.wait_for_timeout(100)
    assert line.count() == 0
    assert page.locator(".attention .chart text", has_text="ALiBi").count() == 0
    assert not multiple.is_visible()
    assert page.locator('.key[data-label="ALiBi"][aria-pressed="false"]').count() == 3, "all legends say so"
    page.locator(".attention .all").click()
    page.wait_for_timeout(100)
    assert line.count() > 6
    assert multiple.is_visible()
    assert page.messages == []


@pytest.mark.medium
def test_the_tooltip_and_the_description(opened: Any, path: Path, probed: Findings) -> None:
    page = opened(path)
    chart = page.locator(".attention .chart").first
    assert chart.get_attribute("role") == "img"
    described = (
        "Copy: line chart of the attention distance from NoPE by layer. Horizontal axis: layers 1 to 6. Vertical axis:"
    )
    assert chart.get_attribute("aria-label").startswith(described)
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = page.locator(".attention .tip").first
    (group,) = probed.tasks[1].probes["attention-distance"]
    second = next(s for s in group.series if s.label == "FIRE").layers[1]
    text = tip.inner_text()
    assert text.startswith("layer 2")
    assert f"{second.mean:.3f}" in text and f"{second.low:.3f} … {second.high:.3f}" in text
    assert "NoPE (another seed)" in text
    assert "95 % interval over 3 seeds × 10 examples" in text
    assert tip.locator("svg").count() == 4, "each name has its glyph"
    histogram = page.locator('.multiple[data-series="RoPE"] .chart')
    assert histogram.get_attribute("aria-label").startswith("RoPE: bar chart of the share of queries")
    assert histogram.get_attribute("tabindex") is None, "it has nothing for the keyboard"


@pytest.mark.medium
def test_light_dark_and_paper(opened: Any, path: Path) -> None:
    def looks(page: Any) -> list[str]:
        found: list[str] = page.evaluate(
            """() => [".multiple .mark-rect path", ".attention .mark-line path", ".attention .role-axis-label text"].map((s) => {
              const style = getComputedStyle(document.querySelector(s));
              return style[s.endsWith("-line path") ? "stroke" : "fill"];
            })"""
        )
        return found

    light, dark = (looks(opened(path, color_scheme=scheme)) for scheme in ("light", "dark"))
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page = opened(path, color_scheme="dark")
    page.emulate_media(media="print")
    assert looks(page) == light, "paper is white"
    assert page.locator(".attention .chart").first.is_visible()
