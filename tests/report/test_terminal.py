"""The table in the terminal fits 80 columns and says the same as the page."""

import dataclasses
import io
import re
from collections.abc import Callable
from typing import Any

from rich.console import Console

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import table
from tests.made_answers import changed

Make = Callable[..., Any]


def printed(findings: Findings, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table(findings))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_fits_80_columns(quickstart: Findings) -> None:
    text = printed(quickstart)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("1,024", "8×", "trained", "FIRE", "Sinusoidal", "9.387", "±\u00a00.011", "0.995\u00a0… 1.000"):
        assert words in text, words
    assert "…" not in text.replace("\u00a0… ", ""), "something was cut off"
    assert "FIRE, KerpleLog and ALiBi have no significant loss" in " ".join(text.split())


def test_many_lengths_and_long_names(make_row: Make, make_score: Make) -> None:
    lengths = [2**n for n in range(4, 16)]
    label = "FIRE(hidden_layers=2, hidden_width=64, activation=gelu)"
    run = make_row(label=label, questions=[{"length": n, "tokens": 9, "seed": 0} for n in lengths])
    text = printed(from_rows([], [run], [make_score(run, n, 1234.5678) for n in lengths]))
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"{n:,}" in text for n in lengths)
    assert text.partition("At 32,768")[0].count("1,235") == len(lengths)


def test_names_are_no_markup(make_row: Make, make_score: Make) -> None:
    run = make_row(label="[bold]x[/bold]", task="[red]", status="failed", error="[link=x]y\nsecond line")
    text = printed(from_rows([], [run], [make_score(run, 128, 1.0)]))
    assert all(word in text for word in ("[bold]x[/bold]", "[red]", "[link=x]y"))
    assert "second line" not in text


def test_nothing_yet_and_what_is_missing(make_row: Make) -> None:
    assert "No results yet" in printed(Findings())
    runs = [make_row(key=f"{n:016x}", seed=n, status="pending", step=0) for n in range(10)]
    runs[0] = dataclasses.replace(runs[0], status="failed", error="the loss is not finite")
    text = printed(from_rows([], runs, []))
    assert "1 of 10 runs failed" in text
    assert "the loss is not finite" in text
    assert "9 of 10 runs not finished" in text
    assert "and 1 more" in text


def test_a_note_that_is_not_shown_is_counted(make_rows: Make) -> None:
    found = from_rows([], *make_rows())
    for count, said in ((2, ""), (3, "(1 more note on the page)"), (4, "(2 more notes on the page)")):
        task = dataclasses.replace(found.tasks[0], notes=tuple(f"note {n}" for n in range(count)))
        text = printed(dataclasses.replace(found, tasks=(task,)))
        assert ("on the page" in text) is bool(said)
        assert said in text


def test_who_has_not_learned_is_remarked(make_rows: Make, make_study: Make) -> None:
    runs, scores = make_rows()
    beside = [{"name": "bigram", "score": 1.85, "floor": True}]
    floors = [changed(s, baselines=beside) if "tokens" in s.question else s for s in scores]
    text = printed(from_rows([make_study()], runs, floors))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("(not learned)") == 2, "NoPE (1.871) and Sinusoidal (1.902) on text"
    assert "NoPE and Sinusoidal have not learned the task: no better than the baseline" in " ".join(text.split())
    assert "so their scores and ranks compare failures: Text (NoPE and" in " ".join(text.split())


def test_ranks_over_all_tasks(make_study: Make, make_rows: Make) -> None:
    cited = {"source": "A. Nobody 2023", "ranks": {"FIRE": 0.77}}
    text = printed(from_rows([make_study(published=cited)], *make_rows()))
    assert "Mean reciprocal rank  2 tasks × 3 seeds" in text
    assert re.search(r"FIRE +[01]\.\d{3} .* 0\.770", text)
    assert "Mean reciprocal rank" not in printed(from_rows([make_study()], *make_rows(labels=("NoPE",))))
