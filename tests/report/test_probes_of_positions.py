"""The page's sections on biases, parts of logits, shifted positions and numbers during training, also in a narrow browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.probes.logit_parts import PARTS
from lengthwise.report import render, write
from lengthwise.store.rows import ProbeRow, RunRow

LABELS = ("NoPE", "Sinusoidal", "ALiBi", "T5", "FIRE")
LAYERS, HEADS, SHIFTS = 6, 4, [0, 1, 10, 100, 1000]
FACTS = {"versions": {"torch": "2.13.0+cpu"}, "device": "cpu (a fast one)"}


def row(run: RunRow, asked: dict[str, Any], result: dict[str, Any]) -> ProbeRow:
    return ProbeRow(key=run.key, asked=asked, result=result, facts=FACTS, created=1.0)


def rows_of(run: RunRow) -> list[ProbeRow]:
    """What the four probes store of a run, with numbers that depend on its label and seed alone."""
    n = LABELS.index(run.label) if run.label in LABELS else 0
    at_length = {"length": 20, "examples": 10, "seed": 0}
    scores = [1 - 0.1 * n * place for place in range(5)]
    lists = {"scores": scores, "differences": [score - 1 for score in scores], "logit_changes": [0, *[0.1 * n] * 4]}
    errors = {"standard_errors": [0.01] * 5, "difference_errors": [0.001] * 5}
    facts = {"better": "higher", "invariant": n == 0, "max_length": None, "n": 10, "seconds": 0.1}
    found = [
        row(
            run,
            {"probe": "position-shift", "shifts": SHIFTS, **at_length},
            {"shifts": SHIFTS, **lists, **errors, **facts},
        )
    ]
    if run.label in ("ALiBi", "T5", "FIRE"):
        bias = [[[-0.1 * n * head * place for place in range(65)] for head in range(HEADS)] for _ in range(LAYERS)]
        relative, variation = ([[value] * HEADS] * LAYERS for value in (0.4 * (n - 1), 0.3))
        result = {"distances": list(range(65)), "bias": bias, "relative_distance": relative, "variation": variation}
        found.append(row(run, {"probe": "learned-bias", "query": 64}, result))
    if run.label == "Sinusoidal":
        shares, sizes = ([[values] * HEADS] * LAYERS for values in ([0.5, 0.375, 0.25, -0.125], [2.0, 1.0, 0.5, 0.25]))
        result = {
            "parts": list(PARTS),
            "shares": shares,
            "deviations": sizes,
            "logit_deviations": [[3.0] * HEADS] * LAYERS,
        }
        found.append(row(run, {"probe": "logit-parts", **at_length}, {**result, "n": 10}))
    if run.label == "FIRE":
        values = [[512.0 + step * (run.seed + 1)] for step in range(4)]
        threshold = {"name": "L", "layers": [1], "shape": [], "entries": [], "values": values}
        found.append(row(run, {"probe": "development"}, {"steps": [0, 200, 400, 600], "quantities": [threshold]}))
    return found


@pytest.fixture(scope="module")
def probed(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> Findings:
    runs, scores = make_rows(labels=LABELS)
    probes = [probe for run in runs if run.task == "Copy" for probe in rows_of(run)]
    return from_rows([make_study()], runs, scores, probes)


@pytest.fixture(scope="module")
def text(probed: Findings) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", render(probed)).replace("&nbsp;", " ").split())


def test_the_page_has_the_numbers(text: str) -> None:
    assert "what is added to the logits of the query at position 64 (nats)" in text
    assert "FIRE, layers 1 to 6" in text, "its layers have the same bias here"
    assert "12 anti-local" in text, "4 heads of 3 seeds"
    assert "12 / 0 / 0 / 0" in text, "ALiBi's heads, local / flat / anti-local / mixed"
    assert "change at 1,000" in text
    assert "Logits have the same bits at every shift for NoPE." in text
    assert "layer 6: position-position" in text
    assert "−12.5%" in text or "-12.5%" in text
    assert "FIRE: L, layer 1" in text
    assert "518 ± 7.452" in text, "512 + 3, + 6 and + 9"


def test_every_chart_is_described(probed: Findings) -> None:
    page = render(probed)
    for chapter, charts in (("attention", 4), ("development", 1), ("positions", 1)):
        section = page[page.index(f'<section class="{chapter}"') :]
        section = section[: section.index("</section>")]
        described = re.findall(r'role="img" aria-label="([^"]+)"', section)
        assert len(described) == charts
        assert all("Horizontal axis:" in text and "Vertical axis:" in text for text in described)


def test_names_cannot_break_out(make_rows: Callable[..., Any], make_study: Callable[..., Any]) -> None:
    evil = '"><script>alert(1)</script>'
    runs, scores = make_rows(labels=(evil,))
    fire = [(run, RunRow(**{**vars(run), "label": "FIRE"})) for run in runs if run.task == "Copy"]
    probes = [row(run, probe.asked, probe.result) for run, named in fire for probe in rows_of(named)]
    probes[-1].result["quantities"][0]["name"] = evil
    page = render(from_rows([make_study()], runs, scores, probes))
    assert '<section class="development"' in page
    assert evil not in page
    assert "<script>alert" not in page


@pytest.mark.medium
@pytest.mark.parametrize("width", [390, pytest.param(1200, marks=pytest.mark.slow)])
def test_it_fits_into_a_narrow_window(opened: Callable[..., Any], probed: Findings, tmp_path: Path, width: int) -> None:
    page = opened(write(probed, tmp_path / "page.html"), viewport={"width": width, "height": 900})
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lines = page.locator('.attention .multiple[data-series="FIRE"] .mark-line path')
    assert lines.count() == HEADS
    assert page.locator('.attention .multiple[data-series="Sinusoidal"] .mark-rect path').count() == 4 * LAYERS
    assert page.locator('.development .multiple[data-series="FIRE"] .mark-line path').count() == 3, "seeds"
    page.locator('.positions .key[data-label="FIRE"]').click()
    page.wait_for_timeout(100)
    assert not page.locator('.attention .multiple[data-series="FIRE"]').first.is_visible()
