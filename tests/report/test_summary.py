"""All tasks at a glance: ranks, scores over all longer lengths, and what others published."""

import dataclasses
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from lengthwise.analysis import Baseline, Findings, baseline_over_lengths, from_rows
from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.report import render, table
from lengthwise.studies import Study, grid
from tests.made_answers import changed

Make = Callable[..., Any]
CITED = {
    "source": "A. Nobody 2023, table 7",
    "about": "models 100 times as large",
    "scores": {"Copy": {"NoPE": 0.1234, "FIRE": 0.9}},
    "ranks": {"FIRE": 0.77},
}


def section(text: str) -> str:
    found = re.search(r'<section class="card summary".*?</section>', text, flags=re.S)
    assert found
    return found[0]


def test_ranks_and_overall_scores_are_there(quickstart: Findings) -> None:
    text = section(render(quickstart))
    assert "mean reciprocal rank of 7 encodings over 2 tasks × 3 seeds" in text
    rows = re.findall(r'<tr data-label="(\w+)"', text)
    assert rows[0] == "FIRE"  # the best of both tasks at all longer lengths
    assert set(rows) == {"NoPE", "Sinusoidal", "RoPE", "ALiBi", "T5", "KerpleLog", "FIRE"}
    assert "published" not in text


def test_published_numbers_stand_beside(make_study: Make, make_rows: Make) -> None:
    text = section(render(from_rows([make_study(published=CITED)], *make_rows())))
    assert text.count('class="cited">published ') == 3
    assert "published 0.123<" in text
    assert "A. Nobody 2023, table 7; models 100 times as large" in text


def test_the_published_rule_for_ties_by_name(make_study: Make, make_rows: Make) -> None:
    """All have the same scores: by the mean of their ranks all have 1/4, in the order of the list 1, 1/2, ..., 1/7."""
    runs, scores = make_rows()
    found = from_rows([make_study()], runs, [changed(score, mean=0.5) for score in scores])
    wanted = {"average": ["0.250"] * 7, "published": ["1.000", "0.500", "0.333", "0.250", "0.200", "0.167", "0.143"]}
    said = {"average": "share the mean of their ranks", "published": "are ranked in the order of the study’s list"}
    for ties, ranks in wanted.items():
        text = section(render(found, ties=ties))  # type: ignore[arg-type]
        first = re.findall(r'<tr data-label="(\w+)".*?<span class="mean">([^<]*)<', text, flags=re.S)
        assert first == list(
            zip(["NoPE", "Sinusoidal", "RoPE", "ALiBi", "T5", "KerpleLog", "FIRE"], ranks, strict=True)
        )
        assert [words in text for words in said.values()] == [name == ties for name in said]
        console = Console(file=io.StringIO(), width=80, color_system=None)
        console.print(table(found, ties=ties))  # type: ignore[arg-type]
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("in the order of the study's list, the published rule." in printed) == (ties == "published")
        after = printed[printed.index("Mean reciprocal rank") :]
        assert [re.search(rf"{label} +([\d.]+)", after)[1] for label, _ in first] == ranks  # type: ignore[index]


def only(task: str, make_study: Make, make_rows: Make, lengths: tuple[int, ...], published: Any = None) -> Findings:
    """The made-up study, with one task and these lengths alone."""
    runs, scores = make_rows()
    runs = [run for run in runs if run.task == task]
    keys = {run.key for run in runs}
    runs = [dataclasses.replace(run, questions=[a for a in run.questions if a["length"] in lengths]) for run in runs]
    some = [score for score in scores if score.key in keys and score.question["length"] in lengths]
    return from_rows([make_study(published=published)], runs, some)


def test_one_task_has_scores_over_trained_and_longer_lengths_apart(make_study: Make, make_rows: Make) -> None:
    found = only("Copy", make_study, make_rows, (20, 40, 80, 160))
    text = section(render(found))
    assert "Summary of all lengths" in text
    assert "reciprocal" not in text
    assert re.findall(r"<th scope=.col.[^>]*><button[^>]*>([^<]*)<", text) == ["20 symbols", "40 to 160 symbols"]
    assert "in distribution, all lengths" in text
    assert "longer than training (extrapolation), all lengths" in text
    assert "Each example has the same weight" in text
    rows = re.findall(r'<tr data-label="(\w+)".*?"mean">([^<]*)<.*?"mean">([^<]*)<', text, flags=re.S)
    series = {s.label: s for s in found.tasks[0].series}
    for label, *shown in rows:
        means = [
            [s.mean for n in lengths for s in series[label].point_at(n).seeds] for lengths in ((20,), (40, 80, 160))
        ]
        assert [float(x) for x in shown] == pytest.approx([sum(some) / len(some) for some in means], abs=5e-4)
    longer = [float(row[2]) for row in rows]
    assert len(rows) == 7
    assert longer == sorted(longer, reverse=True)
    other = section(render(only("Text", make_study, make_rows, (128, 256, 512))))
    assert "Each length has the same weight" in other
    lower = [float(row) for row in re.findall(r'<td class="[^"]*new[^"]*".*?"mean">([^<]*)<', other)]
    assert len(lower) == 7
    assert lower == sorted(lower)


