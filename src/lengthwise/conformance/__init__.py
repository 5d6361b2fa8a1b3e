"""The conformance suite: the same questions for every encoding on every backend.

`lengthwise check` prints the answers. A new encoding or backend is included as soon as it is in its list.
"""

from dataclasses import dataclass

from lengthwise.attention import BACKENDS
from lengthwise.conformance import (
    agreement,
    causality,
    configuration,
    decoding,
    documents,
    lengths,
    parameters,
    settings,
    vectors,
)
from lengthwise.conformance.answers import Answer, Question, Verdict
from lengthwise.conformance.cases import EncodingCase, differentiable_backends
from lengthwise.encodings import PositionEncoding

QUESTIONS: tuple[Question, ...] = (
    vectors.equals_vectors,
    agreement.agrees,
    decoding.decoding,
    documents.packs,
    documents.pads,
    documents.keeps_no_history,
    causality.no_future,
    causality.shifts,
    settings.settings_matter,
    settings.instances_are_independent,
    settings.no_other_positions,
    lengths.lengths,
    lengths.precision,
    parameters.gradients,
    parameters.saving,
    configuration.config,
)


@dataclass(frozen=True)
class Row:
    """One answer. `backend` is an empty string if the question does not depend on one."""

    encoding: str
    backend: str
    question: str
    answer: Answer


def ask(make: type[PositionEncoding], question: Question) -> list[Row]:
    """Return the answers to one question for one encoding, on each of the question's backends."""
    case = EncodingCase.of(make)
    return [Row(make.__name__, b, question.name, question(case, b)) for b in backends_of(question)]


def backends_of(question: Question) -> list[str]:
    """Return the backends that a question is asked on: only an empty string if it does not depend on the backend."""
    if not question.on_backend:
        return [""]
    return list(BACKENDS) if question is agreement.agrees else differentiable_backends()


__all__ = ["QUESTIONS", "Answer", "EncodingCase", "Question", "Row", "Verdict", "ask", "backends_of"]
