"""Questions and answers: what a conformance question is, and the four things that can come back."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from lengthwise.conformance.cases import EncodingCase, unsupported_reason


class Verdict(StrEnum):
    OK = "ok"
    REFUSED = "refused"  # it says plainly why it does not serve this
    NOT_APPLICABLE = "not applicable"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    verdict: Verdict
    detail: str = ""


class Wrong(Exception):
    """The answer is no: says what was seen."""


class Refused(Exception):
    """The encoding or the backend does not serve this, and says why."""


class NotApplicable(Exception):
    """The question means nothing for this encoding: says why."""


Ask = Callable[[EncodingCase, str], str | None]


@dataclass(frozen=True)
class Question:
    """Calling it asks one encoding on one backend.

    `ask` raises `Wrong`, `Refused` or `NotApplicable`; any other exception fails too. With `variants`, it is asked of
    the defaults and again with every setting changed (of the defaults alone when called with `variants=False`)."""

    number: int
    name: str
    text: str
    ask: Ask
    on_backend: bool = True
    variants: bool = True

    def __call__(self, case: EncodingCase, backend: str, *, variants: bool = True) -> Answer:
        answers = []
        for variant in case.variants() if self.variants and variants else [case]:
            answer = self._one(variant, backend)
            if variant != case and answer.detail:
                answer = Answer(answer.verdict, f"{variant.label}: {answer.detail}")
            if answer.verdict is Verdict.FAILED:
                return answer
            answers.append(answer)
        return next((a for a in answers if a.verdict is Verdict.REFUSED), answers[0])

    def _one(self, case: EncodingCase, backend: str) -> Answer:
        try:
            if self.on_backend and (reason := unsupported_reason(case, backend)):
                return Answer(Verdict.REFUSED, reason)
            return Answer(Verdict.OK, self.ask(case, backend) or "")
        except Refused as said:
            return Answer(Verdict.REFUSED, str(said))
        except NotApplicable as said:
            return Answer(Verdict.NOT_APPLICABLE, str(said))
        except Wrong as said:
            return Answer(Verdict.FAILED, str(said))
        except Exception as error:  # whatever breaks while it is asked is an answer too
            return Answer(Verdict.FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")


def question(
    number: int, name: str, text: str, *, on_backend: bool = True, variants: bool = True
) -> Callable[[Ask], Question]:
    return lambda ask: Question(number, name, text, ask, on_backend, variants)
