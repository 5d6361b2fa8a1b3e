"""Stored answers of each measurement to means and intervals, counted by hand, and to the page's charts and tables."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.answers import Summary, numbers_table, summaries, summarize
from lengthwise.analysis.estimates import over_examples, over_seeds, over_seeds_and_groups, quantile_t
from lengthwise.measurements import MEASUREMENTS, Table
from lengthwise.measurements.development import development_rows, layers_text
from lengthwise.measurements.logit_parts import PARTS
from lengthwise.measurements.recency import recent
from lengthwise.metrics import EXACT_MATCH, TOKEN_ACCURACY
from lengthwise.report.charts.chart import Chart
from lengthwise.report.measurements import MAX_CHARTS, section
from lengthwise.report.palette import looks

LABELS = {"a0": "NoPE", "a1": "NoPE", "b0": "FIRE"}
RUNS: Any = {
    key: SimpleNamespace(key=key, label=label, seed=int(key[1]), config={}, train_length=6)
    for key, label in LABELS.items()
}
TASK: Any = SimpleNamespace(title="Copy", metric=EXACT_MATCH, metric_label="exact match", unit="symbols")


def row(key: str, name: str, rows: Any, created: float = 1.0, **asked: Any) -> Any:
    """Return a stored answer with the default options."""
    options = MEASUREMENTS[name].Options.with_defaults(6, **asked).to_data()
    data = Table.from_rows(rows).to_data()
    return SimpleNamespace(
        key=key, measurement=name, question=options, rows=data, facts={"device": "cpu"}, created=created
    )


def summary_of(*rows: Any) -> Summary:
    (found,) = found_of(*rows)
    return found


def found_of(*rows: Any) -> tuple[Summary, ...]:
    (found,) = summaries(rows, LABELS, RUNS, TOKEN_ACCURACY).values()
    return found


def drawn(summary: Summary) -> dict[str, Any]:
    return section(summary, TASK, looks(["NoPE", "FIRE"]))


def cells(table: dict[str, Any]) -> dict[str, list[str]]:
    return {line["name"]: [cell["mean"] for cell in line["cells"]] for line in table["rows"]}


def lines_of(chart: Chart, by: str = "name") -> list[dict[str, list[Any]]]:
    """Return the columns of a chart's rows, for each line or group of bars."""
    parts = [[row for row in chart.rows if row[by] == value] for value in chart.values(by)]
    return [{name: [row[name] for row in part] for name in part[0]} for part in parts]


# ---- recency ------------------------------------------------------------------------------------------------------


def recency(*heads: list[float]) -> list[dict[str, Any]]:
    labels = [
        {"prompts": "long", "on": "labels", "layer": 1, "head": head, "place": n, "weight": weight, "n": 4}
        for head, weights in enumerate(heads, 1)
        for n, weight in enumerate(weights)
    ]
    inputs = [
        {"prompts": kind, "on": "inputs", "layer": 1, "head": 1, "place": n, "weight": 0.1 * n, "n": 4}
        for kind in ("trained", "long", "repeated")
        for n in range(3)
    ]
    return inputs + labels


def test_recency() -> None:
    flat, late = [0.05] * 10, [0.0] * 9 + [0.3]
    found = summary_of(row("a0", "recency", recency(flat, late)), row("a1", "recency", recency(flat, flat)))
    assert (found.lengths, found.n, found.series[0].label) == ((24,), 4, "NoPE")
    (weights,) = summarize(found, "weight", ("layer", "place"), {"on": "labels"})
    assert [i.mean for i in weights.values()] == pytest.approx([0.0375] * 9 + [0.1125])
    (layers,) = summarize(found, "recent", ("layer",))
    assert layers[1,].mean == pytest.approx((0.55 + 0.1) / 2), "the mean of a run's heads: 1 and 0.1"
    (best,) = summarize(found, "recent", how="max")
    assert best[()].mean == pytest.approx((1 + 0.1) / 2)
    page = drawn(found)
    assert [chart["title"] for chart in page["charts"]] == [
        "What the last question attends to",
        "Heads of the last layer: attention weights on inputs, prompts of the training length",
        "Heads of the last layer: attention weights on inputs, prompts of 24 examples",
        "Heads of the last layer: attention weights on inputs, prompts of 6 examples, repeated 4 times",
    ]
    assert cells(page["tables"][0]) == {"NoPE": ["32.5%", "55.0%"]}


