"""The same questions to every encoding that is listed, on every backend."""

from typing import Any

import pytest

from lengthwise.conformance import QUESTIONS, Answer, EncodingCase, Verdict, backends_of
from lengthwise.conformance.cases import differentiable_backends
from lengthwise.encodings import ENCODINGS
from tests.other_numbers import OTHER_NUMBERS


def case(make: Any, question: Any, backend: str, *marks: Any) -> Any:
    return pytest.param(
        make, question, backend, id=f"{make.__name__}-{question.name}{'-' * bool(backend)}{backend}", marks=marks
    )


ASKED = [
    case(make, question, backend) for make in ENCODINGS for question in QUESTIONS for backend in backends_of(question)
]
# Each question about each encoding is quick on one backend that serves the encoding, in turn, so that every question
# meets every backend. `decoding` takes seconds, so it is among the slow tests below (the quick tests decode all in
# models/test_layer_settings.py).
QUICK = [
    case(make, question, str(m + n) if question.on_backend else "")
    for m, make in enumerate(ENCODINGS)
    for n, question in enumerate(QUESTIONS)
    if question.name != "decoding"
]
# `agrees` compares all backends but FlexAttention, which takes half a second for every kind of effect. Encodings that
# return the same forms as others, with other numbers, are asked in the slow tests.
MEDIUM = [
    case(make, question, backend, pytest.mark.medium)
    for make in ENCODINGS
    for question in QUESTIONS
    if question.name == "agrees" and make.__name__ not in OTHER_NUMBERS
    for backend in differentiable_backends()
]

# What a question itself may refuse, and the words that have to be said; what a backend may, is in conftest.py.
REFUSED = {("Learned", "lengths"): "max_length", ("XPos", "lengths"): "max_length"}

# Encodings without what a question asks about, by default: parameters and settings.
WITHOUT = {
    "gradients": (
        "NoPE", "Sinusoidal", "RoPE", "PI", "NTKAware", "DynamicNTK", "PRoPE", "XPos", "LogN", "NTKByParts", "YaRN",
        "DynamicYaRN", "Llama3", "LongRoPE", "ALiBi", "Sandwich", "Llama4", "Ministral", "Beam", "Inkling",
        "SelfExtend", "ReRoPE", "DCA", "STRING", "StickBreaking", "AxialRoPE", "MRoPE",
    ),
    "settings": ("NoPE", "KerpleLog", "KerplePower", "FoX", "LogN", "MistralLarge4", "Sinks"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "question", "backend"), [*QUICK, *MEDIUM])
def test_question(make: Any, question: Any, backend: str, refused_form: Any) -> None:
    """Of every encoding by default. On every backend, with every setting changed: below, and `lengthwise check`."""
    if backend.isdecimal():
        served = [name for name in differentiable_backends() if refused_form(make, name) is None]
        backend = served[int(backend) % len(served)]
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
