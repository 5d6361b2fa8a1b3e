"""Probes of functions learned in context → means and intervals, counted by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_seeds_and_groups, quantile_t
from lengthwise.probes.recency.summary import recent


def row(key: str, asked: dict[str, Any], result: dict[str, Any]) -> Any:
    return SimpleNamespace(key=key, asked=asked, result=result | {"n": 4}, facts={"device": "cpu"})


RECENCY = {"probe": "recency", "length": 11, "points": 3, "repeats": 2, "examples": 4, "seed": 0}
MIDDLE = {"probe": "lost-in-the-middle", "length": 9, "points": 6, "positions": 2, "examples": 4, "seed": 0}
INDUCTION = {"probe": "induction", "length": 8, "points": 3, "repeats": 2, "neighbours": 1, "examples": 4, "seed": 0}
LABELS = {"a0": "NoPE", "a1": "NoPE", "b0": "FIRE"}


def summaries(rows: list[Any]) -> dict[str, Any]:
    return probe_summaries(rows, LABELS, {})


def recency(head: list[float], other: list[float]) -> dict[str, Any]:
    last = {"trained": [[0.1]], "long": [[0.2]], "repeated": [[None]]}
    return {"layers": [[head, other]], "last": last, "train_length": 4}


def test_recency():
    flat, late = [0.05] * 10, [0.0] * 9 + [0.3]
    rows = [row("a0", RECENCY, recency(flat, late)), row("a1", RECENCY, recency(flat, flat))]
    (found,) = summaries(rows)["recency"]
    (series,) = found.series
    assert (series.label, series.seeds, found.result["train_length"], found.lengths) == ("NoPE", 2, 4, (11,))
    assert series.layers[0] == pytest.approx([0.0375] * 9 + [0.1125])
    assert series.recent[0].mean == pytest.approx((0.55 + 0.1) / 2), "the mean of a run's heads: 1 and 0.1"
    assert series.best.mean == pytest.approx((1 + 0.1) / 2)
    assert series.heads["long"] == ((0.2,),)
    assert math.isnan(series.heads["repeated"][0][0])


def test_the_most_recent_tenth():
    assert recent([1, 1, 1, 1, 1, 1, 1, 1, 1, 3]) == pytest.approx(0.25)
    assert recent([1.0, 3.0]) == 0.75, "one label at least"
    assert math.isnan(recent([0.0, 0.0]))


def made(kind: str, at: Any, groups: list[float], **more: Any) -> dict[str, Any]:
    score = sum(groups) / len(groups)
    return {"kind": kind, "at": at, "start": 6, "stop": 8, "score": score, "groups": groups, **more}


def test_scores_over_seeds_and_prompts():
    def result(shift: float) -> dict[str, Any]:
        groups = [1 + shift, 2 + shift, 3 + shift]
        curve = {"mean": [shift, 1.0], "low": [0, 0], "high": [9, 9]}
        first = made("answers", "begin", groups, curve=curve)
        return {"prompts": [first, made("serial", 0, groups), made("serial", "none", groups)]}

    rows = [row("a0", MIDDLE, result(0)), row("b0", MIDDLE, result(2)), row("a1", MIDDLE, result(1))]
    (found,) = summaries(rows)["lost-in-the-middle"]
    nope, fire = found.series
    assert (nope.label, nope.seeds, nope.scores[0].mean) == ("NoPE", 2, 2.5)
    assert nope.scores[0] == over_seeds_and_groups([[1.0, 2, 3], [2.0, 3, 4]])
    assert (fire.seeds, fire.scores[0].basis) == (1, "examples")
    assert len(nope.scores) == 3
    assert nope.curves == ((0.5, 1.0), (), ())
    assert fire.curves == ((2.0, 1.0), (), ())


def test_what_is_not_finite_has_no_score():
    bad = made("answers", "begin", [1.0, 2.0], curve={"mean": [None, 1.0]}) | {"score": None, "groups": [None, 1.0]}
    (found,) = summaries([row("b0", MIDDLE, {"prompts": [bad]})])["lost-in-the-middle"]
    assert found.series[0].scores == (None,)
    assert math.isnan(found.series[0].curves[0][0])


def test_induction():
    def result(best: float) -> dict[str, Any]:
        uniform = {"induction": 0.1, "nearest": 0.05}
        rest = {"nearest": [[0.0, 0.0]], "uniform": uniform, "start": 5, "prefix_score": best / 2, "nearest_score": 0.1}
        return {"induction": [[0.2, best], [0.5, 0.1]], **rest}

    rows = [row("a0", INDUCTION, result(0.4)), row("a1", INDUCTION, result(0.8))]
    (found,) = summaries(rows)["induction"]
    (series,) = found.series
    assert [i.mean for i in series.layers] == pytest.approx([0.6, 0.5])
    assert series.layers[0].half_width == pytest.approx(quantile_t(1) * 0.2)
    assert series.prefix.mean == pytest.approx(0.3)
    assert series.heads == 3, "0.5, 0.8 and 0.5"
    assert found.result["uniform"]["induction"] == 0.1


def test_only_what_was_asked_alike_is_put_together():
    rows = [row(key, RECENCY | {"seed": n}, recency([0.1], [0.1])) for n, key in enumerate(("a0", "b0", "other"))]
    found = summaries(rows)["recency"]
    assert [[s.label for s in group.series] for group in found] == [["NoPE"], ["FIRE"]]
    assert summaries([]) == {}
