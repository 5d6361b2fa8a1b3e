"""The same questions to every encoding that is listed, on every backend."""

from typing import Any

import pytest

from lengthwise.attention import BACKENDS
from lengthwise.conformance import QUESTIONS, EncodingCase, Verdict
from lengthwise.encodings import ENCODINGS

ASKED = [
    pytest.param(make, question, backend, id=f"{make.__name__}-{question.name}{'-' * bool(backend)}{backend}")
    for make in ENCODINGS
    for question in QUESTIONS
    for backend in (BACKENDS if question.on_backend else [""])
]

# What may be refused, and where the words have to be. Anything else that is refused was a promise before.
REFUSED = {("Learned", "lengths"): "max_length"}


@pytest.mark.parametrize(("make", "question", "backend"), ASKED)
def test_question(make: Any, question: Any, backend: str) -> None:
    answer = question(EncodingCase.of(make), backend)
    assert answer.verdict is not Verdict.FAILED, answer.detail
    words = REFUSED.get((make.__name__, question.name))
    assert (answer.verdict is Verdict.REFUSED) == (words is not None), answer.detail
    assert (words or "") in answer.detail
    if answer.verdict is Verdict.NOT_APPLICABLE:
        assert answer.detail
