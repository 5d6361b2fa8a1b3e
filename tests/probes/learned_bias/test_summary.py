"""Stored biases to counts of heads, intervals over seeds and charts; damaged rows do not pass the checks."""

import math
from types import SimpleNamespace
from typing import Any

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.intervals import over_seeds
from lengthwise.probes import PROBES
from lengthwise.probes.learned_bias.section import frame
from lengthwise.report.palette import looks

ASKED = {"probe": "learned-bias", "query": 2}
LABELS = {"a0": "FIRE", "a1": "FIRE", "b0": "rope+T5"}


def result(relative: list[list[Any]], variation: list[list[Any]], far: float = 1.0) -> dict[str, Any]:
    bias = [[[None] * 3 if head is None else [3.0, 3.5, 3.0 + far] for head in layer] for layer in relative]
    return {"distances": [0, 1, 2], "bias": bias, "relative_distance": relative, "variation": variation}


def row(key: str, result: dict[str, Any], query: int = 2) -> Any:
    return SimpleNamespace(key=key, asked=ASKED | {"query": query}, result=result, facts={"device": "cpu"})


ROWS = [
    row("a0", result([[0.5, 1.5], [1.0, 1.0]], [[0.3, 0.3], [0.01, 0.2]])),
    row("a1", result([[0.7, 0.5], [1.04, 0.2]], [[0.3, 0.3], [0.01, 0.9]], far=9.0)),
    row("b0", result([[None, None], [0.5, 0.5]], [[None, None], [0.4, 0.4]])),
]


ROWS[0].result["bias"][1] = [[0.0, -4.0, -30.0], [0.0, 0.0, 0.0]]


def summary_of(rows: list[Any]) -> Any:
    (found,) = probe_summaries(rows, LABELS, {})["learned-bias"]
    return found


def test_heads_are_counted_over_seeds():
    fire, pattern = summary_of(ROWS).series
    assert fire.kinds == (
        {"local": 3, "flat": 0, "anti-local": 1, "mixed": 0},
        {"local": 1, "flat": 2, "anti-local": 0, "mixed": 1},
    )
    assert fire.relative[0] == over_seeds([1.0, 0.6], (0.0, 2.0))
    assert fire.curves[0][0] == (0.0, 0.5, 1.0), "the first seed, minus the bias at distance 0"
    assert pattern.kinds == (None, {"local": 2, "flat": 0, "anti-local": 0, "mixed": 0})
    assert pattern.relative[0] is None
    assert (pattern.relative[1].mean, pattern.relative[1].basis) == (0.5, "none")


def test_each_query_has_its_own_summary():
    found = probe_summaries([row("a0", ROWS[0].result, 9), ROWS[0]], LABELS, {})["learned-bias"]
    assert [summary.asked["query"] for summary in found] == [2, 9]


def test_the_section():
    task: Any = SimpleNamespace(title="Copy")
    section = PROBES.find("learned-bias").section(summary_of(ROWS), task, looks(["FIRE", "rope+T5"]))
    assert [item["name"] for item in section["multiples"]] == ["FIRE, layer 1", "FIRE, layer 2", "rope+T5, layer 2"]
    assert section["multiples"][0]["note"] == "3 local, 1 anti-local"
    described = section["multiples"][0]["chart"].described
    assert described.startswith("Copy, FIRE, layer 1: line chart of the bias for the query at position 2")
    assert "nats, from −10 to 1." in described
    assert [cell["mean"] for cell in section["kinds"][0]["cells"]] == ["3 / 0 / 1 / 0", "1 / 2 / 0 / 1"]
    assert section["kinds"][1]["cells"][0]["mean"] == "–"


def test_layers_that_share_a_bias_have_one_chart():
    task: Any = SimpleNamespace(title="Copy")
    same = [row("a0", result([[0.5, 0.6], [0.5, 0.6]], [[0.3, 0.3], [0.3, 0.3]]))]
    (item,) = PROBES.find("learned-bias").section(summary_of(same), task, looks(["FIRE"]))["multiples"]
    assert item["name"] == "FIRE, layers 1 to 2"


def test_the_frame():
    assert frame([0.0, -0.4, 2.3]) == (-0.4, 2.5)
    assert frame([0.0, -64.0]) == (-10.0, 0.0)
    assert frame([math.nan]) == (0.0, 1.0)
    assert frame([0.0, -math.inf]) == (0.0, 1.0)