def test_the_most_recent_tenth() -> None:
    assert recent([1, 1, 1, 1, 1, 1, 1, 1, 1, 3]) == pytest.approx(0.25)
    assert recent([1.0, 3.0]) == 0.75, "one label at least"
    assert math.isnan(recent([0.0, 0.0]))


# ---- repeated examples --------------------------------------------------------------------------------------------


def prompts(shift: float) -> list[dict[str, Any]]:
    groups = [1 + shift, 2 + shift, 3 + shift]
    score = {"score": 2 + shift, "groups": groups, "start": 1, "stop": 2, "n": 4}
    curve = [{"kind": "answers", "at": "begin", "example": n, "score": y} for n, y in ((1, shift), (2, 1.0))]
    return [
        {"kind": kind, "at": at, **score} for kind, at in (("answers", "begin"), ("serial", 0), ("serial", "none"))
    ] + curve


def test_scores_over_seeds_and_prompts() -> None:
    shifts = {"a0": 0, "b0": 2, "a1": 1}
    found = summary_of(*(row(key, "lost-in-the-middle", prompts(shift), positions=2) for key, shift in shifts.items()))
    nope, fire = summarize(Summary(**vars(found) | {"metric": None}), "score", ("kind", "at"), {"example": None})
    assert nope["answers", "begin"] == over_seeds_and_groups([[1.0, 2, 3], [2.0, 3, 4]])
    assert fire["answers", "begin"].basis == "examples"
    assert list(nope) == [("answers", "begin"), ("serial", 0), ("serial", "none")]
    nope, fire = summarize(found, "score", ("example",), {"kind": "answers"})
    assert [i.mean for i in (*nope.values(), *fire.values())] == [0.5, 1.0, 2.0, 1.0]
    page = drawn(found)
    (item,) = page["charts"][2]["multiples"]
    assert (item["name"], "look" in item) == ("answers, begin", False)
    assert item["chart"].shaded == [(1.5, 2.5)], "the second example"
    assert page["tables"][0]["heads"] == ["answers begin", "duplicate at 0", "duplicate at none"]


def test_what_is_not_finite_has_no_score() -> None:
    rows = prompts(0)
    rows[0] |= {"score": math.inf, "groups": [math.inf, 1.0]}
    page = drawn(summary_of(row("b0", "lost-in-the-middle", rows, positions=2)))
    assert cells(page["tables"][0])["FIRE"][0] == "not finite"


# ---- induction ----------------------------------------------------------------------------------------------------


def induction(best: float) -> list[dict[str, Any]]:
    about = {"uniform_induction": 0.1, "uniform_nearest": 0.05, "start": 5, "n": 4}
    heads = [(1, 1, 0.2), (1, 2, best), (2, 1, 0.5), (2, 2, 0.1)]
    rows = [{"layer": layer, "head": head, "induction": y, "nearest": 0.0, **about} for layer, head, y in heads]
    return [*rows, about | {"prefix_score": best / 2}]


def test_induction() -> None:
    found = summary_of(row("a0", "induction", induction(0.4)), row("a1", "induction", induction(0.8)))
    (layers,) = summarize(found, "induction", ("layer",), how="max")
    assert [i.mean for i in layers.values()] == pytest.approx([0.6, 0.5])
    assert layers[1,].half_width == pytest.approx(quantile_t(1) * 0.2)
    page = drawn(found)
    assert "scores 0.100." in page["charts"][0]["about"]
    heads = page["tables"][0]["heads"]
    (line,) = cells(page["tables"][0]).values()
    assert dict(zip(heads, line, strict=True))["prefix score"] == "0.300"
    assert dict(zip(heads, line, strict=True))["induction heads"] == "1.500", "0.5; 0.8 and 0.5"


# ---- biases and parts of logits -----------------------------------------------------------------------------------


def biases(relative: dict[int, list[float]], variation: float, far: float = 1.0) -> list[dict[str, Any]]:
    heads = [(layer, head, r) for layer, of_layer in relative.items() for head, r in enumerate(of_layer, 1)]
    rows = [{"layer": n, "head": m, "relative_distance": r, "variation": variation} for n, m, r in heads]
    curve = [(0, 3.0), (1, 3.5), (2, 3.0 + far)]
    return rows + [{"layer": n, "head": m, "distance": d, "bias": b} for n, m, _ in heads for d, b in curve]


