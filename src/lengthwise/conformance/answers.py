"""What a conformance question is, and the four possible verdicts."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from lengthwise.conformance.cases import EncodingCase, unsupported_reason


class Verdict(StrEnum):
    OK = "ok"
    REFUSED = "refused"  # not supported, with a reason
    NOT_APPLICABLE = "not applicable"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    verdict: Verdict
    detail: str = ""


class Outcome(Exception):
    """What a test raises if the answer is not "ok". The message states what was observed, or the reason."""

    verdict: Verdict


class Failure(Outcome):
    """The encoding or backend is wrong."""

    verdict = Verdict.FAILED


class Refused(Outcome):
    """The encoding or backend does not support this."""

    verdict = Verdict.REFUSED


class NotApplicable(Outcome):
    """The question does not apply to this encoding."""

    verdict = Verdict.NOT_APPLICABLE


Test = Callable[[EncodingCase, str], str | None]


@dataclass(frozen=True)
class Question:
    """A question of the conformance suite. Calling it tests one encoding on one backend.

    `test` returns a detail to show or None, and raises `Failure`, `Refused` or `NotApplicable`. Any other exception is
    a failure too. With `variants`, the encoding is tested with its defaults and again with every setting changed.
    Calling the question with `variants=False` tests only the defaults. Without `on_backend`, the answer is the same for
    all backends.
    """

    number: int
    name: str
    text: str
    test: Test
    on_backend: bool = True
    variants: bool = True

    def __call__(self, case: EncodingCase, backend: str, *, variants: bool = True) -> Answer:
        answers = []
        for variant in case.variants() if self.variants and variants else [case]:
            answer = self._answer(variant, backend)
            if variant != case and answer.detail:
                answer = Answer(answer.verdict, f"{variant.label}: {answer.detail}")
            if answer.verdict is Verdict.FAILED:
                return answer
            answers.append(answer)
        return next((a for a in answers if a.verdict is Verdict.REFUSED), answers[0])

    def _answer(self, case: EncodingCase, backend: str) -> Answer:
        try:
            if self.on_backend and (reason := unsupported_reason(case, backend)):
                return Answer(Verdict.REFUSED, reason)
            return Answer(Verdict.OK, self.test(case, backend) or "")
        except Outcome as error:
            return Answer(error.verdict, str(error))
        except (Exception, SystemExit) as error:  # one broken encoding must not stop the suite
            return Answer(Verdict.FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")


def question(number: int, name: str, text: str, **options: bool) -> Callable[[Test], Question]:
    """Return a decorator that turns a test function into a `Question`."""
    return lambda test: Question(number, name, text, test, **options)
