"""What a run's evaluation and training store, and their summaries, counted by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.answers import Summary, numbers_table, summaries, summarize
from lengthwise.measurements import Table
from lengthwise.measurements.scores import score_tables
from lengthwise.measurements.training import MOST_POINTS, Training
from lengthwise.metrics import SQUARED_ERROR
from lengthwise.report.measurements import SHOWN_EXCERPTS, section
from lengthwise.report.palette import looks
from tests.measurements.test_summaries import LABELS, RUNS, TASK


def answer(key: str, name: str, length: int, rows: Any) -> Any:
    asked, data = {"length": length, "examples": 10, "seed": 0}, Table.from_rows(rows).to_data()
    return SimpleNamespace(key=key, measurement=name, question=asked, rows=data, facts={}, created=1.0)


def summary_of(*answers: Any) -> Summary:
    ((found,),) = summaries(answers, LABELS, RUNS, SQUARED_ERROR).values()
    return found


# ---- what is stored -----------------------------------------------------------------------------------------------


def test_the_tables_of_a_score() -> None:
    details = {
        "groups": [0.25, 0.75],
        "baselines": [{"name": "constant", "score": 0.1, "floor": True}],
        "by_position": [{"first": 0, "last": 0, "mean": 4.0, "n": 3}, {"first": 1, "last": 1, "mean": 2.0, "n": 3}],
        "means": {"failed steps": 1.5, "output": 0.5},
        "order": ["output", "failed steps"],
        "unreadable": 1,
        "kept": [{"question": "a b", "generated": "c"}],
        "broken": [{"question": "d", "generated": ""}],
    }
    score: Any = SimpleNamespace(mean=0.5, standard_error=0.1, n=4, details=details)
    tables = dict(score_tables(score, "few examples"))
    assert list(tables) == ["scores", "position-scores", "further-scores"]
    (row,) = tables["scores"]
    assert row == {
        "mean": 0.5,
        "standard_error": 0.1,
        "n": 4,
        "groups": [0.25, 0.75],
        "baselines": details["baselines"],
        "note": "few examples",
    }
    assert list(tables["position-scores"]) == details["by_position"]
    further = [{name: cell for name, cell in row.items() if cell is not None} for row in tables["further-scores"]]
    assert further == [
        {"name": "output", "mean": 0.5, "n": 4},
        {"name": "failed steps", "mean": 1.5, "n": 4},
        {"name": "unreadable", "mean": 0.25, "n": 4},
        {"problem": "unreadable", "question": "a b", "generated": "c"},
        {"problem": "broken", "question": "d", "generated": ""},
    ]
    plain: Any = SimpleNamespace(mean=0.5, standard_error=None, n=1, details={})
    ((name, table),) = score_tables(plain, None)
    assert (name, list(table.columns), table.column("n")) == ("scores", ["mean", "standard_error", "n"], [1])
    assert math.isnan(table.column("standard_error")[0])


# ---- scores by position ---------------------------------------------------------------------------------------------


def positions(key: str, length: int, *means: float) -> Any:
    ranges = [(0, 0), (1, 1), (2, 3), (4, 7)]
    rows = [
        {"first": first, "last": last, "mean": mean, "n": 4 * (last - first + 1)}
        for (first, last), mean in zip(ranges, means, strict=False)
    ]
    return answer(key, "position-scores", length, rows)


def test_scores_by_position_are_those_of_the_longest_length() -> None:
    found = summary_of(
        positions("a0", 8, 4, 3, 2), positions("a1", 8, 6, 3, 4), positions("a0", 4, 1, 1), positions("b0", 4, 2)
    )
    assert (found.question["length"], [series.label for series in found.series]) == (8, ["NoPE"])
    (scores,) = summarize(found, "mean", ("before",))
    assert [before for (before,) in scores] == ["0", "1", "2–3"]
    assert [interval.mean for interval in scores.values()] == [5, 3, 3]
    first, same, _ = scores.values()
    assert first.high - first.mean == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2), rel=1e-3)  # t of one degree
    assert first.low == 0, "cut at the limit of the metric"
    assert same.high == same.mean
    assert section(found, TASK, looks(["NoPE"]))["charts"][0]["title"] == "Score by position at length 8"


# ---- further scores and generated answers ---------------------------------------------------------------------------


def further(key: str, length: int, n: int, output: float, unreadable: int, samples: int = 0) -> Any:
    rows = [{"name": "output", "mean": output, "n": n}, {"name": "unreadable", "mean": unreadable / n, "n": n}]
    kept = [
        {"problem": "unreadable", "question": f"{key} {length}", "generated": f"nonsense {m}"} for m in range(samples)
    ]
    return answer(key, "further-scores", length, [*rows, *kept])


def test_examples_count_alike_within_a_run_and_runs_alike() -> None:
    """Runs are trained at length 6. The other run has no answers of length 12."""
    found = summary_of(
        further("a0", 4, 20, 0.9, 0),
        further("a0", 6, 10, 1.0, 0),
        further("a0", 7, 30, 0.6, 3),
        further("a0", 9, 10, 0.2, 5),
        further("a0", 12, 10, 0.0, 10),
        further("a1", 4, 20, 0.7, 0),
        further("a1", 6, 10, 0.5, 5),
        further("a1", 7, 20, 0.3, 10),
        further("a1", 9, 20, 0.1, 20),
    )
    heads, rows = numbers_table(found, found.measurement.tables[0])
    assert [head for head, _ in heads] == ["output", "unreadable"]
    cells = {row.name: [cell.mean for cell in row.cells if cell] for row in rows}
    assert cells == {
        "NoPE, shorter than training": pytest.approx([0.8, 0.0]),
        "NoPE, in distribution": pytest.approx([(1.0 + 0.5) / 2, (0 + 0.5) / 2]),
        "NoPE, longer than training": pytest.approx([(0.5 + 0.2) / 2, (0.2 + 0.75) / 2]),
    }


def test_samples_are_of_the_shortest_lengths() -> None:
    answers = [further(key, length, 10, 0, 10, 2) for length in (9, 7) for key in ("a0", "a1")]
    (samples,) = section(summary_of(*answers), TASK, looks(["NoPE"]))["excerpts"]
    assert samples["title"] == "Sample answers that could not be read"
    assert [(row["label"], row["question"], row["generated"]) for row in samples["rows"]] == [
        ("NoPE", "a0 7", "nonsense 0"),
        ("NoPE", "a0 7", "nonsense 1"),
        ("NoPE", "a1 7", "nonsense 0"),
    ]
    assert len(samples["rows"]) == SHOWN_EXCERPTS
    assert section(summary_of(further("a0", 9, 10, 0, 10)), TASK, looks(["NoPE"]))["excerpts"] == []


# ---- training -----------------------------------------------------------------------------------------------------


def test_a_training_ends_with_its_last_loss_and_its_cost() -> None:
    losses = [2.0, 1.0, math.nan]
    curve = Table.from_rows({"step": n, "loss": loss, "learning_rate": 0.1} for n, loss in enumerate(losses, 1))
    cost = {"seconds": 60.0, "peak_memory": 400_000_000, "parameters": 800, "backend": "fused"}
    *points, last = Training().derive(curve, cost)
    assert [row["step"] for row in points] == [1, 2, 3]
    shown = {name: cell for name, cell in last.items() if cell is not None}
    assert shown == {"last_loss": 1.0, "seconds": 60.0, "megabytes": 400.0, "parameters": 800}
    assert Training().derive(curve, {}).first("megabytes") is None


def test_a_long_curve_is_thinned() -> None:
    curve = Table.from_rows({"step": n, "loss": 1.0} for n in range(1, 201))
    steps = [row["step"] for row in Training().derive(curve, {})][:-1]
    assert len(steps) <= MOST_POINTS and steps[-1] == 200
    assert {b - a for a, b in zip(steps, steps[1:], strict=False)} == {4}
    assert curve.thinned(200) == curve
    assert [row["step"] for row in Table.from_rows([{"step": n} for n in range(1, 8)]).thinned(4)] == [1, 3, 5, 7]