def test_heads_are_counted() -> None:
    found = summary_of(
        row("a0", "learned-bias", biases({1: [0.5, 1.5], 2: [1.0, 1.0]}, 0.3), query=2),
        row("a1", "learned-bias", biases({1: [0.7, 0.5], 2: [1.04, 0.2]}, 0.01, far=9.0), query=2),
        row("b0", "learned-bias", biases({2: [0.5, 0.5]}, 0.4), query=2),
    )
    (nope, fire) = summarize(found, "relative_distance", ("layer",))
    assert nope[1,] == over_seeds([1.0, 0.6], (0.0, 2.0))
    assert (fire[2,].mean, fire[2,].basis, len(fire)) == (0.5, "none", 1)
    page = drawn(found)
    assert cells(page["tables"][0]) == {
        "NoPE": ["2.000", "0.500", "0.500", "1.000"],
        "FIRE": ["2.000", "0.000", "0.000", "0.000"],
    }
    assert list(cells(page["tables"][1])) == ["NoPE, layer 1", "NoPE, layer 2", "FIRE, layer 2"]
    assert [item["name"] for item in page["charts"][0]["multiples"]] == ["NoPE, layers 1 to 2", "FIRE, layer 2"]
    lines = lines_of(page["charts"][0]["multiples"][0]["chart"])
    assert [line["y"] for line in lines] == [[0, 0.5, 1]] * 2, "the first seed, minus the bias at distance 0"


def test_each_query_has_its_own_summary() -> None:
    rows = biases({1: [0.5]}, 0.3)
    found = found_of(row("a0", "learned-bias", rows, query=9), row("a0", "learned-bias", rows, query=2))
    assert [summary.question["query"] for summary in found] == [2, 9]


def logit_parts(*shares: float) -> list[dict[str, Any]]:
    keys = [{"layer": layer, "head": head, "n": 4} for layer in (1, 2) for head in (1, 2)]
    sizes = (0.5, 1.0, 1.5, 2.0)
    rows = [
        key | {"part": part, "share": share, "deviation": size}
        for key in keys
        for part, share, size in zip(PARTS, shares, sizes, strict=True)
    ]
    return rows + [
        key | {"part": "logit", "deviation": size} for key, size in zip(keys, (3.0, 5.0, 1.0, 1.0), strict=True)
    ]


def test_logit_parts() -> None:
    found = summary_of(
        row("a0", "logit-parts", logit_parts(0.5, 0.25, 0.5, -0.25)),
        row("a1", "logit-parts", logit_parts(0.7, 0.1, 0.1, 0.1)),
        row("b0", "logit-parts", logit_parts(*[math.nan] * 4)),
    )
    nope, _ = summarize(found, "share", ("layer", "part"))
    assert nope[1, PARTS[0]] == over_seeds([0.5, 0.7])
    page = drawn(found)
    shares, sizes, heads = page["tables"]
    assert shares["heads"][:2] == ["layer 1: word-word", "layer 1: word-position"]
    assert cells(shares)["NoPE"][:4] == ["60.0%", "17.5%", "30.0%", "-7.5%"]
    assert set(cells(shares)["FIRE"]) == {"not finite"}
    assert dict(zip(sizes["heads"], cells(sizes)["NoPE"], strict=True))["layer 1: logit"] == "4.000"
    assert cells(heads)["NoPE, layer 2"][0] == "50.0%"
    assert [name for _, name in page["charts"][0]["colours"]] == list(PARTS)
    described = page["charts"][0]["multiples"][0]["chart"].described
    assert "Vertical axis: standard deviation over a query’s keys (nats), from 0 to 2" in described


# ---- position shifts ----------------------------------------------------------------------------------------------


def shifts(scores: list[float], changes: list[float], invariant: bool = True, limit: int | None = None) -> Any:
    columns = zip((0, 1, 9), scores, changes, strict=False)
    return [
        {
            "shift": shift,
            "score": score,
            "score_error": 0.0,
            "difference": score - scores[0],
            "difference_error": 0.001,
            "logit_change": change,
            "invariant": invariant,
            "max_length": limit,
            "n": 4,
        }
        for shift, score, change in columns
    ]


