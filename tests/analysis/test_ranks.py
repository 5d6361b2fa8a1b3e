"""Mean reciprocal ranks: the published example, ties, what is left out, and the interval over seeds."""

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.analysis import Estimate, Point, Series, TaskFindings, over_examples, ranking, reciprocal_ranks
from lengthwise.analysis.estimates import over_shares
from lengthwise.analysis.ranks import over_lengths, overall
from lengthwise.config import ConfigError
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH, SQUARED_ERROR

Scores = Mapping[str, Mapping[int, Sequence[tuple[float, int]]]]  # by label and seed: (mean, n) at each length


def task(title: str, scores: Scores, lengths: Sequence[int] = (10, 20), **changes: object) -> TaskFindings:
    series = []
    for label, by_seed in scores.items():
        points = []
        for place, length in enumerate(lengths):
            seeds = tuple(
                Estimate(key=f"{label}{seed}", seed=seed, mean=row[place][0], standard_error=0.1, n=row[place][1])
                for seed, row in by_seed.items()
                if len(row) > place
            )
            interval = over_examples(seeds[0].mean, 0.1) if seeds else over_examples(0.0, 0.1)
            if seeds:
                points.append(Point(length=length, interval=interval, seeds=seeds))
        series.append(Series(label=label, encoding=label, points=tuple(points)))
    settings = {
        "title": title, "name": title, "metric": EXACT_MATCH, "unit": "symbols", "train_length": 10,
        "shortest": 1, "lengths": tuple(lengths), "series": tuple(series), "settings": {}, "keys": (), **changes,
    }  # fmt: skip
    return TaskFindings(**settings)


def of_one_seed(means: Mapping[str, float]) -> Scores:
    return {label: {0: [(1.0, 100), (mean, 100)]} for label, mean in means.items()}


FIRST, SECOND = {"A": 0.9, "B": 0.5, "C": 0.5}, {"A": 0.1, "B": 0.2, "C": 0.3}


def test_the_published_example() -> None:
    assert reciprocal_ranks(FIRST, better="higher") == {"A": 1, "B": 1 / 2.5, "C": 1 / 2.5}
    assert reciprocal_ranks(FIRST, better="higher", ties="published") == {"A": 1, "B": 1 / 2, "C": 1 / 3}
    found = ranking([task("one", of_one_seed(FIRST)), task("two", of_one_seed(SECOND))])
    assert found is not None
    means = {r.label: r.longer.mean for r in found.ranks if r.longer}
    assert means == pytest.approx({"C": 0.7, "A": 2 / 3, "B": 0.45})
    assert [r.label for r in found.ranks] == ["C", "A", "B"]
    assert (found.tasks, found.seeds, found.queries, found.dropped) == (("one", "two"), (0,), 2, 0)
    assert {r.longer.basis for r in found.ranks if r.longer} == {"none"}  # one seed says nothing of others
    published = ranking([task("one", of_one_seed(FIRST)), task("two", of_one_seed(SECOND))], ties="published")
    assert published is not None
    means = {r.label: r.longer.mean for r in published.ranks if r.longer}
    assert means == pytest.approx({"A": (1 + 1 / 3) / 2, "B": (1 / 2 + 1 / 2) / 2, "C": (1 / 3 + 1) / 2})


@pytest.mark.parametrize(("name", "near"), [("publishd", "; did you mean 'published'?"), ("min", ""), ("", "")])
def test_a_rule_for_ties_that_there_is_not(name: str, near: str) -> None:
    words = re.escape(f"there is no rule for ties {name!r}{near}; available: average, published")
    for ranked in (
        lambda: reciprocal_ranks(FIRST, better="higher", ties=name),  # type: ignore[arg-type]
        lambda: ranking([], ties=name),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=f"^{words}$"):
            ranked()


