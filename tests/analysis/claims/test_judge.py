"""Verdicts on made-up scores: each test of claims, each reason for no verdict, and the correction of p values."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lengthwise.analysis.claims import Claim, Evidence, Judgement, Rows, judge
from lengthwise.analysis.claims.claim_tests import Better, Falls, Keeps, Learns, RanksHigher, SameAs, Test
from lengthwise.analysis.findings import Baseline, Findings

TEXT = Rows("fire/small", "Text")  # trained on 10 bytes, evaluated on 10, 20 and 80
OTHER_STUDY = Rows("fire/ablations", "Text")
COPY = Rows("nope/small", "Copy")
REVERSE = Rows("nope/small", "Reverse")
Table = Mapping[str, Sequence[Sequence[float | None]]]  # by encoding, the scores of each seed at the three lengths


@pytest.fixture
def found(make_study: Callable[..., Findings]) -> Callable[..., Judgement]:
    """Return a function that judges one claim with these tests by the scores of these tables, by task."""

    def judged(*tests: Test, classes: Any = None, baselines: Any = (), **tables: Table) -> Judgement:
        evidence: dict[str, Evidence] = {}
        for name, table in tables.items():
            task = name.capitalize()
            share = {"metric": "exact match"} if task in ("Copy", "Reverse") else {}
            (findings,) = make_study(table, task=task, **share).tasks
            study = "nope/small" if share else "fire/small"
            earlier = evidence[study].tasks if study in evidence else ()
            made = dataclasses.replace(findings, baselines=baselines)
            evidence[study] = Evidence(tasks=(*earlier, made), classes={made.title: classes or {}})
        (judgement,) = judge([claim("one", *tests)], evidence)
        return judgement

    return judged


def claim(name: str, *tests: Test) -> Claim:
    return Claim(name=name, text="", source="", tests=tests)


def seeds(*rows: Sequence[float]) -> list[list[float]]:
    return [list(row) for row in rows]


FLAT = seeds((1.00, 1.01, 1.02), (1.01, 1.02, 1.03), (0.99, 1.00, 1.01))
STEEP = seeds((1.10, 1.90, 3.00), (1.12, 1.93, 3.02), (1.09, 1.88, 2.99))
NOISY = seeds((1.10, 1.90, 0.50), (1.12, 1.93, 3.02), (1.09, 1.88, 1.20))
ALL_RIGHT = seeds((1.0, 0.9, 0.3), (1.0, 0.92, 0.35), (1.0, 0.91, 0.25))
ALL_WRONG = seeds((1.0, 0.1, 0.0), (1.0, 0.12, 0.01), (1.0, 0.14, 0.0))


@pytest.mark.parametrize(
    ("label", "than", "scores", "verdict"),
    [
        ("FIRE", "RoPE", STEEP, "holds here"),
        ("RoPE", "FIRE", STEEP, "contradicted at this scale"),
        ("FIRE", "RoPE", NOISY, "cannot tell"),
    ],
)
def test_a_difference_is_significant_or_not(found: Any, label: str, than: str, scores: Any, verdict: str) -> None:
    judgement = found(Better(label, than, TEXT, 8), text={"FIRE": FLAT, "RoPE": scores})
    assert judgement.verdict == verdict
    assert (judgement.p < 0.05) == (verdict != "cannot tell")


def test_the_reason_states_scores_seeds_examples_and_interval(found: Any) -> None:
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": FLAT, "RoPE": STEEP})
    assert judgement.reasons == (
        "At 20 bytes (2× the training length), FIRE has 1.010 and RoPE 1.903 nats per byte: a difference of −0.893 "
        "(−0.931 … −0.855), 3 seeds, 64 examples each",
    )


def test_all_longer_lengths_are_compared_without_a_length(found: Any) -> None:
    judgement = found(Better("FIRE", "RoPE", TEXT), text={"FIRE": FLAT, "RoPE": STEEP})
    assert judgement.verdict == "holds here"
    assert judgement.reasons[0].startswith("Over all longer lengths, FIRE has 1.015 and RoPE 2.453")


def test_equal_differences_of_all_seeds_are_judged_by_the_intervals_of_the_scores(found: Any) -> None:
    solved, failed = seeds(*3 * [(1.0, 1.0, 1.0)]), seeds(*3 * [(1.0, 0.0, 0.0)])
    judgement = found(Better("FIRE", "RoPE", COPY, 2), copy={"FIRE": solved, "RoPE": failed})
    assert (judgement.verdict, judgement.p) == ("holds here", None)
    assert found(Better("FIRE", "RoPE", COPY, 2), copy={"FIRE": solved, "RoPE": solved}).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("by", "verdict"), [(0.5, "holds here"), (0.89, "cannot tell"), (2.0, "contradicted at this scale")]
)
def test_a_difference_must_be_as_large_as_claimed(found: Any, by: float, verdict: str) -> None:
    judgement = found(Better("FIRE", "RoPE", TEXT, 2, by=by), text={"FIRE": FLAT, "RoPE": STEEP})
    assert judgement.verdict == verdict
    assert f"a difference of −0.893 (−0.931 … −0.855), compared with −{by:.3f}" in judgement.reasons[0]
    judgement = found(Better("FIRE", "RoPE", COPY, 2, by=0.5 * by), copy={"FIRE": ALL_RIGHT, "RoPE": ALL_WRONG})
    assert judgement.verdict == {0.5: "holds here", 0.89: "holds here", 2.0: "contradicted at this scale"}[by]


def test_reasons_name_the_task_if_a_claim_has_several(found: Any) -> None:
    table = {"FIRE": ALL_RIGHT}
    judgement = found(Keeps("FIRE", COPY, 8), Keeps("FIRE", REVERSE, 8), copy=table, reverse=table)
    assert [reason.partition(":")[0] for reason in judgement.reasons] == ["Copy", "Reverse"]


def test_a_p_value_is_given_only_where_it_decides(found: Any) -> None:
    table = {"FIRE": FLAT, "RoPE": STEEP, "Noisy": NOISY}
    judgement = found(Better("FIRE", "RoPE", TEXT, 8), Keeps("Noisy", TEXT, 8), text=table)
    assert (judgement.verdict, judgement.p) == ("cannot tell", None)


def test_scores_of_two_trainings_are_compared_at_the_same_length(found: Any) -> None:
    test = Better("FIRE", "FIRE", COPY, 2, than_rows=REVERSE)
    judgement = found(test, copy={"FIRE": ALL_RIGHT}, reverse={"FIRE": ALL_WRONG})
    assert judgement.verdict == "holds here"


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        (Keeps("FIRE", TEXT, 8), "holds here"),
        (Keeps("RoPE", TEXT, 8), "contradicted at this scale"),
        (Keeps("Noisy", TEXT, 8), "cannot tell"),
        (Falls("FIRE", TEXT, 8), "contradicted at this scale"),
        (Falls("RoPE", TEXT, 8), "holds here"),
        (Falls("Noisy", TEXT, 8), "cannot tell"),
        (SameAs("FIRE", "FIRE-S", TEXT, 8), "holds here"),
        (SameAs("FIRE", "RoPE", TEXT, 8), "contradicted at this scale"),
        (SameAs("FIRE", "Noisy", TEXT, 8), "cannot tell"),
    ],
)
def test_losses_and_equality_are_judged_by_their_intervals(found: Any, test: Test, verdict: str) -> None:
    table = {"FIRE": FLAT, "FIRE-S": FLAT[1:] + FLAT[:1], "RoPE": STEEP, "Noisy": NOISY}
    assert found(test, text=table).verdict == verdict


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        (Keeps("FIRE", COPY, 2, least=0.8), "holds here"),
        (Keeps("FIRE", COPY, 8, least=0.8), "contradicted at this scale"),
        (Keeps("FIRE", COPY, 2, least=0.9), "cannot tell"),
        (Falls("FIRE", COPY, 2, below=0.8), "contradicted at this scale"),
        (Falls("FIRE", COPY, 8, below=0.8), "holds here"),
        (Falls("FIRE", COPY, 2, below=0.9), "cannot tell"),
    ],
)
def test_a_score_is_compared_with_the_claimed_one(found: Any, test: Test, verdict: str) -> None:
    assert found(test, copy={"FIRE": ALL_RIGHT}).verdict == verdict


@pytest.mark.parametrize(
    ("trained", "is_learned", "verdict"),
    [
        ((1.0, 0.99, 0.97), True, "holds here"),
        ((0.3, 0.2, 0.4), True, "cannot tell"),
        ((0.3, 0.2, 0.4), False, "holds here"),
        ((1.0, 0.99, 0.97), False, "contradicted at this scale"),
        ((1.0, 0.99, 0.3), True, "cannot tell"),
    ],
)
def test_learning(found: Any, trained: Sequence[float], is_learned: bool, verdict: str) -> None:
    scores = [[score, 0.0, 0.0] for score in trained]
    assert found(Learns("FIRE", COPY, is_learned), copy={"FIRE": scores}).verdict == verdict


@pytest.mark.parametrize(
    ("trained", "verdict"),
    [
        ((2.0, 2.01, 1.99), "holds here"),
        ((0.5, 2.01, 1.99), "cannot tell"),  # one seed has learned it, but the interval of the mean reaches the floor
        ((0.5, 0.51, 0.49), "contradicted at this scale"),
    ],
)
def test_a_single_seed_that_beats_the_floors_may_have_learned(
    found: Any, trained: Sequence[float], verdict: str
) -> None:
    floor = (Baseline(label="bigram", scores={10: 2.0}, floor=True),)
    scores = [[score, 3.0, 3.0] for score in trained]
    assert found(Learns("FIRE", TEXT, False), text={"FIRE": scores}, baselines=floor).verdict == verdict


def test_ranks_are_means_over_tasks(found: Any) -> None:
    table = {"FIRE": ALL_RIGHT, "RoPE": ALL_WRONG, "NoPE": seeds(*3 * [(1.0, 0.5, 0.2)])}
    swapped = {"FIRE": ALL_RIGHT, "RoPE": seeds(*3 * [(1.0, 0.5, 0.2)]), "NoPE": ALL_WRONG}
    judgement = found(RanksHigher("FIRE", "RoPE", (COPY, REVERSE)), copy=table, reverse=swapped)
    assert judgement.reasons[0].startswith("Over 2 tasks, FIRE has a mean reciprocal rank of 1.000 and RoPE 0.417")
    assert judgement.verdict == "cannot tell"  # the ranks are the same with every seed, so there is no test


def test_a_score_over_all_longer_lengths_is_compared_with_the_claimed_one(found: Any) -> None:
    test = Falls("FIRE", COPY, None, below=0.05)
    judgement = found(test, copy={"FIRE": seeds(*3 * [(1.0, 0.0, 0.0)])})
    assert judgement.verdict == "holds here"
    assert judgement.reasons[0].endswith("(exact match) over all longer lengths, 3 seeds, 128 examples each")
    assert found(test, copy={"FIRE": ALL_RIGHT}).verdict == "contradicted at this scale"


def test_scores_of_two_studies_with_the_same_settings_are_named_once() -> None:
    rows = (Rows(study, "Text", {}, "prose") for study in ("fire/small", "fire/ablations"))
    test = Better("FIRE", "RoPE", next(rows), 2, next(rows))
    assert test.statement == "FIRE is better than RoPE at 2× the training length"
    assert test.task == "Text, prose"


# ---- reasons why nothing can be told -----------------------------------------------------------------------------


def test_a_task_that_was_not_learned_decides_nothing_at_longer_lengths(found: Any) -> None:
    table = {"FIRE": ALL_RIGHT, "RoPE": seeds((0.9, 0.1, 0.0), (0.94, 0.12, 0.01), (0.92, 0.14, 0.0))}
    judgement = found(Better("FIRE", "RoPE", COPY, 2), copy=table)
    assert judgement.verdict == "cannot tell"
    assert judgement.reasons == (
        "not learned: RoPE has 0.920 (exact match) at 10 bytes, the training length, and 0.95 are needed",
    )
    assert found(Better("FIRE", "RoPE", COPY, 1), copy=table).verdict == "holds here"  # says nothing about length


def test_a_loss_must_be_clearly_better_than_every_floor(found: Any) -> None:
    floor = (Baseline(label="bigram", scores={10: 1.11}, floor=True),)
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": FLAT, "RoPE": STEEP}, baselines=floor)
    assert judgement.verdict == "cannot tell"
    assert "not clearly better than the baseline “bigram” (1.110)" in judgement.reasons[0]
    other = (Baseline(label="trigram", scores={10: 1.11}, floor=False),)
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": FLAT, "RoPE": STEEP}, baselines=other)
    assert judgement.verdict == "holds here"


def test_only_seeds_of_both_encodings_are_compared(found: Any) -> None:
    five = [*FLAT, (9.0, 9.0, 9.0), (9.0, 9.0, 9.0)]
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": five, "RoPE": STEEP})
    assert judgement.reasons[0].startswith("At 20 bytes (2× the training length), FIRE has 1.010 and RoPE 1.903")
    assert ", 3 seeds, " in judgement.reasons[0]
    missing: list[list[float | None]] = [[1.0, None, None], [1.0, None, None], *STEEP]
    judgement = found(SameAs("FIRE", "RoPE", TEXT, 2), text={"FIRE": FLAT, "RoPE": missing})
    assert judgement.reasons == ("too few seeds: FIRE and RoPE on Text have 1 in common, and 3 are needed",)


@pytest.mark.parametrize("label", ["PI from RoPE", "PI from RoPE (100 steps at 40)"])
def test_an_encoding_in_trained_weights_is_judged_by_the_model_that_was_trained(found: Any, label: str) -> None:
    failing = seeds((0.2, 0.1, 0.0), (0.2, 0.12, 0.01), (0.2, 0.14, 0.0))
    judgement = found(Falls(label, COPY, 2, below=0.5), copy={"RoPE": ALL_RIGHT, label: failing})
    assert judgement.verdict == "holds here"
    judgement = found(Falls(label, COPY, 2, below=0.5), copy={"RoPE": failing, label: ALL_RIGHT})
    assert judgement.reasons[0].startswith("not learned: RoPE has 0.200")


def test_an_encoding_that_was_trained_on_at_the_training_length_is_judged_by_itself(found: Any) -> None:
    failing = seeds((0.2, 0.1, 0.0), (0.2, 0.12, 0.01), (0.2, 0.14, 0.0))
    label = "NoPE from RoPE (20 steps)"
    judgement = found(Falls(label, COPY, 2, below=0.5), copy={"RoPE": ALL_RIGHT, label: failing})
    assert judgement.reasons[0].startswith("not learned: NoPE from RoPE (20 steps) has 0.200")


def test_two_seeds_are_too_few(found: Any) -> None:
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": FLAT[:2], "RoPE": STEEP[:2]})
    assert judgement.verdict == "cannot tell"
    assert judgement.reasons == ("too few seeds: FIRE on Text has 2, and 3 are needed",)


def test_a_seed_without_a_score_does_not_count(found: Any) -> None:
    unfinished = [*FLAT[:2], [1.0, None, None]]
    judgement = found(Better("FIRE", "RoPE", TEXT, 2), text={"FIRE": unfinished, "RoPE": STEEP})
    assert judgement.reasons[0].startswith("too few seeds: FIRE on Text has 2")


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (
            Keeps("FIRE", OTHER_STUDY, 2),
            "there are no scores of this study; `lengthwise run fire/ablations` produces them",
        ),
        (Keeps("YaRN", TEXT, 2), "there are no scores of YaRN on Text; `lengthwise run fire/small` produces them"),
        (
            Keeps("FIRE", TEXT, 4),
            "FIRE has no score at 40 bytes (4× the training length) on Text; `lengthwise run fire/small` produces it",
        ),
    ],
)
def test_without_scores_a_claim_is_not_tested(found: Any, test: Test, reason: str) -> None:
    judgement = found(test, text={"FIRE": FLAT})
    assert (judgement.verdict, judgement.reasons) == ("not tested", (reason,))


def test_scores_of_an_older_class_are_not_used(found: Any) -> None:
    table = {"DAPE": FLAT, "RoPE": STEEP}
    judgement = found(Better("DAPE", "RoPE", TEXT, 2), text=table, classes={"DAPE": 1, "RoPE": 1})
    assert (judgement.verdict, judgement.reasons) == (
        "not tested",
        (
            "these scores are of version 1 of DAPE, which has changed since; `lengthwise run fire/small` produces new "
            "ones",
        ),
    )
    assert found(Better("DAPE", "RoPE", TEXT, 2), text=table, classes={"DAPE": 2}).verdict == "holds here"
    assert found(Keeps("RoPE", TEXT, 2), text=table, classes={"DAPE": 1}).verdict != "not tested"


def test_a_claim_without_a_test_says_what_it_needs() -> None:
    (judgement,) = judge([Claim(name="one", text="", source="", needs="it needs larger models")], {})
    assert (judgement.verdict, judgement.reasons) == ("not tested", ("it needs larger models",))


def test_two_evaluations_that_match_decide_nothing(make_study: Callable[..., Findings]) -> None:
    (task,) = make_study({"FIRE": FLAT}).tasks
    evidence = {"fire/small": Evidence(tasks=(task, dataclasses.replace(task, title="Text (256)")))}
    (judgement,) = judge([claim("one", Keeps("FIRE", TEXT, 2))], evidence)
    assert judgement.verdict == "cannot tell"
    assert "fire/small has 2 evaluations of FIRE on Text" in judgement.reasons[0]


def test_a_test_that_differs_from_training_must_be_named(make_study: Callable[..., Findings]) -> None:
    (task,) = make_study({"FIRE": FLAT}).tasks
    settings = {"training.train_length": 10, "question.shift.targets": 64}
    shifted = dataclasses.replace(task, settings=settings)
    assert TEXT.select([shifted]) == []
    assert Rows("fire/small", "Text", {"question.shift.targets": 64}).select([shifted, task]) == [shifted]
    assert Rows("fire/small", "Text", {"training.train_length": 20}).select([shifted, task]) == []


# ---- several tests, several claims -------------------------------------------------------------------------------


def test_every_test_of_a_claim_must_agree(found: Any) -> None:
    table = {"FIRE": FLAT, "RoPE": STEEP, "Noisy": NOISY}
    keeps, falls, unclear = Keeps("FIRE", TEXT, 8), Falls("FIRE", TEXT, 8), Keeps("Noisy", TEXT, 8)
    missing = Keeps("YaRN", TEXT, 8)
    assert found(keeps, keeps, text=table).verdict == "holds here"
    assert found(keeps, unclear, text=table).verdict == "cannot tell"
    assert found(keeps, unclear, missing, text=table).verdict == "not tested"
    assert found(keeps, unclear, missing, falls, text=table).verdict == "contradicted at this scale"


def test_several_comparisons_have_one_p_value(found: Any) -> None:
    table = {"FIRE": FLAT, "RoPE": STEEP, "Noisy": NOISY}
    alone = [found(Better("FIRE", other, TEXT, 8), text=table).p for other in ("RoPE", "Noisy")]
    both = found(*(Better("FIRE", other, TEXT, 8) for other in ("RoPE", "Noisy")), text=table)
    assert both.p == max(alone)
    assert both.verdict == "cannot tell"
    against = found(*(Better(other, "FIRE", TEXT, 8) for other in ("RoPE", "Noisy")), text=table)
    assert against.p == pytest.approx(2 * min(alone))
    assert against.verdict == "contradicted at this scale"
    assert against.reasons[0].startswith("At 80 bytes (8× the training length), RoPE has 3.003")


def test_p_values_are_corrected_for_the_claims_of_the_same_study(make_study: Callable[..., Findings]) -> None:
    (task,) = make_study({"FIRE": FLAT, "RoPE": STEEP}).tasks
    evidence = {"fire/small": Evidence(tasks=(task,)), "fire/ablations": Evidence(tasks=(task,))}
    one = claim("one", Better("FIRE", "RoPE", TEXT, 8))
    (alone,) = judge([one], evidence)
    assert alone.p is not None
    assert [judgement.p for judgement in judge([one] * 3, evidence)] == pytest.approx([3 * alone.p] * 3)
    other = claim("other", Better("FIRE", "RoPE", OTHER_STUDY, 8))
    assert [judgement.p for judgement in judge([one, other], evidence)] == [alone.p, alone.p]
