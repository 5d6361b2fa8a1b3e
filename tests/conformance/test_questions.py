"""The same questions to every encoding that is listed, on every backend."""

from typing import Any

import pytest

from lengthwise.conformance import QUESTIONS, Answer, EncodingCase, Verdict, backends_of
from lengthwise.conformance.cases import differentiable_backends
from lengthwise.encodings import ENCODINGS

ASKED = [
    pytest.param(make, question, backend, id=f"{make.__name__}-{question.name}{'-' * bool(backend)}{backend}")
    for make in ENCODINGS
    for question in QUESTIONS
    for backend in backends_of(question)
]
# FlexAttention takes half a second for every kind of effect: the quick tests ask it what is in attention/backends/test_flex.py.
QUICK = [asked for asked in ASKED if asked.values[2] in ("", *differentiable_backends())]

# What a question itself may refuse, and the words that have to be said; what a backend may, is in conftest.py.
REFUSED = {("Learned", "lengths"): "max_length", ("XPos", "lengths"): "max_length"}

# Encodings without what a question asks about, by default: parameters and settings.
WITHOUT = {
    "gradients": (
        "NoPE", "Sinusoidal", "RoPE", "PI", "NTKAware", "DynamicNTK", "PRoPE", "XPos", "LogN", "NTKByParts", "YaRN",
        "DynamicYaRN", "Llama3", "LongRoPE", "ALiBi", "Sandwich",
    ),
    "settings": ("NoPE", "KerpleLog", "KerplePower", "FoX"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "question", "backend"), QUICK)
def test_question(make: Any, question: Any, backend: str, refused_form: Any) -> None:
    """Of every encoding as it is by default. With every setting changed too: below, and `lengthwise check`."""
    require(refused_form, make, question, backend, question(EncodingCase.of(make), backend, variants=False))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "question", "backend"), ASKED)
def test_question_with_every_setting(make: Any, question: Any, backend: str, refused_form: Any) -> None:
    require(refused_form, make, question, backend, question(EncodingCase.of(make), backend))


def require(refused_form: Any, make: Any, question: Any, backend: str, answer: Answer) -> None:
    assert answer.verdict is not Verdict.FAILED, answer.detail
    words = REFUSED.get((make.__name__, question.name))
    if backend and words is None:
        words = refused_form(make, backend)
    assert (answer.verdict is Verdict.REFUSED) == (words is not None), answer.detail
    assert (words or "") in answer.detail
    if answer.verdict is not Verdict.REFUSED:
        has_what_is_asked_about = make.__name__ not in WITHOUT.get(question.name, ())
        assert (answer.verdict is Verdict.NOT_APPLICABLE) == (not has_what_is_asked_about), answer.detail