def test_the_same_number_of_right_answers_at_other_lengths_is_a_tie() -> None:
    """7 and 35 of 100 each, or 28 and 14: 42/200 both, but 28/100 · 100 is not 28 in float64."""
    right = {"A": (7, 35), "B": (28, 14), "C": (0, 41)}
    scores: Scores = {label: {0: [(1.0, 100), *((n / 100, 100) for n in row)]} for label, row in right.items()}
    two = task("copy", scores, (10, 20, 40))
    shares = {series.label: overall(two, series, "longer")[0] for series in two.series}
    assert shares["A"] != shares["B"]  # so it would be no tie
    assert reciprocal_ranks(shares, better="higher") == {"A": 1 / 1.5, "B": 1 / 1.5, "C": 1 / 3}


def test_lower_is_better_for_perplexities() -> None:
    assert reciprocal_ranks({"A": 2.0, "B": 1.0}, better="lower") == {"A": 1 / 2, "B": 1}


@given(st.dictionaries(st.sampled_from("ABCDEFG"), st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1))
def test_shared_ranks_do_not_hang_on_the_order(scores: dict[str, float]) -> None:
    got = reciprocal_ranks(scores, better="higher")
    again = reciprocal_ranks(dict(reversed(scores.items())), better="higher")
    assert got == again
    assert list(got) == list(scores)
    # ranks that are shared add up to those that would have been given
    assert sum(1 / r for r in got.values()) == pytest.approx(len(scores) * (len(scores) + 1) / 2)
    for one, other in itertools.combinations(scores, 2):
        assert (got[one] > got[other]) == (scores[one] > scores[other])


def test_overall_counts_examples_and_keeps_distributions_apart() -> None:
    two = task("copy", {"A": {0: [(1.0, 10), (0.5, 300), (0.0, 100)]}}, (10, 20, 40))
    assert overall(two, two.series[0], "longer") == {0: pytest.approx(150 / 400)}
    assert overall(two, two.series[0], "trained") == {0: 1.0}
    text = task("text", {"A": {0: [(1.0, 10), (2.0, 300), (4.0, 100)]}}, (10, 20, 40), metric=CROSS_ENTROPY)
    assert overall(text, text.series[0], "longer") == {0: 3.0}


def test_a_seed_that_lacks_a_length_or_a_number_is_left_out() -> None:
    scores = {"A": {0: [(1.0, 10), (0.5, 10)], 1: [(1.0, 10)], 2: [(1.0, 10), (math.nan, 10)]}}
    some = task("copy", scores)
    assert overall(some, some.series[0], "longer") == {0: 0.5}
    assert over_lengths(some, some.series[0], "longer").basis == "none"  # type: ignore[union-attr]
    nothing = task("copy", {"A": {}})
    assert over_lengths(nothing, nothing.series[0], "longer") is None


def test_none_right_with_any_seed_is_not_certainly_none() -> None:
    """Wilson's interval of 0 right of n ends at z² / (n + z²): two seeds do not prove that there is no better one."""
    lost = task("copy", {"A": {seed: [(1.0, 9), (0.0, 50), (0.0, 30)] for seed in (0, 1)}}, (10, 20, 40))
    found = over_lengths(lost, lost.series[0], "longer")
    assert found is not None
    assert (found.mean, found.low, found.basis) == (0.0, 0.0, "seeds")
    assert found == over_shares([0.0, 0.0], [80, 80])
    assert found.high > 1.959964**2 / (160 + 1.959964**2)


def test_queries_without_every_encoding_are_dropped() -> None:
    whole, part = of_one_seed(FIRST), {**of_one_seed(FIRST), "B": {}}
    found = ranking([task("one", whole), task("two", whole), task("three", part)])
    assert found is not None
    assert (found.queries, found.dropped, found.tasks) == (2, 1, ("one", "two"))
    assert ranking([task("one", whole), task("three", part)]) is None


def test_encodings_that_a_task_does_not_have_are_not_ranked() -> None:
    found = ranking([task("one", of_one_seed({**FIRST, "D": 1.0})), task("two", of_one_seed(SECOND))])
    assert found is not None
    assert {r.label for r in found.ranks} == {"A", "B", "C"}
    assert next(r.longer.mean for r in found.ranks if r.label == "A" and r.longer) == pytest.approx(2 / 3)