@pytest.mark.parametrize("lengths", [(20,), (20, 40), (40,)])
def test_one_task_with_a_length_of_each_kind_has_no_summary(
    make_study: Make, make_rows: Make, lengths: tuple[int, ...]
) -> None:
    assert 'id="summary"' not in render(only("Copy", make_study, make_rows, lengths))


def test_one_task_of_which_no_encoding_has_all_lengths_yet(make_study: Make, make_rows: Make) -> None:
    runs, scores = make_rows()
    runs = [run for run in runs if run.task == "Copy"]
    place = {run.key: n for n, run in enumerate(runs)}
    some = [s for s in scores if s.key in place and s.question["length"] in (20, (40, 80, 160)[place[s.key] % 3])]
    assert 'id="summary"' not in render(from_rows([make_study()], runs, some))


@pytest.mark.parametrize("lengths", [(20,), (20, 40), (40, 80)])
def test_one_task_with_published_numbers(make_study: Make, make_rows: Make, lengths: tuple[int, ...]) -> None:
    text = render(only("Copy", make_study, make_rows, lengths, CITED))
    kinds = sum(any((n > 20) == new for n in lengths) for new in (True, False))
    assert section(text).count('<span class="mean">') == 7 * kinds
    assert section(text).count('class="cited">published ') == (2 if max(lengths) > 20 else 0)


def study(published: Any) -> Study:
    tiny = ModelConfig(d_model=16, num_layers=1, num_heads=2)
    runs = grid(["nope", "fire"], ["copy"], training=TrainingConfig(train_length=4), model=tiny)
    return Study(name="s", runs=runs, evaluation=EvaluationConfig(lengths=(4, 8)), published=published)


def test_a_study_hands_them_on() -> None:
    assert study(CITED).metadata()["published"] == CITED
    assert study(None).metadata()["published"] is None


@pytest.mark.parametrize(
    ("published", "words"),
    [
        ({"source": "x", "score": {}}, "has no field 'score'.*scores"),
        ({"scores": {}}, "lacks its source"),
        ("x", "must be a mapping with source, about, scores, ranks, got 'x'"),
        ({"source": "x", "scores": {"Copie": {}}}, "'Copie'.*Copy"),
        ({"source": "x", "scores": {"Copy": {"NOPE": 1.0}}}, "'NOPE'.*NoPE"),
        ({"source": "x", "ranks": {"NoPE": "1"}}, "NoPE must be a finite number, got '1'"),
        ({"source": "x", "ranks": {"NoPE": float("nan")}}, "must be a finite number"),
        ({"source": "x", "ranks": []}, "must be a mapping"),
    ],
)
def test_published_numbers_that_cannot_be(published: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        study(published)


def test_many_notes_do_not_push_the_chart_away(make_study: Make, make_rows: Make) -> None:
    runs, scores = make_rows()
    noted = [changed(s, note=f"at length {s.question['length']} there is little") for s in scores]
    found = from_rows([make_study()], runs, noted)
    text = render(found)
    assert text.count('<p class="note">') == 4  # two of each task
    assert text.count("<summary>2 more notes</summary>") == 2
    assert all(text.count(f"at length {n} there is little") == 1 for n in (20, 40, 80, 160, 256, 512, 1024))
    console = Console(file=io.StringIO(), width=80)
    console.print(table(found))
    assert console.file.getvalue().count("(2 more notes on the page)") == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(("bigram", "marked"), [(1.7, 0), (1.776, 0), (1.80, 1)])
def test_nobody_is_best_over_lengths_where_a_floor_is_no_worse(
    bigram: float, marked: int, make_study: Make, make_rows: Make
) -> None:
    """FIRE is better than the bigram at 256 bytes in any case, and over all longer lengths it is not always."""
    found = only("Text", make_study, make_rows, (128, 256, 512, 1024))
    floor = Baseline(label="bigram", scores={128: 2.5, 256: 1.9, 512: bigram, 1024: bigram - 0.13}, floor=True)
    other = Baseline(label="trigram", scores={256: 1.0, 512: 1.0, 1024: 1.3})
    task = dataclasses.replace(found.tasks[0], baselines=(floor, other))
    text = section(render(dataclasses.replace(found, tasks=(task,))))
    assert text.count('<td class="best') == 1 + marked  # one at the trained length, where FIRE beats the floor
    rows = text[text.index('<tbody class="baselines">') :]
    means = re.findall(r'<span class="mean">([^<]*)<', rows)
    assert means == ["2.500", f"{(1.9 + 2 * bigram - 0.13) / 3:.3f}", "–", "1.100"]
    assert "<small>floor</small>" in rows and "<small>baseline</small>" in rows


def test_a_share_of_a_baseline_counts_each_example_alike(make_study: Make, make_rows: Make) -> None:
    found = only("Copy", make_study, make_rows, (20, 40, 80, 160))
    task = dataclasses.replace(
        found.tasks[0],
        baselines=(Baseline(label="constant", scores={20: 0.1, 40: 0.1, 80: 0.2, 160: 0.6}, floor=True),),
    )
    assert baseline_over_lengths(task, task.baselines[0], "longer") == pytest.approx(0.3)
    assert baseline_over_lengths(task, Baseline(label="constant", scores={40: 0.1}), "longer") is None
