"""Baselines on the page, in its chart and in the terminal; and a task of many lengths."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.report import render, table
from lengthwise.report.charts.drawing import MANY
from lengthwise.report.charts.lines import LABEL_DISTANCE, label_heights
from lengthwise.report.palette import looks
from lengthwise.report.score_chart import HEIGHT, ranges, score_chart
from tests.report.charts_of import require_valid, symbols

Make = Callable[..., Any]
NAMES = ("least squares", "lasso", "averaging", "nearest neighbour", "3 nearest neighbours", "zero")
FLOORS = ("zero",)
LENGTHS = (1, 2, *range(10, 401, 10))


@pytest.fixture(scope="module")
def study(make_row: Make, make_score: Make, make_study: Make) -> Findings:
    """Squared errors of two encodings at 42 lengths; one explodes."""
    runs, scores = [], []
    for label, cost in (("NoPE", 100.0), ("FIRE", 0.1)):
        for seed in range(2):
            run = make_row(
                key=f"{label}-{seed}", label=label, task="LinearRegression", metric="squared error", unit="examples",
                seed=seed, train_length=50,
                questions=[{"length": n, "examples": 64, "seed": 0, "prompt": 400} for n in LENGTHS],
            )  # fmt: skip
            runs.append(run)
            for length in LENGTHS:
                mean = max(17 - length, 0.2) + cost * max(0, length - 50) / 350
                beside = [
                    {"name": name, "score": max(16.0 - n * length / 40, 0.0), "floor": name in FLOORS}
                    for n, name in enumerate(NAMES)
                ]
                groups = [mean - 0.1, mean + 0.1] * 4
                scores.append(make_score(run, length, mean, groups=groups, baselines=beside))
    return from_rows([make_study()], runs, scores)


def printed(findings: Findings) -> str:
    from rich.console import Console

    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(findings))
    return console.export_text()


def test_rows_have_baselines_once(study: Findings) -> None:
    (task,) = study.tasks
    assert [b.label for b in task.baselines] == list(NAMES)
    assert list(task.baselines[1].scores) == list(LENGTHS)
    assert task.baselines[1].scores[10] == 15.75, "in the task's order"
    assert [s.label for s in task.ranked(400)] == ["FIRE", "NoPE"], "they have no rank"


@pytest.mark.medium
def test_the_chart_is_valid_and_says_each_name(study: Findings) -> None:
    (task,) = study.tasks
    chart = score_chart(task, looks(study.labels))
    require_valid(chart)
    names = ["least squares", "lasso", "averaging", "1 neighbour", "3 neighbours", "zero"]
    assert list(dict.fromkeys(row["name"] for row in chart.rows if "baseline" in row)) == names
    assert [end["text"][0] for end in chart.ends] == names


def test_tasks_without_baselines_have_nothing_of_them(quickstart: Findings) -> None:
    chart = score_chart(quickstart.tasks[0], looks(quickstart.labels))
    assert not chart.ends and not any("baseline" in row for row in chart.rows)
    page = render(quickstart)
    assert ">baseline<" not in page
    assert "Dashed grey lines" not in page
    assert "floor" not in page[page.index("How to read this") :].partition("</section>")[0]
    assert "(baseline)" not in printed(quickstart)


def test_the_page_has_their_rows_below_all_others(study: Findings) -> None:
    page = render(study)
    body = page[page.index('<tbody class="baselines">') :]
    for name in NAMES:
        kind = "floor" if name in FLOORS else "baseline"
        assert f"<span>{name}</span><small>{kind}</small>" in body
    assert page.index('data-label="NoPE"') < page.index('<tbody class="baselines">')
    assert "64 prompts per seed" not in page and "512 prompts per seed and length" in page
    assert "the mean is no better than a floor" in page


def test_squared_errors_begin_at_zero_and_baselines_are_on_the_widest_axis(study: Findings) -> None:
    everything, *others = ranges(study.tasks[0])
    assert everything.high > 100
    assert others, "an axis for those that do not explode"
    assert others[0].high >= 16, "it has the errors of who knows nothing yet"
    for choice in (everything, *others):
        assert -0.05 * choice.high < choice.low < 0


@pytest.mark.parametrize(
    "wanted",
    [
        [100.0, 100.0, 100.0],
        [0.0, 0.0, 3.0],
        [HEIGHT, HEIGHT, HEIGHT - 1.0, 8.0],
        [50.0, 40.0, 300.0],
        [5.0] * 6 + [355.0] * 6,
    ],
)
def test_words_do_not_cover_each_other(wanted: list[float]) -> None:
    found = sorted(label_heights(wanted, HEIGHT))
    assert all(b - a >= LABEL_DISTANCE - 0.11 for a, b in zip(found, found[1:], strict=False))
    assert found[0] >= 5 and found[-1] <= HEIGHT - 5
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    assert sorted(order, key=lambda n: label_heights(wanted, HEIGHT)[n]) == order


def test_words_stay_where_there_is_room() -> None:
    assert label_heights([300.0, 20.0, 100.0], HEIGHT) == [300.0, 20.0, 100.0]


def test_of_many_lengths_the_first_beyond_the_axis_has_the_arrow(study: Findings) -> None:
    (task,) = study.tasks
    assert len(task.lengths) > MANY
    choices = ranges(task)
    n = next(n for n, c in enumerate(choices) if c.high < 100)
    chart = score_chart(task, looks(study.labels))
    assert sum(row["y"] > choices[n].high for row in chart.rows if row["label"] == "NoPE") > 3
    _, arrows = symbols(dataclasses.replace(chart, start=n))
    assert arrows == [chart.looks["NoPE"].colour]


def test_the_terminal_shows_some_of_many_lengths_and_marks_baselines(study: Findings) -> None:
    text = printed(study)
    assert max(map(len, text.splitlines())) <= 80
    assert "(12 of 42 lengths are shown; the page has all)" in text
    heads = [word for line in text.splitlines() for word in line.split() if word.isdigit()]
    assert {"1", "50", "400"} <= set(heads)
    for name in (*NAMES, "FIRE", "NoPE"):
        assert name in text
    assert text.count("(floor)") * (len(NAMES) - 1) == text.count("(baseline)") > 0
    assert "a floor is a baseline that a model must beat" in " ".join(text.split())
    assert "a floor is a baseline that a model must beat" in render(study)


@pytest.mark.medium
def test_a_phone_shows_all_of_it(opened: Any, study: Findings, tmp_path: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(study))
    page = opened(path, viewport={"width": 390, "height": 800})
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    words = page.locator("figure .chart svg text", has_text="3 neighbours").bounding_box()
    assert words is not None
    assert words["x"] + words["width"] <= 390, "the words beyond the last length are within the page"
    page.locator("figure .chart").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".tip .baseline").count() == len(NAMES)
    assert "least squares" in page.locator(".tip").inner_text()
    page.locator(".sortable thead button").first.click()
    assert page.locator("table.scores").first.locator("tbody").last.get_attribute("class") == "baselines", (
        "sorting leaves them below"
    )
