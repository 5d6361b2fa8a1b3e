"""What the plain sentence says, and what it must not say."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lengthwise.analysis import TaskFindings, from_rows
from lengthwise.analysis.reading import margin, reading, remark, verdict

Make = Callable[..., Any]

STEADY = [[2.0, 2.0, 2.00], [2.1, 2.1, 2.11], [2.05, 2.05, 2.05]]
WORSE = [[2.0, 2.5, 3.0], [2.1, 2.6, 3.1], [2.05, 2.5, 3.2]]
OPEN = [[2.0, 2.0, 1.7], [2.1, 2.1, 3.9], [2.05, 2.0, 2.6]]


def test_the_three_verdicts(make_study: Make) -> None:
    task = make_study({"FIRE": STEADY, "RoPE": WORSE, "NoPE": OPEN}).tasks[0]
    assert [verdict(task, s, 80) for s in task.series] == ["holds", "loses", "open"]
    assert task.reading.startswith(
        "At 80 bytes (8× the training length), FIRE has no significant loss (at most 0.05 nats per byte); "
        "RoPE gets worse; NoPE has no clear verdict: the interval over its seeds is too wide. "
    )


def test_losing_less_than_the_margin_is_holding_and_more_is_not(make_study: Make) -> None:
    task = make_study(
        {"FIRE": [[2.0, 2.0, 2.04], [2.1, 2.1, 2.14]], "RoPE": [[2.0, 2.0, 2.06], [2.1, 2.1, 2.16]]}
    ).tasks[0]
    assert [verdict(task, s, 80) for s in task.series] == ["holds", "loses"]


def test_a_small_mean_loss_alone_is_not_holding(make_study: Make) -> None:
    task = make_study({"FIRE": [[2.0, 2.0, 1.9], [2.0, 2.0, 2.1], [2.0, 2.0, 2.05]]}).tasks[0]  # loss 0.017 ± 0.26
    assert verdict(task, task.series[0], 80) == "open"


def test_pairs_by_seed(make_study: Make) -> None:
    """Seeds that differ much from each other, but each by the same amount from itself."""
    task = make_study({"FIRE": [[1.0, 1.0, 1.2], [3.0, 3.0, 3.2], [5.0, 5.0, 5.2]]}).tasks[0]
    assert verdict(task, task.series[0], 80) == "loses"


def test_no_claim_where_intervals_overlap(make_study: Make) -> None:
    task = make_study(
        {"FIRE": [[2.0, 2.0, 2.00], [2.0, 2.0, 2.02]], "ALiBi": [[2.0, 2.0, 2.01], [2.0, 2.0, 2.03]]}
    ).tasks[0]
    assert (
        "FIRE has the lowest mean cross-entropy (2.010 ±\u00a00.127); ALiBi is not significantly different."
        in task.reading
    )
    assert "better" not in task.reading


def test_clear_of_the_others(make_study: Make) -> None:
    assert (
        make_study({"FIRE": STEADY, "RoPE": WORSE})
        .tasks[0]
        .reading.endswith("(2.053 ±\u00a00.137), significantly better than RoPE.")
    )


def test_equal_best_ones_share(make_study: Make) -> None:
    perfect = [[1.0, 1.0, 1.0]] * 2
    task = make_study({"FIRE": perfect, "T5": perfect, "NoPE": [[1.0, 0.5, 0.0]] * 2}, metric="exact match").tasks[0]
    assert task.reading == (
        "At 80 bytes (8× the training length), FIRE and T5 have no significant loss (at most 5 percentage points); "
        "NoPE gets worse. FIRE and T5 share the highest mean exact match (1.000), significantly better than NoPE."
    )


def test_nothing_learned_is_nothing_held(make_study: Make) -> None:
    task = make_study({"NoPE": [[0.1, 0.1, 0.1]] * 3, "FIRE": [[1.0, 1.0, 1.0]] * 3}, metric="exact match").tasks[0]
    assert task.reading == (
        "At 80 bytes (8× the training length), FIRE has no significant loss (at most 5 percentage points). "
        "NoPE has not learned the task (fewer than half of the answers are correct at 10 bytes). "
        "FIRE has the highest mean exact match (1.000, 0.960\u00a0… 1.000) at 80 bytes, significantly better than NoPE."
    )


def test_one_seed_claims_nothing(make_study: Make) -> None:
    reading = make_study({"FIRE": STEADY[:1], "RoPE": WORSE[:1]}).tasks[0].reading
    assert reading == (
        "At 80 bytes (8× the training length), FIRE has the lowest cross-entropy (2.000); "
        "with one seed per encoding, differences may be due to chance."
    )


def test_one_encoding_is_no_comparison(make_study: Make) -> None:
    alone = make_study({"FIRE": STEADY[:1]}).tasks[0].reading
    assert alone == (
        "At 80 bytes (8× the training length), FIRE has a cross-entropy of 2.000; other seeds may give other results."
    )
    right = make_study({"NoPE": [[1.0, 1.0, 0.0]]}, metric="exact match").tasks[0].reading
    assert "NoPE has an exact match of 0.000; other seeds" in right
    several = make_study({"FIRE": STEADY}).tasks[0].reading
    assert "Its mean cross-entropy there is 2.0" in several
    assert "lowest" not in several


def test_a_seed_alone_among_others(make_study: Make) -> None:
    reading = make_study({"FIRE": STEADY, "RoPE": WORSE[:1]}).tasks[0].reading
    assert "FIRE has no significant loss (at most 0.05 nats per byte); RoPE has only one seed." in reading
    assert "RoPE is not significantly different" in reading, "one seed is never called worse"


def test_unfinished_work_says_so_far(make_study: Make) -> None:
    reading = make_study({"FIRE": STEADY, "RoPE": [*WORSE[:2], [2.0, None, None]]}).tasks[0].reading
    assert reading.startswith("So far (5 of 6 runs): at 80 bytes")


def test_no_longer_length(make_study: Make) -> None:
    reading = make_study({"FIRE": [[2.0], [2.1]]}, lengths=[10]).tasks[0].reading
    assert reading.startswith("No run has a score beyond the training length of 10 bytes yet")


def test_no_score_at_all(make_study: Make) -> None:
    reading = make_study({"FIRE": [[None, None, None]]}).tasks[0].reading
    assert reading == "No run has a score yet."


def test_a_loss_that_is_no_number(make_study: Make) -> None:
    task = make_study({"FIRE": STEADY, "RoPE": [[2.0, 2.0, math.nan], [2.0, 2.0, 9.0]]}).tasks[0]
    assert "RoPE cannot be judged (a score is missing or not finite)" in task.reading
    every = make_study({"RoPE": [[2.0, 2.0, math.nan]] * 2}).tasks[0]
    assert "nan" not in every.reading
    alone = make_study({"RoPE": [[2.0, 2.0, math.nan]]}).tasks[0]
    assert alone.reading == "At 80 bytes (8× the training length), no score is a finite number."


def test_all_alike_is_said_once(make_study: Make) -> None:
    assert "all 3 encodings get worse." in make_study({"A": WORSE, "B": WORSE, "C": WORSE}).tasks[0].reading


@pytest.mark.parametrize(
    ("lengths", "shortest", "home"),
    [((5, 10, 20), 10, 10), ((5, 8, 20), 5, 8), ((5, 8, 20), 8, 8), ((5, 8, 20), 10, None), ((20, 40), 1, None)],
)
def test_home_is_the_trained_length_or_the_longest_within(
    lengths: Any, shortest: int, home: int | None, make_study: Make
) -> None:
    table = {"FIRE": [[2.0] * len(lengths)] * 2}
    assert make_study(table, lengths=lengths, shortest=shortest).tasks[0].reference_length == home


@pytest.mark.parametrize(("constant", "said"), [(2.2, "holds"), (2.1, "unclear"), (2.04, "unlearned"), (None, "holds")])
def test_who_does_not_beat_a_constant_has_learned_nothing(
    constant: float | None, said: str, make_run: Make, make_score: Make
) -> None:
    runs = [make_run(seed=n) for n in range(3)]
    beside = [{"name": "least squares", "score": 0.0, "floor": False}]
    beside += [] if constant is None else [{"name": "zero", "score": constant, "floor": True}]
    scores = [
        make_score(run, mean, question=asked, baselines=beside)
        for run, means in zip(runs, STEADY, strict=True)  # 2.05 at the trained length
        for asked, mean in zip(run.questions, means, strict=True)
    ]
    task = from_rows([], runs, scores).tasks[0]
    assert verdict(task, task.series[0], 80) == said


FLOORS = {"uniform": 5.545, "unigram": 3.15, "bigram": 2.444, "trigram": 1.9}


def text_task(table: dict[str, list[list[float]]], make_run: Make, make_score: Make, **changes: Any) -> TaskFindings:
    """Scores of text with what counts score beside them, the same at every length."""
    beside = [{"name": name, "score": value, "floor": name != "trigram"} for name, value in FLOORS.items()]
    runs, scores = [], []
    for label, seeds in table.items():
        for seed, means in enumerate(seeds):
            run = make_run(label, seed, **changes)
            runs.append(run)
            for asked, mean in zip(run.questions, means, strict=True):
                scores.append(make_score(run, mean, question=asked, baselines=beside))
    return from_rows([], runs, scores).tasks[0]


def test_text_that_counts_predict_better_has_not_been_learned(make_run: Make, make_score: Make) -> None:
    """The novel of 60 steps: 3.83 nats at every length keep nothing."""
    table = {name: [[3.83 + n / 1000] * 3, [3.82 + n / 1000] * 3] for n, name in enumerate(("RoPE", "ALiBi", "FIRE"))}
    task = text_task(table, make_run, make_score)
    assert [verdict(task, s, 80) for s in task.series] == ["unlearned"] * 3
    assert task.reading == (
        "None of the 3 encodings has learned the task: no better than the baseline “unigram” at 10 bytes (3.150). "
        "At 80 bytes, the lowest mean cross-entropy (RoPE: 3.825 ±\u00a00.064) is no better than the baseline "
        "“unigram” (3.150)."
    )
    assert task.best(80) is None
    assert remark(task, task.series[0]) == "not learned"


def test_the_simplest_baseline_that_is_not_beaten_is_named(make_run: Make, make_score: Make) -> None:
    table = {
        "NoPE": [[6.019, 6.0, 6.0], [6.018, 6.0, 6.0]],
        "RoPE": [[3.0, 3.0, 3.0], [3.01, 3.0, 3.0]],
        "T5": [[2.4, 2.4, 2.4], [2.41, 2.4, 2.4]],
        "FIRE": [[2.0, 2.0, 2.0]] * 2,
    }
    task = text_task(table, make_run, make_score)
    assert [verdict(task, s, 80) for s in task.series] == ["unlearned", "unlearned", "unclear", "holds"]
    assert task.reading == (
        "At 80 bytes (8× the training length), FIRE has no significant loss (at most 0.05 nats per byte). "
        "NoPE has not learned the task: no better than the baseline “uniform” at 10 bytes (5.545); "
        "RoPE has not learned the task: no better than the baseline “bigram” at 10 bytes (2.444); "
        "T5 is not clearly better than the baseline “bigram” at 10 bytes (2.444). "
        "FIRE has the lowest mean cross-entropy (2.000 ±\u00a00.000) at 80 bytes, significantly better than the others."
    )
    assert [remark(task, s) for s in task.series] == [
        "not learned",
        "not learned",
        "not clearly better than bigram",
        "",
    ]
    assert task.best(80) is task.series[3].point_at(80), "no better than trigrams is no shame"


def test_a_single_seed_and_no_longer_length_say_so_too(make_run: Make, make_score: Make) -> None:
    said = "RoPE has not learned the task: no better than the baseline “unigram” at 10 bytes (3.150)."
    alone = text_task({"RoPE": [[3.83] * 3], "FIRE": [[2.0] * 3]}, make_run, make_score)
    assert alone.reading.endswith(f"with one seed per encoding, differences may be due to chance. {said}")
    within = text_task({"RoPE": [[3.83]] * 2, "FIRE": [[2.0]] * 2}, make_run, make_score, lengths=[10])
    assert (
        within.reading
        == "No run has a score beyond the training length of 10 bytes yet, so these scores say nothing about longer "
        f"inputs. {said}"
    )


@pytest.mark.parametrize(
    ("means", "said"), [((0.5, 0.49, 0.5), "unlearned"), ((0.54, 0.5, 0.53), "unclear"), ((0.9,) * 3, "holds")]
)
def test_a_constant_answer_is_a_floor_above_one_half(
    means: Sequence[float], said: str, make_run: Make, make_score: Make
) -> None:
    """Parity: seeds that are right in 52 % of the cases have not learned to hold that."""
    beside = [{"name": "constant answer", "score": 0.51, "floor": True}]
    runs = [make_run(seed=n, metric="exact match") for n in range(3)]
    scores = [
        make_score(run, mean, question=asked, n=1000, baselines=beside)
        for run, mean in zip(runs, means, strict=True)
        for asked in run.questions
    ]
    task = from_rows([], runs, scores).tasks[0]
    assert verdict(task, task.series[0], 80) == said


def test_digits_that_a_baseline_was_rounded_to_beat_nothing(make_run: Make, make_score: Make) -> None:
    """Who always says the constant answer has 22/36 = 0.61111..., and the baseline is stored as 0.611111."""
    beside = [{"name": "constant answer", "score": 0.611111, "floor": True}]
    run = make_run(metric="exact match")
    task = from_rows([], [run], [make_score(run, 22 / 36, n=36, baselines=beside)]).tasks[0]
    (point,) = task.series[0].points
    assert task.unbeaten_floor(point) is task.baselines[0]


def test_nobody_is_best_where_all_are_alike_or_never_right(make_study: Make) -> None:
    table = {"FIRE": [[1.0, 0.5, 0.0]] * 2, "T5": [[1.0, 0.25, 0.0]] * 2}
    task = make_study(table, metric="exact match").tasks[0]
    assert [task.best(n) and task.best(n).mean for n in (10, 20, 80)] == [None, 0.5, None]
    alone = make_study({"FIRE": [[1.0, 0.5, 0.0]] * 2}, metric="exact match").tasks[0]
    assert [alone.best(n) and alone.best(n).mean for n in (10, 20, 80)] == [1.0, 0.5, None]


def regression(make_run: Make, make_score: Make, scale: float, shift: dict[str, Any] | None = None) -> TaskFindings:
    """Three seeds that lose 0.2 of 5 · `scale`, and what saying 0 has: 5 · `scale`."""
    asked = [{"length": n, "examples": 64, "seed": 0, **({"shift": shift} if shift else {})} for n in (10, 80)]
    runs = [make_run(seed=n, metric="squared error", better="lower", questions=asked) for n in range(3)]
    zero = {"name": "zero", "score": 5 * scale, "floor": True}
    scores = [
        make_score(run, mean * scale, question=question, baselines=[zero])
        for run, start in zip(runs, (1.0, 1.1, 1.2), strict=True)
        for question, mean in zip(asked, (start, start + 0.2), strict=True)
    ]
    return from_rows([], runs, scores).tasks[0]


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_what_a_squared_error_may_lose_has_the_units_of_the_labels(
    scale: float, make_run: Make, make_score: Make
) -> None:
    task = regression(make_run, make_score, scale)
    assert margin(task, 10) == pytest.approx(0.25 * scale)
    assert verdict(task, task.series[0], 80) == "holds"
    steeper = dataclasses.replace(task, baselines=(dataclasses.replace(task.baselines[0], scores={10: 3 * scale}),))
    assert verdict(steeper, steeper.series[0], 80) == "loses"


def test_who_fails_another_test_may_have_learned_the_task(make_run: Make, make_score: Make) -> None:
    task = regression(make_run, make_score, 1.0, {"inputs": "skewed"})
    worse = dataclasses.replace(task, baselines=(dataclasses.replace(task.baselines[0], scores={10: 1.0}),))
    assert task.shifted
    assert "FIRE already failed this test at the training length" in reading(worse, 3)
    assert "FIRE has not learned the task: no better than the baseline “zero” at 10 bytes (1.000)." in reading(
        dataclasses.replace(worse, settings={}), 3
    )


def test_no_interval_of_a_squared_error_goes_below_0(make_run: Make, make_score: Make) -> None:
    runs = [make_run(seed=n, metric="squared error", better="lower") for n in range(3)]
    scores = [make_score(run, mean) for run, mean in zip(runs, (0.1, 3.0, 0.2), strict=True)]
    (point,) = from_rows([], runs, scores).tasks[0].series[0].points
    assert (point.interval.low, point.interval.high > 5) == (0.0, True)
    shares = [make_score(run, mean) for run, mean in zip(runs, (0.1, 1.0, 0.2), strict=True)]
    spoken = [dataclasses.replace(run, metric="total variation") for run in runs]
    (point,) = from_rows([], spoken, shares).tasks[0].series[0].points
    assert (point.interval.low, point.interval.high) == (0.0, 1.0)


def test_one_seed_that_a_floor_beats_is_no_winner(make_run: Make, make_score: Make) -> None:
    """FIRE is better than the bigram at the trained length, and worse at the longest."""
    task = text_task({"FIRE": [[2.3, 2.4, 2.472]], "RoPE": [[2.3, 2.5, 2.9]]}, make_run, make_score)
    assert task.reading == (
        "At 80 bytes (8× the training length), the lowest cross-entropy (FIRE: 2.472) is no better than the baseline "
        "“bigram” (2.444); with one seed per encoding, differences may be due to chance."
    )
    alone = text_task({"FIRE": [[2.3, 2.4, 2.472]]}, make_run, make_score).reading
    assert "FIRE has a cross-entropy of 2.472, no better than the baseline “bigram” (2.444); other seeds" in alone


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"FIRE": (0.80, 0.92), "RoPE": (0.7, 0.72)},
            r"FIRE has the highest mean exact match \(0.860, .*\), {}; RoPE is",
        ),
        (
            {"FIRE": (0.84, 0.86), "RoPE": (0.1, 0.11)},
            r"the highest mean .*, {}, but significantly better than RoPE\.",
        ),
        ({"FIRE": (0.80, 0.92)}, r"Its mean exact match there is .*, {}\."),
        ({"FIRE": (0.85,), "RoPE": (0.7,)}, r"FIRE has the highest exact match \(0.850\), {}; with one seed"),
        ({"FIRE": (0.80, 0.92), "RoPE": (0.80, 0.92)}, r"both have a mean exact match of 0.860 there, {}\."),
    ],
)
def test_an_interval_that_reaches_a_floor_at_a_longer_length_is_said(
    table: dict[str, Sequence[float]], said: str, make_run: Make, make_score: Make
) -> None:
    floor = [{"name": "constant answer", "score": 0.844, "floor": True}]
    runs = [
        make_run(label, n, (10, 80), metric="exact match") for label, means in table.items() for n in range(len(means))
    ]
    scores = [
        make_score(run, mean, question=asked, n=100, baselines=floor)
        for run in runs
        for asked, mean in zip(run.questions, (0.99, table[run.label][run.seed]), strict=True)
    ]
    (task,) = from_rows([], runs, scores).tasks
    words = "not clearly better than the baseline “constant answer” \\(0.844\\)"
    assert re.search(said.format(words), task.reading), task.reading
    assert task.reading.count("better than the baseline") == 1


@pytest.mark.parametrize("seeds", [1, 2])
def test_all_alike_and_worse_than_a_floor(seeds: int, make_run: Make, make_score: Make) -> None:
    table = {name: [[2.3, 2.4, 2.472]] * seeds for name in ("FIRE", "RoPE")}
    assert (
        f"of 2.472{' there' if seeds > 1 else ''}, no better than the baseline “bigram” (2.444)."
        in text_task(table, make_run, make_score).reading
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_never_right_is_no_highest(seeds: int, make_study: Make) -> None:
    """The other encoding has no score there yet."""
    task = make_study({"FIRE": [[1.0, 1.0, 0.0]] * seeds, "T5": [[1.0, 1.0, None]]}, metric="exact match").tasks[0]
    assert "FIRE has the highest" not in task.reading
    assert re.search(r"exact match \(FIRE: 0\.000[^)]*\) is zero", task.reading)


@pytest.mark.parametrize("seeds", [1, 3])
def test_no_encoding_is_called_the_best_that_has_not_learned(seeds: int, make_run: Make, make_score: Make) -> None:
    """Better than a floor at the longest length by chance alone."""
    zero = {"name": "zero", "score": 5.0, "floor": True}
    runs, scores = [], []
    for label, means in {"FIRE": (5.2, 4.9), "ALiBi": (5.3, 4.95)}.items():
        for seed in range(seeds):
            run = make_run(label, seed, metric="squared error", better="lower", lengths=(10, 80))
            runs.append(run)
            scores += [
                make_score(run, mean + seed / 100, question=asked, baselines=[zero])
                for asked, mean in zip(run.questions, means, strict=True)
            ]
    (task,) = from_rows([], runs, scores).tasks
    assert task.leader(80) is not None
    assert task.best(80) is None
    assert [remark(task, series) for series in task.series] == ["not learned", "not learned"]
    assert "FIRE has the" not in task.reading
    assert "is that of a model that has not learned the task" in task.reading


def test_a_row_with_fewer_seeds_says_so(make_study: Make) -> None:
    (task,) = make_study({"FIRE": STEADY, "RoPE": WORSE[:1]}).tasks
    assert [remark(task, series) for series in task.series] == ["", "1 of 3 seeds"]