def test_the_interval_is_over_seeds() -> None:
    """Seed 0: A before B in both tasks; seed 1: in one of them. So A has 1 and 3/4."""
    one = {"A": {s: [(1.0, 9), (0.9, 9)] for s in (0, 1)}, "B": {s: [(1.0, 9), (0.1, 9)] for s in (0, 1)}}
    other = {"A": {0: [(1.0, 9), (0.9, 9)], 1: [(1.0, 9), (0.1, 9)]}, "B": {s: [(1.0, 9), (0.5, 9)] for s in (0, 1)}}
    found = ranking([task("one", one), task("two", other)])
    assert found is not None
    best = found.ranks[0]
    assert best.label == "A"
    assert best.longer is not None
    assert (best.longer.mean, best.longer.basis) == (0.875, "seeds")
    # Of two encodings, reciprocal ranks lie between 1/2 and 1: scaled, the seeds have 1 and 1/2, as shares of two tasks
    # each.
    scaled = over_shares([1.0, 0.5], [2, 2])
    assert (best.longer.low, best.longer.high) == pytest.approx((0.5 + scaled.low / 2, 0.5 + scaled.high / 2))
    assert 0.5 <= best.longer.low < 0.75
    assert best.within is not None
    assert best.within.mean == pytest.approx(1 / 1.5)  # all alike where they were trained


def test_nothing_to_rank() -> None:
    assert ranking([]) is None
    assert ranking([task("one", of_one_seed(FIRST))]) is None
    alone = of_one_seed({"A": 1.0})
    assert ranking([task("one", alone), task("two", alone)]) is None


def test_a_test_that_differs_from_the_training_is_no_further_task() -> None:
    one, other = task("one", of_one_seed(FIRST)), task("two", of_one_seed(SECOND))
    shifted = task("three", of_one_seed(SECOND), settings={"question.shift.inputs": "skewed"})
    assert ranking([one, shifted]) is None
    assert repr(ranking([one, other, shifted])) == repr(ranking([one, other]))


def test_no_squared_error_is_less_than_0() -> None:
    errors = (0.1, 3.0, 0.2)
    means = {"A": {seed: [(1.0, 9), (error, 9)] for seed, error in enumerate(errors)}}
    found = over_lengths(made := task("one", means, metric=SQUARED_ERROR), made.series[0], "longer")
    assert found is not None
    assert (found.low, found.high) == (0.0, pytest.approx(1.1 + 4.302653 * statistics.stdev(errors) / math.sqrt(3)))


def test_lengths_shorter_than_trained_are_in_no_mean() -> None:
    scores = {label: {0: [(0.0, 50), (own, 100), (own, 100), (own, 100)]} for label, own in FIRST.items()}
    short = task("one", scores, (3, 5, 10, 20), shortest=5)
    assert {n: short.kind(n) for n in short.lengths} == {3: "shorter", 5: "trained", 10: "trained", 20: "longer"}
    series = short.series[0]
    assert overall(short, series, "trained") == {0: pytest.approx(0.9)}
    assert overall(short, series, "longer") == {0: pytest.approx(0.9)}
    assert overall(short, series, "shorter") == {0: 0.0}
    within = over_lengths(short, series, "trained")
    assert within is not None
    assert within.mean == pytest.approx(0.9)
    found = ranking([short, dataclasses.replace(short, title="two")])
    assert found is not None
    assert [rank.within.mean for rank in found.ranks if rank.within] == pytest.approx([1, 1 / 2.5, 1 / 2.5])


def test_of_lengths_that_are_all_shorter_there_is_no_rank() -> None:
    scores = {label: {0: [(own, 100), (own, 100)]} for label, own in FIRST.items()}
    short = task("one", scores, (3, 20), shortest=5)
    found = ranking([short, dataclasses.replace(short, title="two")])
    assert found is not None
    assert [rank.within for rank in found.ranks] == [None] * 3