def test_differences_are_those_of_each_run() -> None:
    asked = {"shifts": (0, 1, 9), "examples": 4}
    found = summary_of(
        row("a0", "position-shift", shifts([0.9, 0.9, 0.8], [0.0, 1e-6, 2e-6]), **asked),
        row("a1", "position-shift", shifts([0.5, 0.5, 0.6], [0.0, 3e-6, 1e-6]), **asked),
        row("b0", "position-shift", shifts([0.9, 0.1], [0.0, 4.5], False, 12), **asked),
    )
    nope, _ = summarize(found, "score", ("shift",))
    assert nope[0,].mean == pytest.approx(0.7)
    assert nope[0,].high == 1, "within the limits of the metric"
    nope, fire = summarize(found, "difference", ("shift",))
    assert nope[9,].mean == pytest.approx(0.0)
    assert nope[9,].half_width == pytest.approx(over_seeds([-0.1, 0.1]).half_width)
    assert fire == {(0,): over_examples(0.0, 0.001), (1,): over_examples(0.1 - 0.9, 0.001)}
    page = drawn(found)
    assert page["remarks"] == (
        "Other encodings that declare invariance (NoPE) are equal up to rounding. Shifts past the last position are "
        "not measured: FIRE (12 positions)."
    )
    assert cells(page["tables"][0]) == {
        "NoPE": ["0.700", "0.000", "0.000", "0.000"],
        "FIRE": ["0.900", "0.000", "−0.800", "–"],
    }
    assert cells(page["tables"][1])["FIRE"] == ["0.000", "4.500", "–"]
    assert "4 test sequences of 6 symbols" in page["charts"][0]["about"]
    described = page["charts"][0]["chart"].described
    assert "Horizontal axis: number added to all position IDs, from 0 to 9" in described


# ---- development --------------------------------------------------------------------------------------------------


def quantity(name: str, layers: list[int], shape: list[int], values: list[list[Any]]) -> dict[str, Any]:
    entries = list(range(shape[1])) if len(shape) == 2 else []
    return {"name": name, "layers": layers, "shape": shape, "entries": entries, "values": values}


def scalars(last: float) -> Any:
    slopes = quantity("slope", [1, 2], [2], [[1.0, 3.0], [2.0, None], [last, 5.0]])
    tracked = {"steps": [0, 2, 3], "quantities": [quantity("c", [1], [], [[0.1], [0.2], [last]]), slopes]}
    return list(development_rows(tracked))


def buckets() -> Any:
    values = [[1.0, 2, 3, 4, 5, 6], [2.0, 3, 4, 5, 6, 7]]
    tracked = {"steps": [0, 3], "quantities": [quantity("bias of bucket", [1, 2], [2, 3], values)]}
    return list(development_rows(tracked))


def test_developments() -> None:
    rows = [
        row("a0", "development", scalars(0.5)),
        row("a1", "development", scalars(0.7)),
        row("b0", "development", buckets()),
    ]
    found = summary_of(*rows)
    nope, fire = summarize(found, "change", ("quantity", "layers"))
    assert nope["c", "layer 1"] == over_seeds([0.5 - 0.1, 0.7 - 0.1])
    assert (fire["bias of bucket", "layers 1 to 2"].mean, fire["bias of bucket", "layers 1 to 2"].basis) == (
        1.0,
        "none",
    )
    page = drawn(found)
    numbers, tables = page["charts"]
    assert [item["name"] for item in numbers["multiples"]] == ["NoPE, c, layer 1", "NoPE, slope, layers 1 to 2"]
    assert [item["name"] for item in tables["multiples"]] == [
        "FIRE, bias of bucket, layers 1 to 2, head 1",
        "FIRE, bias of bucket, layers 1 to 2, head 2",
    ]
    lines = lines_of(tables["multiples"][1]["chart"])
    assert [line["y"] for line in lines] == [[4, 5], [5, 6], [6, 7]], "the buckets of the second head"
    pale, full = lines_of(numbers["multiples"][0]["chart"])
    assert (pale["y"], full["y"]) == ([0.1, 0.2, 0.7], [0.1, 0.2, 0.5])
    assert pale["opacity"][0] < full["opacity"][0] == 1
    assert cells(page["tables"][0])["NoPE, c, layer 1"] == ["0.100", "0.600", "0.500"]


