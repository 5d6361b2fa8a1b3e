"""Lengths below the shortest trained one: shown apart, said in words, in no mean."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render, table
from lengthwise.report.palette import looks
from lengthwise.report.score_chart import score_chart
from tests.report.charts_of import charts_of, require_valid

Make = Callable[..., Any]
LENGTHS = (2, 3, 5, 6, 7, 8)


@pytest.fixture
def parity(make_row: Make, make_score: Make) -> Findings:
    """Trained on 5 to 6 bits; wrong at shorter lengths, right at trained ones, and half right beyond."""
    runs, scores = [], []
    for label in ("NoPE", "FIRE"):
        config = {"task": {"is": "Parity"}, "training": {"train_length": 6, "min_length": 5}, "seed": 0}
        asked = [{"length": n, "examples": 100, "seed": 0} for n in LENGTHS]
        words = {"task": "Parity", "metric": "exact match", "better": "higher", "unit": "bits"}
        run = make_row(key=label, label=label, encoding=label, train_length=6, config=config, questions=asked, **words)
        runs.append(run)
        scores += [make_score(run, n, 0.0 if n < 5 else 1.0 if n < 7 else 0.5, n=100) for n in LENGTHS]
    return from_rows([], runs, scores)


def test_they_have_columns_of_their_own_and_are_in_no_mean(parity: Findings) -> None:
    text = render(parity)
    groups = re.findall(r'<th colspan="(\d)" scope="colgroup" class="group([^"]*)">([^<]*)</th>', text)
    assert groups == [
        ("1", "", "in distribution, all lengths"),
        ("1", " new first", "longer than training (extrapolation), all lengths"),
        ("2", "", "shorter than training"),
        ("2", " first", "in distribution"),
        ("2", " new first", "longer than training (extrapolation)"),
    ]
    assert "5 to 6 bits" in text
    assert (
        "<b>Shorter than training</b>: 2 and 3 bits, because training had 5 to 6; these lengths count in no score over "
        "several lengths." in text
    )
    assert "Lengths that are shorter than all training examples are not included." in text
    summary = text.partition('id="summary"')[2].partition("</section>")[0]
    assert re.findall(r'data-sort="([^"]*)"', summary) == ["1", "0.5"] * 2
    first = re.findall(r'<th scope="col" class="([^"]*)"><button type="button">(\d)</button>', text)
    assert first == [("", "2"), ("", "3"), (" first", "5"), ("", "6"), ("new first", "7"), ("new", "8")]


def test_the_chart_shades_them_and_its_words_say_what_they_are(parity: Findings) -> None:
    _, (left, right) = score_chart(parity.tasks[0], looks(parity.labels)).shaded
    assert left < 2
    assert right == 5
    notes = {column["note"] for chart in charts_of(render(parity)) for column in chart.get("columns", ())}
    assert "0.5× the training length, shorter than training" in notes


def test_the_chart_is_valid(parity: Findings) -> None:
    require_valid(score_chart(parity.tasks[0], looks(parity.labels)))


def test_the_terminal_says_so(parity: Findings) -> None:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(table(parity))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"shorter +shorter +trained +trained", text)
    assert "(shorter: below the training lengths of 5 to 6 bits; these count in no score" in text


def test_a_single_training_length_is_no_range(make_row: Make, make_score: Make) -> None:
    words = {"task": "Parity", "metric": "exact match", "better": "higher", "unit": "bits"}
    asked = [{"length": n, "examples": 100, "seed": 0} for n in (2, 8, 16)]
    config = {"task": {"is": "Parity"}, "training": {"train_length": 8}, "seed": 0}
    run = make_row(train_length=8, config=config, questions=asked, **words)
    found = from_rows([], [run], [make_score(run, n, 0.9, n=100) for n in (2, 8, 16)])
    console = Console(width=120, file=io.StringIO(), color_system=None)
    console.print(table(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "(shorter: below the training length of 8 bits; these count in no score" in text
    page = render(found)
    assert "because training had 8; these lengths" in page
    assert "8 to 8" not in text + page


def test_of_text_all_shorter_lengths_were_trained(make_row: Make, make_score: Make) -> None:
    run = make_row(questions=[{"length": n, "tokens": 99, "seed": 0} for n in (64, 128, 256)])
    found = from_rows([], [run], [make_score(run, n, 2.0) for n in (64, 128, 256)])
    (task,) = found.tasks
    assert task.of_kind("trained") == (64, 128)
    assert "horter than" not in render(found)
