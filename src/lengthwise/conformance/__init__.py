"""The conformance suite: the same questions to every encoding on every backend.

`lengthwise check` prints the answers. Encodings and backends come from their lists; adding one needs nothing here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lengthwise.attention import BACKENDS
from lengthwise.conformance import (
    agreement,
    causality,
    decoding,
    describing,
    documents,
    lengths,
    parameters,
    settings,
    vectors,
)
from lengthwise.conformance.answers import Answer, Question, Verdict
from lengthwise.conformance.cases import EncodingCase, asked_backends
from lengthwise.encodings import ENCODINGS, PositionEncoding

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
    settings.instances_are_apart,
    settings.nothing_else_is_on,
    lengths.lengths,
    lengths.precision,
    parameters.gradients,
    parameters.saving,
    describing.describes,
)


@dataclass(frozen=True)
class Row:
    """One answer. `backend` is an empty string where the question does not depend on one."""

    encoding: str
    backend: str
    question: Question
    answer: Answer


def check(
    encodings: Iterable[type[PositionEncoding]] | None = None, on_answer: Callable[[Row], None] | None = None
) -> list[Row]:
    """Every question to every encoding (all that are listed, when not given) on every backend, in this process."""
    rows: list[Row] = []
    for make in ENCODINGS if encodings is None else encodings:
        for question in QUESTIONS:
            for row in ask(make, question):
                rows.append(row)
                if on_answer:
                    on_answer(row)
    return rows


def ask(make: type[PositionEncoding], question: Question) -> list[Row]:
    """One question to one encoding, on every backend where that matters."""
    case = EncodingCase.of(make)
    return [Row(make.__name__, b, question, question(case, b)) for b in asked_on(question)]


def asked_on(question: Question) -> list[str]:
    """The backends that a question is asked on; an empty string alone where it does not depend on one."""
    if not question.on_backend:
        return [""]
    return list(BACKENDS) if question is agreement.agrees else asked_backends()


def main(json: bool = False, encodings: Iterable[str] = ()) -> int:
    """Ask everything (all encodings that are listed, or those named), on all cores.

    Prints the table, or one JSON object; returns 0, or 1 when any answer is a failure."""
    from lengthwise.conformance import table

    names = [ENCODINGS.find(name).__name__ for name in encodings] or ENCODINGS.names()
    return table.show(names, json=json)


__all__ = ["QUESTIONS", "Answer", "EncodingCase", "Question", "Row", "Verdict", "ask", "asked_on", "check", "main"]
