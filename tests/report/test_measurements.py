"""The page's sections of measurements: their numbers, and their charts in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.analysis.answers import numbers_table, summarize
from lengthwise.measurements import MEASUREMENTS
from lengthwise.report import render, table, write
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.measurements import cell
from tests.report.answers import BINS, HEADS, OF_RUNS, answers_of

LABELS = ("NoPE", "RoPE", "ALiBi", "FIRE")
CHAPTERS = {MEASUREMENTS[name].chapter for name in OF_RUNS}


def measured(make_rows: Any, make_study: Any, labels: tuple[str, ...] = LABELS, **options: Any) -> Findings:
    """The quick start with answers of every measurement about the runs of its copy task."""
    runs, scores = make_rows(labels=labels)
    answers = answers_of([run for run in runs if run.task == "Copy"], **options)
    return from_rows([make_study()], runs, [*scores, *answers])


@pytest.fixture(scope="module")
def found(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    return measured(make_rows, make_study)


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).replace("&nbsp;", " ").split())


@pytest.mark.medium
def test_the_page_has_the_numbers(found: Findings) -> None:
    page = render(found)
    assert page.count('<section class="measurements"') == len(CHAPTERS), "of the task that was measured"
    task = found.tasks[1]
    assert set(task.answers) == set(OF_RUNS)
    for summaries in task.answers.values():
        for summary in summaries:
            for declared in summary.measurement.tables:
                heads, rows = numbers_table(summary, declared)
                assert all(head in page for head, _ in heads)
                for row in rows:
                    for interval, (_, column) in zip(row.cells, heads, strict=True):
                        shown = cell(interval, column)
                        assert shown["mean"] in page and shown["spread"].replace("\u00a0", " ") in page.replace(
                            "\u00a0", " "
                        )
    text = plain(page)
    for words in (
        "Distance from NoPE’s attention in each layer",
        "Compared with NoPE’s runs of the same seed",
        "over 10 test sequences of each length (20 and 40 symbols).",
        "NoPE (another seed)",
        "Runs with the same seed start from the same weights",
        "the query at position 128",
        "FIRE, layers 1 to 6",
        "Logits have the same bits at every shift for NoPE.",
        "layer 6: position-position",
        "FIRE, L, layer 1",
        "518 ± 7.452",
        "the labels of 200 examples",
        "Each prompt repeats 12 examples 4 times.",
        "a head that gives the same weight to all tokens that it sees scores 0.032.",
        "The instruction consists of the first 2 d examples.",
        "by words per question; all examples.",
        "cpu (a fast one)",
    ):
        assert words in text, words


@pytest.mark.medium
def test_every_chart_is_described(found: Findings) -> None:
    page = render(found)
    for section in page.split('<section class="measurements"')[1:]:
        described = re.findall(r'role="img" aria-label="([^"]+)"', section[: section.index("</section>")])
        assert described or 'data-chapter="further-scores"' in section
        assert all("Horizontal axis:" in text and "Vertical axis:" in text for text in described)


def test_the_terminal_has_the_distances(found: Findings) -> None:
    from rich.console import Console

    console = Console(width=80, record=True)
    console.print(table(found))
    text = console.export_text()
    (summary,) = found.tasks[1].answers["attention-distance"]
    assert "attention-distance from NoPE  the same seed" in text
    assert "10 test sequences of each length (20 and 40 symbols)" in text
    for series, values in zip(summary.series, summarize(summary, "distance"), strict=True):
        assert series.name in text
        assert f"{values[()].mean:.3f}" in text


def test_nothing_where_nothing_was_measured(quickstart: Findings) -> None:
    assert '<section class="measurements"' not in render(quickstart)


def test_names_cannot_break_out(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> None:
    evil = '"><script>alert(1)</script>'
    page = render(measured(make_rows, make_study, ("NoPE", evil), quantity=evil))
    assert evil not in page
    assert "<script>alert" not in page


# ---- in a browser -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(found: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(found, tmp_path_factory.mktemp("page") / "page.html")


def chapter(name: str) -> str:
    return f'.measurements[data-chapter="{name}"]'


def centres(marks: Any) -> list[tuple[float, float]]:
    boxes = [mark.bounding_box() for mark in marks.all()]
    return [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]


@pytest.mark.medium
@pytest.mark.parametrize("width", [360, pytest.param(1200, marks=pytest.mark.slow)])
def test_it_fits_and_points_lie_where_the_numbers_are(opened: Any, path: Path, found: Findings, width: int) -> None:
    page = opened(path, viewport={"width": width, "height": 900})
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    (summary,) = found.tasks[1].answers["attention-distance"]
    layers = [list(values.values()) for values in summarize(summary, "distance", ("layer",))]
    top = top_of_intervals(i for of_series in layers for i in of_series)
    chart = page.locator(f"{chapter('attention')} .chart").first
    points = centres(chart.locator('.mark-symbol path[fill="var(--c3)"]'))
    assert len(points) == 6
    ticks = {float(text.text_content()): text for text in chart.locator(".mark-text.role-axis-label text").all()}
    numbers, heights = ([n for n in ticks if n >= 1], [n for n in ticks if n < 1])
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert (min(heights), max(heights)) == (0, top)
    lowest, highest = (centres(chart.get_by_text(ticks[n].text_content(), exact=True))[0][1] for n in (0, top))
    fire = next(values for series, values in zip(summary.series, layers, strict=True) if series.label == "FIRE")
    for n, ((x, y), layer) in enumerate(zip(points, fire, strict=True)):
        assert x == pytest.approx(centres(chart.get_by_text(f"{n + 1}", exact=True))[0][0], abs=1.5)
        assert y == pytest.approx(lowest + (highest - lowest) * layer.mean / top, abs=2)
    rope = page.locator(f'{chapter("attention")} .multiple[data-series="RoPE"]').first
    heights = [bar.bounding_box()["height"] for bar in rope.locator(".mark-rect path").all()]
    (histograms,) = found.tasks[1].answers["attended-distance"]
    shares = [i.mean for i in summarize(histograms, "highest", ("distance",))[1].values()]
    assert len(heights) == BINS
    scale = max(heights) / max(shares)
    assert heights == pytest.approx([share * scale for share in shares], abs=1)
    assert rope.locator(".mark-rule.role-mark line").count() == BINS, "an interval over three seeds in each bin"
    lines = page.locator(f'{chapter("attention")} .multiple[data-series="FIRE"] .mark-line path[stroke="var(--c3)"]')
    assert lines.count() == HEADS, "one chart for all layers"
    numbers = page.locator(f'{chapter("during-training")} .multiple[data-series="FIRE"]')
    assert [chart.locator(".mark-line path").count() for chart in numbers.all()] == [3, 3, 3], (
        "seeds, and entries of two heads"
    )


@pytest.mark.medium
def test_the_legend_hides_an_encoding_everywhere(opened: Any, path: Path) -> None:
    page = opened(path)
    own = chapter("attention")
    line = page.locator(f"{own} .chart").first.locator('path[stroke="var(--c2)"], path[fill="var(--c2)"]')
    multiples = page.locator('.measurements .multiple[data-series="ALiBi"]')
    assert line.count() > 6
    assert page.locator(f"{own} .chart text", has_text="ALiBi").count() == 1
    assert multiples.count() > 6
    page.locator(f'{own} .key[data-label="ALiBi"]').click()
    page.wait_for_timeout(100)
    assert line.count() == 0
    assert page.locator(".measurements .chart text", has_text="ALiBi").count() == 0
    assert not any(multiple.is_visible() for multiple in multiples.all())
    assert page.locator('.key[data-label="ALiBi"][aria-pressed="false"]').count() == 2 + len(CHAPTERS), "all legends"
    details = page.locator(f"{chapter('learning-in-context')} details").first
    details.evaluate("e => { e.open = true; }")
    page.locator(f"{own} .all").click()
    page.wait_for_timeout(100)
    assert line.count() > 6
    assert multiples.first.is_visible()
    assert page.messages == []


@pytest.mark.medium
def test_the_tooltip_and_the_description(opened: Any, path: Path, found: Findings) -> None:
    page = opened(path)
    chart = page.locator(f"{chapter('attention')} .chart").first
    assert chart.get_attribute("role") == "img"
    described = (
        "Copy, Distance from NoPE’s attention in each layer: line chart. Horizontal axis: layer, from 1 to 6. Vertical"
    )
    assert chart.get_attribute("aria-label").startswith(described)
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = page.locator(f"{chapter('attention')} .tip").first
    (summary,) = found.tasks[1].answers["attention-distance"]
    second = summarize(summary, "distance", ("layer",))[3][2,]
    text = tip.inner_text()
    assert text.startswith("layer 2")
    assert f"{second.mean:.3f}" in text and f"{second.low:.3f} … {second.high:.3f}" in text
    assert "NoPE (another seed)" in text
    assert "95 % interval over 3 seeds × 10 examples" in text
    assert tip.locator("svg").count() == 4, "each name has its glyph"
    histogram = page.locator(f'{chapter("attention")} .multiple[data-series="RoPE"] .chart').first
    assert "bar chart" in histogram.get_attribute("aria-label")
    assert histogram.get_attribute("tabindex") is None, "it has nothing for the keyboard"


@pytest.mark.medium
def test_light_dark_and_paper(opened: Any, path: Path) -> None:
    def looks(page: Any) -> list[str]:
        shown: list[str] = page.evaluate(
            """() => [".mark-rect path", ".mark-line path", ".role-axis-label text"].map((s) => {
              const style = getComputedStyle(document.querySelector(`.measurements ${s}`));
              return style[s.endsWith("-line path") ? "stroke" : "fill"];
            })"""
        )
        return shown

    light, dark = (looks(opened(path, color_scheme=scheme)) for scheme in ("light", "dark"))
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page = opened(path, color_scheme="dark")
    page.emulate_media(media="print")
    assert looks(page) == light, "paper is white"
    assert page.locator(".measurements .chart").first.is_visible()


@pytest.mark.medium
def test_charts_are_drawn_when_they_are_near_and_before_printing(browser: Any, path: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    charts, drawn = page.locator(".chart").count(), page.locator(".chart svg")
    assert 0 < drawn.count() < charts
    page.pdf()
    assert drawn.count() == charts
    page.close()


@pytest.mark.medium
def test_long_and_hostile_names_are_text_and_leave_room_for_the_chart(
    opened: Any, make_rows: Any, make_study: Any, tmp_path: Path
) -> None:
    name = "FIRE(</script><img src=x onerror='window.hacked=1'>, width=64, transform='log', threshold=128.0)"
    page = opened(
        write(measured(make_rows, make_study, ("NoPE", name)), tmp_path / "page.html"),
        viewport={"width": 390, "height": 844},
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    chart = page.locator(".measurements .chart[tabindex]").first
    ends = chart.locator("text", has_text="FIRE(")
    assert ends.text_content().endswith("…")
    box, frame = ends.bounding_box(), chart.bounding_box()
    assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    assert page.evaluate("window.hacked") is None
