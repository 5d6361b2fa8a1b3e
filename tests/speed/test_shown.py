"""The tables, the charts and the page of a measurement of speed, and files with several charts."""

import io
import re
from typing import Any

import pytest

from lengthwise.analysis.answer_files import of_files
from lengthwise.cli.printing import console
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.report.answer_table import file_tables
from lengthwise.report.charts.pictures import drawing, page, picture, variables, with_colours
from lengthwise.report.pictures import content, panels
from tests.report.charts_of import symbols
from tests.speed.measurements import refused, renamed, results

EVIL = "'+alert(1)+'</script><b>"


def lines(answer: FileAnswer, width: int = 160) -> list[str]:
    out = console(file=io.StringIO(), width=width)
    for part in file_tables(of_files([answer])):
        out.print(part)
    return [" ".join(line.split()) for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def chart_rows(answer: FileAnswer, label: str) -> list[dict[str, Any]]:
    chart = panels(of_files([answer]))[1].chart
    assert label in [end["label"] for end in chart.ends]
    return [row for row in chart.rows if row["label"] == label]


def test_the_terminal_has_a_table_for_times_memory_and_reasons() -> None:
    text = lines(refused(results(1, noise=lambda chance: 1.0, factor={"FIRE": 1.5}), "RoPE", 512))
    begin = text.index("Time of a training step relative to NoPE, by tokens per sequence")
    assert "NoPE 1.000 (± 0.000) 1.000 (± 0.000)" in text[begin : begin + 8]
    assert "RoPE 1.000 (± 0.000) –" in text[begin : begin + 8]
    assert "FIRE 1.500 (± 0.000) 1.500 (± 0.000)" in text[begin : begin + 8]
    memory = text.index("Peak memory of a training step beyond the weights, in MiB, by tokens per sequence")
    assert "ALiBi 256 512" in text[memory : memory + 8]
    assert "RoPE, length 512 too long" in text
    assert any(line.startswith("NoPE, length 256 ") for line in text)
    assert any("12 of 12 rounds are finished" in line for line in text)
    assert all(words in " ".join(text) for words in ("device cpu (Imaginary 1)", "torch 2.13.0", "seed 0"))


def test_few_rounds_have_no_interval() -> None:
    assert "FIRE 1.500 1.500" in lines(results(1, rounds=5, noise=lambda chance: 1.0, factor={"FIRE": 1.5}))


def test_the_lines_are_the_ratios_with_their_intervals() -> None:
    fire = chart_rows(results(1, noise=lambda chance: 1.0, factor={"FIRE": 1.5}), "FIRE")
    assert [(row["y"], row["low"], row["high"]) for row in fire] == [(pytest.approx(1.5),) * 3] * 2
    summary = of_files([results(1)])
    assert [panel.title for panel in panels(summary)] == [
        "Time of a forward pass relative to NoPE",
        "Time of a training step relative to NoPE",
        "Time of a decoded token relative to NoPE",
    ]
    assert "training step" in panels(summary)[1].chart.described and "FIRE" in panels(summary)[1].chart.described


def test_a_length_without_times_interrupts_a_line() -> None:
    assert [row["y"] is None for row in chart_rows(refused(results(1), "RoPE", 512), "RoPE")] == [False, True]


def test_a_very_slow_encoding_does_not_flatten_the_others() -> None:
    chart = panels(of_files([results(1, factor={"FIRE": 80.0})]))[1].chart
    _, arrows = symbols(chart)
    assert arrows == [chart.looks["FIRE"].colour] * 2


@pytest.mark.parametrize(
    ("suffix", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!doctype html")]
)
def test_every_format(suffix: str, begins: bytes) -> None:
    data = content(of_files([results(1)]), suffix)
    assert data.startswith(begins)
    assert len(data) > 5000
    if suffix in ("svg", "html"):
        assert b"FIRE" in data and b"512" in data
        assert b"undefined" not in data and b"NaN" not in data
        assert (b"var(--" in data) == (suffix == "html")


def test_reasons_are_on_the_page() -> None:
    text = content(of_files([refused(results(1), "RoPE", 512, reason="<too long>")]), "html").decode()
    assert "RoPE, length 512" in text and '<td class="words">&lt;too long&gt;</td>' in text


# ---- files with several charts ------------------------------------------------------------------------------------


def test_the_html_page_follows_the_readers_colours() -> None:
    text = page("title", [], panels(of_files([results(1)]))).decode()
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert {"c0", "c1", "c2", "c3", "soft", "grid"} <= used
    for values in variables():
        assert used <= set(values)
    assert text.count("prefers-color-scheme: dark") == 1
    light, dark = (values["c1"] for values in variables())
    assert light != dark and light in text and dark in text


def test_colours_of_other_pictures_are_those_of_the_light_page() -> None:
    assert with_colours('stroke="var(--c1)"', variables()[0]) == 'stroke="#2635a9"'


def test_names_are_never_code() -> None:
    evil = of_files([renamed(results(1), "FIRE", EVIL)])
    shown = panels(evil)
    text = content(evil, "html").decode()
    assert "<b>" not in text and "script>" not in text and "alert(1)" in text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert "<b>" not in drawing(shown)


def test_nothing_measured_is_drawn_too() -> None:
    assert picture(panels(of_files([results(1, names=())])), "svg").startswith(b"<svg")
