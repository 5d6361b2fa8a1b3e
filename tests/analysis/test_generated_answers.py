"""What decoded answers say beyond right and wrong, from the store's rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.generated_answers import Unread, generated_answers


def row(key: str, length: int, n: int, output: float, failed: float, unreadable: int, kept: int = 0) -> Any:
    details: dict[str, Any] = {
        "means": {"failed steps": failed, "output": output},
        "order": ["output", "failed steps"],
        "unreadable": unreadable,
        "kept": [{"question": f"{key} {length}", "generated": f"nonsense {m}"} for m in range(kept)],
    }
    if kept > 1:  # a row without such answers has no such word
        details["broken"] = [{"question": f"{key} {length}", "generated": "a mess"}]
    score = SimpleNamespace(length=length, n=n, asked={"examples": n}, facts={"details": details})
    return SimpleNamespace(key=key, config={"training": {"min_length": 3}}, train_length=4), score


def test_examples_count_alike_within_a_run_and_runs_alike() -> None:
    rows = [
        row("a", 3, 10, 1.0, 0.0, 0),
        row("a", 4, 30, 0.6, 1.0, 2),
        row("b", 3, 10, 0.5, 2.0, 5),
        row("b", 6, 20, 0.1, 4.0, 20, kept=1),
        row("b", 5, 20, 0.3, 2.0, 10, kept=2),
    ]
    found = generated_answers({"NoPE": rows, "RoPE": []})
    assert found is not None
    assert found.names == ("output", "failed steps", "unreadable")
    (one,) = found.series
    assert (one.label, one.seeds) == ("NoPE", 2)
    assert one.within == pytest.approx({"output": (0.7 + 0.5) / 2, "failed steps": (0.75 + 2) / 2, "unreadable": 0.275})
    assert one.longer == pytest.approx({"output": 0.2, "failed steps": 3.0, "unreadable": 0.75})
    assert [answer.length for answer in one.unread] == [5, 5, 6]
    assert one.unread[0] == Unread(length=5, question="b 5", generated="nonsense 0")
    assert one.broken == (Unread(length=5, question="b 5", generated="a mess"),)
    assert one.shorter == {}
    short = generated_answers({"NoPE": [*rows, row("b", 2, 40, 0.9, 1.0, 4)]})
    assert short is not None
    assert (short.series[0].within, short.series[0].longer) == (one.within, one.longer)
    assert short.series[0].shorter == pytest.approx({"output": 0.9, "failed steps": 1.0, "unreadable": 0.1})
    assert short.series[0].seeds == 2


@pytest.mark.parametrize("facts", [None, {}, {"details": {}}, {"details": {"groups": [0.5]}}])
def test_scores_that_were_not_decoded_have_none(facts: Any) -> None:
    score = SimpleNamespace(length=3, n=10, out_of_distribution=False, facts=facts)
    assert generated_answers({"NoPE": [(SimpleNamespace(key="a"), score)]}) is None
    assert generated_answers({}) is None


def test_further_scores_without_generated_answers() -> None:
    rows = [row("a", 4, 10, 0.5, 0.0, 0), row("a", 5, 30, 0.1, 0.0, 0)]
    for _, score in rows:
        details = score.facts["details"]
        score.facts["details"] = {"means": {"exact match": details["means"]["output"]}, "order": ["exact match"]}
    found = generated_answers({"NoPE": rows})
    assert found is not None
    assert found.names == ("exact match",)
    assert found.series[0].within == pytest.approx({"exact match": 0.5})
    assert found.series[0].longer == pytest.approx({"exact match": 0.1})
    assert found.series[0].unread == ()
