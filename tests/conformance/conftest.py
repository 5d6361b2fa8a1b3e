"""Which forms each backend has promised to serve. Another refusal is a broken promise, whatever its words."""

from collections.abc import Callable
from typing import Any

import pytest

from lengthwise import forms, native
from lengthwise.attention import gradients_unsupported_reason
from lengthwise.conformance import EncodingCase
from lengthwise.conformance.cases import HEAD_DIM, HEADS, modifiers_with, numbers
from lengthwise.forms import Form, LogitTransform, Product, RelativeValues, Term
from lengthwise.span import Span

ALL = {cls for cls in vars(forms).values() if isinstance(cls, type) and issubclass(cls, Form)}
TERMS = {cls for cls in ALL if issubclass(cls, Term)}
NEEDS_ROWS = {cls for cls in ALL if issubclass(cls, RelativeValues | LogitTransform | Product)}
SERVED: dict[str, set[type]] = {
    "fused": ALL - {cls for cls in TERMS if cls.kernel is None} - (NEEDS_ROWS - {RelativeValues}),
    "blocked": ALL,
    "sdpa": ALL - NEEDS_ROWS,
    "reference": ALL,
    "flex": ALL - NEEDS_ROWS - {cls for cls in TERMS if cls.reads_q and cls.reads_k},
}


@pytest.fixture(scope="session")
def refused_form() -> Callable[[Any, str], str | None]:
    return _refused_form


def _refused_form(make: Any, backend: str) -> str | None:
    """A form that the encoding has and the backend may refuse, or why it has no gradients; None: it has to serve."""
    modifiers = modifiers_with(EncodingCase.of(make).build(), Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM))
    m = modifiers
    asked = [m.logit_transform, m.product, *m.values, *m.terms, m.rotation, m.gain]
    if backend == "fused" and native.unsupported_reason():
        return ""
    names = (type(f).__name__ for f in asked if f is not None and type(f) not in SERVED[backend])
    return next(names, gradients_unsupported_reason(backend, "cpu"))
