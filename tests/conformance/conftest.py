"""Which forms each backend has promised to serve. Another refusal is a broken promise, whatever its words."""

from collections.abc import Callable
from typing import Any

import pytest

from lengthwise import native
from lengthwise.attention import gradients_unsupported_reason
from lengthwise.conformance import EncodingCase
from lengthwise.conformance.cases import HEAD_DIM, HEADS, modifiers_with, numbers
from lengthwise.forms import (
    ContentBias,
    CumulativeBias,
    DecayProduct,
    DenseBias,
    GatedDistanceBias,
    HouseholderProduct,
    KeyBias,
    LogitTransform,
    MatrixRotation,
    PiecewiseLinearBias,
    PiecewiseRotation,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    ToeplitzBias,
)
from lengthwise.span import Span

ALL = {
    Rotation, MatrixRotation, QueryGain, ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, ContentBias, KeyBias, CumulativeBias,
    DenseBias, RelativeValues, LogitTransform, PiecewiseRotation, HouseholderProduct, DecayProduct, GatedDistanceBias
}  # fmt: skip
NEEDS_ROWS = {RelativeValues, LogitTransform, PiecewiseRotation, HouseholderProduct, DecayProduct}
SERVED: dict[str, set[type]] = {
    "fused": ALL - {DenseBias, GatedDistanceBias} - (NEEDS_ROWS - {RelativeValues}),
    "blocked": ALL,
    "sdpa": ALL - NEEDS_ROWS,
    "reference": ALL,
    "flex": ALL - NEEDS_ROWS - {GatedDistanceBias},
}


@pytest.fixture(scope="session")
def refused_form() -> Callable[[Any, str], str | None]:
    return _refused_form


def _refused_form(make: Any, backend: str) -> str | None:
    """The name of a form that the encoding has and the backend may refuse; of a backend that has no gradients here, what it
    says of them; None: it has to serve."""
    modifiers = modifiers_with(EncodingCase.of(make).build(), Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM))
    forms = [
        modifiers.logit_transform,
        modifiers.product,
        *modifiers.values,
        *modifiers.terms,
        modifiers.rotation,
        modifiers.gain,
    ]
    if backend == "fused" and native.unsupported_reason():
        return ""
    names = (type(f).__name__ for f in forms if f is not None and type(f) not in SERVED[backend])
    return next(names, gradients_unsupported_reason(backend, "cpu"))
