"""Every chart of a page as a file of its own."""

import io
import xml.etree.ElementTree as xml
from collections.abc import Callable
from typing import Any

import pypdf
import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.config import ConfigError
from lengthwise.measurements import MEASUREMENTS
from lengthwise.report import pictures as module
from lengthwise.report.pictures import FORMATS, Picture, pictures, require_format
from tests.report.answers import OF_RUNS, answers_of

EVIL = "'+alert(1)+'</text><script>alert(2)</script> × 序列"


def texts_of(picture: Picture) -> str:
    """Return the texts of the picture as SVG, which must be well-formed and have no colour that is not plain."""
    svg = picture.content("svg").decode()
    assert "var(" not in svg and "rgb(" not in svg.replace("rgba(0, 0, 0", "")
    return " ".join(" ".join(xml.fromstring(svg).itertext()).split())


def named(found: list[Picture], name: str) -> Picture:
    return next(picture for picture in found if picture.name == name)


def test_a_page_has_these_pictures(quickstart: Findings) -> None:
    found = pictures(quickstart)
    assert [picture.name for picture in found] == [
        "text-cross-entropy-by-encoding-and-length",
        "text-cross-entropy-by-length",
        "copy-exact-match-by-encoding-and-length",
        "copy-exact-match-by-length",
    ]
    scores = texts_of(found[3])
    assert "Copy: exact match by length" in scores
    assert "exact match, higher is better" in scores and "length in symbols, and as a multiple" in scores, "the axes"
    for label in quickstart.labels:
        assert label in scores, "the legend"
        assert label in texts_of(found[2])
    assert "exact match: pale 0.000, strong 1.000" in texts_of(found[2])


def test_each_format_can_be_read(quickstart: Findings) -> None:
    picture = pictures(quickstart)[1]
    pdf = picture.content("pdf")
    assert pdf.startswith(b"%PDF")
    (page,) = pypdf.PdfReader(io.BytesIO(pdf)).pages
    assert page.mediabox.width > 400
    png = picture.content("png")
    assert png.startswith(b"\x89PNG\r\n") and int.from_bytes(png[16:20], "big") > 800


def test_names_of_files_are_made_of_plain_letters(make_row: Any, make_score: Any, make_study: Any) -> None:
    """A task's name may be anything: a path, no Latin letter at all, or longer than a file's name may be."""
    found = []
    for n, task in enumerate(("../../etc", "序列", EVIL, "a" * 500, "b/c", "b c")):
        runs = [make_row(task=task, key=f"{n}{'0' * 15}", label=EVIL)]
        found += pictures(from_rows([make_study()], runs, [make_score(runs[0], length, 1.0) for length in (128, 256)]))
    assert [picture.name[:40] for picture in found] == [
        "etc-cross-entropy-by-length",
        "task-cross-entropy-by-length",
        "alert-1-text-script-alert-2-script-cross",
        "a" * 40,
        "b-c-cross-entropy-by-length",
        "b-c-cross-entropy-by-length",
    ]
    assert all(len(picture.name) <= module.LONGEST for picture in found)
    assert EVIL[:30] in texts_of(found[2])


def test_unknown_formats_and_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"there is no format 'pgn'; did you mean 'png'\?; available: png, svg, pdf"):
        require_format("pgn")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"vl-convert-python, which is not installed; .*pip install '\.\[lab\]'"):
        require_format("png")


@pytest.mark.slow
def test_every_chart_of_every_measurement_is_drawn(make_rows: Callable[..., Any], make_study: Any) -> None:
    runs, scores = make_rows(labels=("NoPE", "RoPE", "ALiBi", "FIRE"))
    answers = answers_of([run for run in runs if run.task == "Copy"])
    found = pictures(from_rows([make_study()], runs, [*scores, *answers]))
    titles = [picture.panel.chart.title for picture in found]
    for declared in (chart for name in OF_RUNS for chart in MEASUREMENTS[name].charts):
        assert any(declared.title.split("{")[0] in title for title in titles), declared.title
    for picture in found:
        chart, texts = picture.panel.chart, texts_of(picture)
        assert chart.title and chart.across and chart.upwards, picture.name
        for text in (
            picture.panel.title,
            chart.across,
            chart.upwards,
            chart.note,
            *(chart.looks if chart.kind == "bars" and len(chart.looks) > 1 else ()),
        ):
            assert " ".join(text.split())[:40] in texts, (picture.name, text)
        for form in FORMATS:
            assert len(picture.content(form)) > 1000
