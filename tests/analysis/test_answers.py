"""Probes → what attention learned: which are put together, and their means and intervals, counted by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.analysis.answers import Summary, numbers_of, summarize
from lengthwise.analysis.estimates import Interval
from lengthwise.measurements import Table
from lengthwise.store import open_store
from lengthwise.store.rows import AnswerRow, RunRow

Make = Callable[..., RunRow]
LN2 = math.log(2)


def distance(run: RunRow, against: RunRow, length: int, layers: list[float], **asked: Any) -> AnswerRow:
    about = {"against": against.key, "length": length, "examples": 10, "seed": 0, "variant": "jensen-shannon"}
    rows = [{"layer": n, "distance": d, "error": 0.01, "n": 10, "places": 90} for n, d in enumerate(layers, 1)]
    return answer(run, "attention-distance", about | asked, rows)


def looking(run: RunRow, length: int, most: list[list[list[int]]], mass: Any, queries: int, **asked: Any) -> AnswerRow:
    """Two bins of each layer and head: the numbers of queries, and the shares of the weights."""
    rows = [
        {"layer": n, "head": m, "distance": k / 2, "highest": count / queries, "mass": weight}
        for n, layers in enumerate(zip(most, mass, strict=True), 1)
        for m, heads in enumerate(zip(*layers, strict=True), 1)
        for k, (count, weight) in enumerate(zip(*heads, strict=True))
    ]
    rows = [row | {"queries": queries, "n": 100} for row in rows]
    return answer(run, "attended-distance", {"length": length, "examples": 100, "seed": 0} | asked, rows)


def answer(run: RunRow, name: str, asked: dict[str, Any], rows: list[dict[str, Any]]) -> AnswerRow:
    data = Table.from_rows(rows).to_data()
    facts = {"versions": {"torch": "2"}}
    return AnswerRow(key=run.key, measurement=name, question=asked, rows=data, facts=facts, created=1.0)


def of(runs: list[RunRow], answers: list[AnswerRow], **more: Any) -> Any:
    (task,) = from_rows([], runs, answers, **more).tasks
    return task


def by_layer(summary: Summary) -> dict[str, list[Interval]]:
    found = summarize(summary, "distance", ("layer",))
    return {s.name: list(values.values()) for s, values in zip(summary.series, found, strict=True)}


def means(summary: Summary) -> list[tuple[str, float]]:
    found = summarize(summary, "distance")
    return [(s.name, values[()].mean) for s, values in zip(summary.series, found, strict=True)]


@pytest.fixture
def runs(make_run: Make) -> dict[tuple[str, int], RunRow]:
    return {(label, seed): make_run(label, seed) for seed in range(3) for label in ("NoPE", "RoPE", "ALiBi")}


def test_curves_by_layer_with_intervals_over_seeds(runs: dict[Any, RunRow]) -> None:
    probes = []
    for seed in range(3):
        for length, shift in ((10, 0.0), (20, 0.02)):
            layers = [0.10 + 0.01 * seed + shift, 0.3 + shift]
            probes.append(distance(runs["RoPE", seed], runs["NoPE", seed], length, layers))
            probes.append(distance(runs["NoPE", seed], runs["NoPE", (seed + 1) % 3], length, [0.2, 0.2]))
    (found,) = of(list(runs.values()), probes).answers["attention-distance"]
    assert (found.reference, found.question["variant"], found.pairing) == ("NoPE", "jensen-shannon", "the same seed")
    assert (found.question["examples"], found.lengths, found.n) == (10, (10, 20), 10)
    assert found.facts == {"versions.torch": "2"}
    assert [(s.label, s.name, len(s.runs)) for s in found.series] == [
        ("NoPE", "NoPE (another seed)", 3),
        ("RoPE", "RoPE", 3),
    ]
    first, second = by_layer(found)["RoPE"]
    assert first.mean == pytest.approx((0.11 + 0.12 + 0.13) / 3), "over lengths, then over seeds"
    assert first.half_width == pytest.approx(4.302653 * 0.01 / math.sqrt(3), rel=1e-5), "seeds are the unit"
    assert (second.mean, second.half_width) == (pytest.approx(0.31), pytest.approx(0, abs=1e-9))
    assert dict(means(found))["RoPE"] == pytest.approx((0.12 + 0.31) / 2)


def test_one_seed_has_its_examples_for_an_interval(runs: dict[Any, RunRow]) -> None:
    probes = [distance(runs["RoPE", 0], runs["NoPE", 0], length, [0.1]) for length in (10, 20)]
    (found,) = of(list(runs.values()), probes).answers["attention-distance"]
    (layer,) = by_layer(found)["RoPE"]
    assert layer.basis == "examples"
    assert layer.half_width == pytest.approx(1.959964 * math.sqrt(2) * 0.01 / 2, rel=1e-5)


def test_intervals_stay_where_distances_can_be(runs: dict[Any, RunRow]) -> None:
    ends = [[0.01, 0.69], [0.0, 0.66], [0.03, 0.6]]
    pairs = [(runs["RoPE", seed], runs["NoPE", seed]) for seed in range(3)]
    for variant, bounded in (("jensen-shannon", True), ("published", False)):  # above; below, both end at 0
        probes = [distance(*pair, 10, layers, variant=variant) for pair, layers in zip(pairs, ends, strict=True)]
        (found,) = of(list(runs.values()), probes).answers["attention-distance"]
        low, high = by_layer(found)["RoPE"]
        assert low.low == 0 > low.mean - low.half_width
        assert (high.high <= LN2) is bounded


def test_what_was_asked_otherwise_is_apart(runs: dict[Any, RunRow]) -> None:
    a, b, c = runs["RoPE", 0], runs["NoPE", 0], runs["ALiBi", 0]
    probes = [
        distance(a, b, 10, [0.1]),
        distance(a, b, 10, [0.2], variant="published"),
        distance(a, b, 10, [0.3], examples=20),
        distance(a, c, 10, [0.4]),
        distance(a, runs["NoPE", 1], 10, [0.5]),
        distance(b, runs["NoPE", 1], 10, [0.6]),
    ]
    found = of(list(runs.values()), probes).answers["attention-distance"]
    told = {
        (f.reference, f.question["variant"], f.question["examples"], f.pairing): [
            (name, pytest.approx(mean)) for name, mean in means(f)
        ]
        for f in found
    }
    assert told == {
        ("NoPE", "jensen-shannon", 10, "the same seed"): [("NoPE (another seed)", 0.6), ("RoPE", 0.1)],
        ("NoPE", "jensen-shannon", 10, "different seeds"): [("NoPE (another seed)", 0.6), ("RoPE", 0.5)],
        ("NoPE", "published", 10, "the same seed"): [("RoPE", 0.2)],
        ("NoPE", "jensen-shannon", 20, "the same seed"): [("RoPE", 0.3)],
        ("ALiBi", "jensen-shannon", 10, "the same seed"): [("RoPE", 0.4)],
    }


def test_only_lengths_that_all_have(runs: dict[Any, RunRow]) -> None:
    reference = runs["NoPE", 0]
    probes = [distance(runs["RoPE", 0], reference, length, [length / 100]) for length in (10, 20, 80)]
    probes += [distance(runs["ALiBi", 0], reference, length, [length / 100]) for length in (20, 80)]
    (found,) = of(list(runs.values()), probes).answers["attention-distance"]
    assert found.lengths == (20, 80)
    assert [mean for _, mean in means(found)] == [0.5, 0.5]
    (one, other) = of(list(runs.values()), [*probes[:1], *probes[3:]]).answers["attention-distance"]
    assert sorted((f.lengths, [s.label for s in f.series]) for f in (one, other)) == [
        ((10,), ["RoPE"]),
        ((20, 80), ["ALiBi"]),
    ]


def test_a_layer_that_is_not_finite(runs: dict[Any, RunRow]) -> None:
    probes = [distance(runs["RoPE", 0], runs["NoPE", 0], 10, [math.inf, 0.1], variant="published")]
    (found,) = of(list(runs.values()), probes).answers["attention-distance"]
    first, second = by_layer(found)["RoPE"]
    assert math.isnan(first.mean)
    assert second.mean == 0.1


def test_a_reference_of_another_study(runs: dict[Any, RunRow]) -> None:
    probes = [distance(runs["RoPE", 0], runs["NoPE", 0], 10, [0.1])]
    assert of([runs["RoPE", 0]], probes).answers == {}, "of whom nothing is known"
    (found,) = of([runs["RoPE", 0]], probes, compared=[runs["NoPE", 0]]).answers["attention-distance"]
    assert found.reference == "NoPE"


def test_how_far_back_heads_look(runs: dict[Any, RunRow]) -> None:
    """Two layers of one head; queries of all lengths count alike."""
    probes = [
        looking(runs["RoPE", 0], 20, [[[3, 1]], [[4, 0]]], [[[0.5, 0.5]], [[1.0, 0.0]]], 4),
        looking(runs["RoPE", 0], 80, [[[0, 12]], [[6, 6]]], [[[0.25, 0.75]], [[0.75, 0.25]]], 12),
        looking(runs["RoPE", 1], 20, [[[4, 0]], [[4, 0]]], [[[1.0, 0.0]], [[1.0, 0.0]]], 4),
        looking(runs["RoPE", 1], 80, [[[12, 0]], [[12, 0]]], [[[1.0, 0.0]], [[1.0, 0.0]]], 12),
    ]
    (found,) = of(list(runs.values()), probes).answers["attended-distance"]
    assert (found.lengths, found.question["examples"], found.n) == ((20, 80), 100, 100)
    (rope,) = found.series
    assert (rope.label, len(rope.runs)) == ("RoPE", 2)
    (most,) = summarize(found, "highest", ("distance",))
    (mass,) = summarize(found, "mass", ("distance",))
    share = (3 + 4 + 0 + 6) / 2 / 16
    assert most[0.0,].mean == pytest.approx((share + 1) / 2)
    assert sum(i.mean for i in most.values()) == pytest.approx(1)
    weight = (0.75 * 4 + 0.5 * 12) / 16
    assert mass[0.0,].mean == pytest.approx((weight + 1) / 2)
    assert (most[0.0,].basis, most[0.0,].high <= 1) == ("seeds", True)
    (alone,) = of(list(runs.values()), probes[:2]).answers["attended-distance"]
    (most,) = summarize(alone, "highest", ("distance",))
    assert most[0.0,].basis == "none", "one model's queries say nothing about another seed"


def test_nothing_asked(runs: dict[Any, RunRow]) -> None:
    task = of(list(runs.values()), [])
    assert task.answers == {}


def test_from_a_store(tmp_path: Any, runs: dict[Any, RunRow]) -> None:
    from lengthwise.analysis import findings

    names = (
        "key",
        "label",
        "encoding",
        "task",
        "metric",
        "better",
        "unit",
        "seed",
        "train_length",
        "config",
        "questions",
    )
    rows = [{name: getattr(run, name) for name in names} for run in runs.values()]
    with open_store(tmp_path) as store:
        store.add_study("ropes", evaluation={}, runs=[r for r in rows if r["label"] == "RoPE"])
        store.add_study("nopes", evaluation={}, runs=[r for r in rows if r["label"] == "NoPE"])
        probe = distance(runs["RoPE", 0], runs["NoPE", 0], 10, [0.1])
        store.add_answer(probe.key, probe.measurement, probe.question, probe.rows, probe.facts)
        found: Findings = findings(store, "ropes")
        assert found.tasks[0].answers["attention-distance"][0].reference == "NoPE"
        assert findings(store, "nopes").tasks[0].answers == {}
        assert len(findings(store).tasks[0].answers["attention-distance"]) == 1
    data = numbers_of(found.tasks[0].answers["attention-distance"][0])
    assert (data["reference"], data["tables"][0]["heads"]) == ("NoPE", ["mean", "layer 1"])
    assert data["tables"][0]["rows"][0]["label"] == "RoPE"
    assert data["tables"][0]["rows"][0]["cells"][1]["mean"] == 0.1


def test_probes_stand_beside_the_task_as_it_was_trained(make_run: Make) -> None:
    asked = [{"length": 10, "examples": 64, "seed": 0, **shift} for shift in ({}, {"shift": {"inputs": "skewed"}})]
    run = make_run("NoPE", metric="squared error", better="lower", questions=asked)
    probe = looking(run, 20, [[[3, 1]]], [[[0.5, 0.5]]], 4)
    tasks = from_rows([], [run], [probe]).tasks
    assert [(task.shifted, bool(task.answers)) for task in tasks] == [(False, True), (True, False)]


def test_answers_of_an_unknown_measurement_are_left_out(runs: dict[Any, RunRow]) -> None:
    assert of(list(runs.values()), [answer(runs["RoPE", 0], "of a later version", {}, [])]).answers == {}
