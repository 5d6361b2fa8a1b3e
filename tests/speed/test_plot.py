"""The pictures of a measurement: their lines, in every format, and their texts."""

import dataclasses
import re

import pytest

from lengthwise.report.charts.pictures import Panel, _with_colours, drawing, page, picture, variables
from lengthwise.speed.plot import explanation, file_content, machine_line, panel, ratio_text
from lengthwise.speed.results import Results
from lengthwise.speed.summary import Ratio
from tests.report.charts_of import symbols
from tests.speed.measurements import results

EVIL = "'+alert(1)+'</script><b>"


@pytest.fixture(scope="module")
def panels() -> list[Panel]:
    return [panel(results(1), "forward"), panel(results(1), "training")]


def test_the_lines_are_the_ratios_with_their_intervals() -> None:
    chart = panel(results(1, noise=lambda chance: 1.0, factor={"FIRE": 1.5}), "training").chart
    fire = [row for row in chart.rows if row["label"] == "FIRE"]
    assert [end["label"] for end in chart.ends] == ["NoPE", "RoPE", "ALiBi", "FIRE"]
    assert [(row["x"], row["y"], row["low"], row["high"]) for row in fire] == [
        (n, *[pytest.approx(1.5)] * 3) for n in (256, 512)
    ]
    assert "training step" in chart.described and "FIRE" in chart.described


def test_an_encoding_without_times_interrupts_its_line() -> None:
    before = results(1)
    cells = [
        dataclasses.replace(c, forward=(), training=(), refusal="no") if c.encoding == "RoPE" else c
        for c in before.cells
    ]
    chart = panel(dataclasses.replace(before, cells=tuple(cells)), "forward").chart
    assert [row["y"] for row in chart.rows if row["label"] == "RoPE"] == [None, None]
    assert "RoPE" not in [end["label"] for end in chart.ends]


def test_a_very_slow_encoding_does_not_flatten_the_others() -> None:
    chart = panel(results(1, factor={"FIRE": 80.0}), "forward").chart
    _, arrows = symbols(chart)
    assert arrows == [chart.looks["FIRE"].colour] * 2


@pytest.mark.parametrize(
    ("suffix", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!doctype html")]
)
def test_every_format(suffix: str, begins: bytes) -> None:
    content = file_content(results(1), suffix)
    assert content.startswith(begins)
    assert len(content) > 5000
    if suffix in ("svg", "html"):
        assert b"FIRE" in content and b"512" in content
        assert b"undefined" not in content and b"NaN" not in content
        assert (b"var(--" in content) == (suffix == "html")


def test_the_html_page_follows_the_readers_colours(panels: list[Panel]) -> None:
    text = page("title", [], panels).decode()
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert {"c0", "c1", "c2", "c3", "soft", "grid"} <= used
    for values in variables():
        assert used <= set(values)
    assert text.count("prefers-color-scheme: dark") == 1
    light, dark = (values["c1"] for values in variables())
    assert light != dark and light in text and dark in text


def test_colours_of_other_pictures_are_those_of_the_light_page() -> None:
    assert _with_colours('stroke="var(--c1)"', variables()[0]) == 'stroke="#2635a9"'


def named(results: Results, name: str) -> Results:
    cells = [dataclasses.replace(c, encoding=name) if c.encoding == "FIRE" else c for c in results.cells]
    return dataclasses.replace(results, cells=tuple(cells))


def test_names_are_never_code() -> None:
    evil = named(results(1), EVIL)
    text = file_content(evil, "html").decode()
    assert "<b>" not in text and "script>" not in text and "alert(1)" in text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert "<b>" not in drawing([panel(evil, "forward")])


def test_reasons_are_in_the_cells_of_the_page() -> None:
    before = results(1)
    cells = [
        dataclasses.replace(c, forward=(), training=(), refusal="<too long>") if c.encoding == "RoPE" else c
        for c in before.cells
    ]
    text = file_content(dataclasses.replace(before, cells=tuple(cells)), "html").decode()
    assert text.count("<td><small>&lt;too long&gt;</small></td>") == 4


def test_texts() -> None:
    assert (
        machine_line(results(1)) == "cpu (Imaginary 1), 1 thread, CPU time; lengthwise 0.1.0, torch 2.13.0; 2026-01-02"
    )
    assert "the median of 12 rounds" in explanation(results(1))
    assert "at least 6 rounds" in explanation(results(1, rounds=3))
    assert "stopped early" in explanation(dataclasses.replace(results(1), complete=False))
    assert [ratio_text(r) for r in (None, Ratio(1.234, None, None, 3), Ratio(1.234, 1.2, 1.3, 9))] == [
        "–",
        "1.23",
        "1.23 (1.20–1.30)",
    ]


def test_nothing_measured_is_drawn_too() -> None:
    empty = dataclasses.replace(
        results(1), cells=tuple(dataclasses.replace(c, forward=(), training=(), refusal="x") for c in results(1).cells)
    )
    assert picture([panel(empty, "forward")], "svg").startswith(b"<svg")
