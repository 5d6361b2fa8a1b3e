"""Claims, and how they are judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lengthwise.analysis.claims.claim_tests import Outcome, Test
from lengthwise.analysis.claims.evidence import Evidence
from lengthwise.analysis.claims.scores import CONTRADICTED, HOLDS, UNDECIDED, UNTESTED, NoDecision, Verdict
from lengthwise.analysis.statistics.paired import LEVEL, holm


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a source about position encodings, and the tests that decide whether it holds here.

    `name`: identifies it, such as "fire-3". `text`: one or two sentences. `source`: the publication and the place in
    it.
    `tests`: all of them must agree with the claim for it to hold. `needs`: why there is no test, and what one would
    need.
    """

    name: str
    text: str
    source: str
    tests: tuple[Test, ...] = ()
    needs: str = ""

    @property
    def study(self) -> str:
        """Return the study whose scores decide; "" without a test."""
        return self.tests[0].all_rows[0].study if self.tests else ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands that produce the scores of the tests."""
        return tuple(dict.fromkeys(rows.command for test in self.tests for rows in test.all_rows))


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim.

    `reasons`: a sentence for each test that decided it. `p`: of the comparisons among them together, after the
    correction; None without.
    """

    claim: Claim
    verdict: Verdict
    reasons: tuple[str, ...]
    p: float | None = None


def judge(claims: Sequence[Claim], evidence: Mapping[str, Evidence]) -> tuple[Judgement, ...]:
    """Return the verdicts on claims, given the scores of each study.

    A claim holds if all of its tests agree with it, and is contradicted if one of them contradicts it. Its comparisons
    have one p value together (`_joint`). Holm's correction is for all claims that one study decides, so that the
    verdicts on its scores do not depend on which other studies were run.
    """
    outcomes = [[_outcome(test, evidence) for test in claim.tests] for claim in claims]
    joint = [_joint([outcome for outcome in row if outcome.p is not None]) for row in outcomes]
    corrected: list[float | None] = [None] * len(claims)
    for study in dict.fromkeys(claim.study for claim in claims):
        family = [place for place, claim in enumerate(claims) if claim.study == study and joint[place] is not None]
        values = holm([p for place in family if (p := joint[place]) is not None])
        for place, p in zip(family, values, strict=True):
            corrected[place] = p
    return tuple(map(_judgement, claims, outcomes, corrected))


def _outcome(test: Test, evidence: Mapping[str, Evidence]) -> Outcome:
    try:
        return test.outcome(evidence)
    except NoDecision as reason:
        return Outcome(reason.verdict, str(reason))


def _joint(comparisons: Sequence[Outcome]) -> float | None:
    """Return the p value of several comparisons together.

    If all point in the direction of the claim, it is the largest, because all of them must be significant (Berger
    1982). Otherwise it is the smallest of those that point in the other direction, times their number (Bonferroni).
    """
    against = [o.p for o in comparisons if o.p is not None and o.verdict == CONTRADICTED]
    if against:
        return min(1.0, len(against) * min(against))
    return max((o.p for o in comparisons if o.p is not None), default=None)


def _judgement(claim: Claim, outcomes: Sequence[Outcome], p: float | None) -> Judgement:
    if p is not None:
        significant = p < LEVEL
        against = any(o.p is not None and o.verdict == CONTRADICTED for o in outcomes)
        direction = (CONTRADICTED if against else HOLDS) if significant else UNDECIDED
        outcomes = [o if o.p is None or o.verdict == direction else replace(o, verdict=UNDECIDED) for o in outcomes]
    verdicts = {outcome.verdict for outcome in outcomes} or {UNTESTED}
    verdict = next(v for v in (CONTRADICTED, UNTESTED, UNDECIDED, HOLDS) if v in verdicts)
    deciding = [
        (test, outcome) for test, outcome in zip(claim.tests, outcomes, strict=True) if outcome.verdict == verdict
    ]
    several = len({test.task for test in claim.tests}) > 1
    reasons = [f"{test.task}: {outcome.sentence}" if several else outcome.sentence for test, outcome in deciding]
    compared = any(outcome.p is not None for _, outcome in deciding)
    return Judgement(claim, verdict, tuple(dict.fromkeys(reasons)) or (claim.needs,), p if compared else None)