def test_trainings_that_stopped_at_different_steps() -> None:
    def recorded(steps: list[int], values: list[float]) -> Any:
        tracked = {"steps": steps, "quantities": [quantity("c", [1], [], [[value] for value in values])]}
        return row(f"a{len(steps) - 3}", "development", development_rows(tracked))

    found = summary_of(recorded([0, 20, 30], [0.1, 0.2, 0.3]), recorded([0, 20, 40, 45], [0.1, 0.3, 0.5, 0.6]))
    page = drawn(found)
    assert cells(page["tables"][0])["NoPE, c, layer 1"] == ["0.100", "0.450", "0.350"], "each at its own last step"
    (chart,) = [item["chart"] for item in page["charts"][0]["multiples"]]
    pale, full = lines_of(chart)
    assert (pale["x"], full["x"]) == ([0, 20, 40, 45], [0, 20, 30])
    assert "from 0 to 45." in chart.described
    assert "Lines: 2, one for each head and seed." in chart.described


def test_few_charts_of_an_encoding_with_many_layers() -> None:
    tracked = {"steps": [0, 1], "quantities": [quantity("c", [n], [], [[1.0], [2.0]]) for n in range(1, 31)]}
    page = drawn(summary_of(row("a0", "development", development_rows(tracked))))
    assert len(page["charts"][0]["multiples"]) == MAX_CHARTS
    assert page["charts"][0]["cut"] == " NoPE: the first 24 of 30 charts."
    assert len(page["tables"][0]["rows"]) == 30


def test_layers_in_words() -> None:
    assert [layers_text(layers) for layers in ([3], [1, 2, 3], [1, 3])] == [
        "layer 3",
        "layers 1 to 3",
        "2 layers from 1 to 3",
    ]


# ---- lengths of examples ------------------------------------------------------------------------------------------


def test_lengths_of_examples() -> None:
    def counted(train: dict[int, int]) -> Any:
        splits = {"training": train, "test": {9: 4, 30: 4}}
        return [{"split": s, "length": n, "count": c} for s, counts in splits.items() for n, c in counts.items()]

    one, other = found_of(
        row("a0", "lengths", counted({3: 6, 9: 2}), field="input", examples=8),
        row("a0", "lengths", counted(dict.fromkeys(range(1, 101), 1)), field="target"),
    )
    page = drawn(one)
    (chart,) = page["charts"]
    assert chart["about"].endswith(
        "by words per question; drawn at random; equally many test examples of each length, if there are enough."
    )
    assert [name for _, name in chart["colours"]] == ["training", "test"]
    (item,) = chart["multiples"]
    assert [bars["y"] for bars in lines_of(item["chart"], "label")] == [[0.75, 0.25, 0], [0, 0.5, 0.5]]
    assert cells(page["tables"][0]) == {"NoPE, training": ["6", "2", "–"], "NoPE, test": ["–", "4", "4"]}
    (chart,) = drawn(other)["charts"]
    assert chart["about"].endswith("by words per answer; all examples.")
    bars, _ = lines_of(chart["multiples"][0]["chart"], "label")
    assert bars["y"] == pytest.approx([0.05] * 20), "lengths are put together"


# ---- in general ---------------------------------------------------------------------------------------------------


def test_only_what_was_asked_alike_is_put_together() -> None:
    rows = [row(key, "recency", recency([0.1], [0.1]), seed=n) for n, key in enumerate(("a0", "b0", "other"))]
    assert [[s.label for s in group.series] for group in found_of(*rows)] == [["NoPE"], ["FIRE"]]
    assert summaries([], LABELS, RUNS) == {}
    unknown = SimpleNamespace(key="a0", measurement="of a later version", question={}, rows={}, facts={}, created=1.0)
    assert summaries([unknown], LABELS, RUNS) == {}


def test_a_table_has_a_row_for_each_encoding() -> None:
    found = summary_of(row("a0", "recency", recency([0.1] * 10)), row("b0", "recency", recency([0.2] * 10)))
    heads, rows = numbers_table(found, found.measurement.tables[0])
    assert [head for head, _ in heads] == ["layer 1", "best head"]
    assert [(line.name, len(line.cells)) for line in rows] == [("NoPE", 2), ("FIRE", 2)]
