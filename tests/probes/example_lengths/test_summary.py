"""How long the examples of runs are, from stored rows."""

import pytest

from lengthwise.analysis.gather import probe_summaries
from lengthwise.analysis.lengths import Histogram
from lengthwise.probes.example_lengths.summary import ExampleLengthsSummary
from lengthwise.store.rows import ProbeRow


def stored(key: str, field: str, created: float, train: dict[str, int], **more: int) -> ProbeRow:
    asked = {"probe": "lengths", "field": field, **more}
    return ProbeRow(key=key, asked=asked, result={"train": train, "test": {"9": 4, "30": 4}}, facts={}, created=created)


def test_what_is_stored_of_runs_is_shown_once_for_each_field() -> None:
    rows = [
        stored("b", "target", 3, {"2": 1}),
        stored("a", "input", 2, {"3": 6, "9": 2}, examples=8),
        stored("b", "input", 1, {"1": 1}),
        stored("other", "length", 1, {"1": 1}),
    ]
    one, other = probe_summaries(rows, {"a": "NoPE", "b": "NoPE"}, {})["lengths"]
    assert (one.field, one.drawn, one.train.counts) == ("input", 8, {3: 6, 9: 2})
    assert (other.field, other.drawn) == ("target", None)
    assert one.bins(5) == [(3, 3, 6, 0), (9, 9, 2, 4), (30, 30, 0, 4)]
    assert one.bins(2) == [(0, 9, 8, 4), (30, 39, 0, 4)]


@pytest.mark.parametrize(
    ("drawn", "says"),
    [
        (None, "all examples"),
        (1000, "drawn at random; equally many test examples of each length, if there are enough"),
    ],
)
def test_where_examples_come_from(drawn: int | None, says: str) -> None:
    found = ExampleLengthsSummary(field="input", drawn=drawn, train=Histogram({3: 1000}), test=Histogram({4: 1002}))
    assert found.origin == says
