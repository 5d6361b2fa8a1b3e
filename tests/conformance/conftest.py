"""Which forms each backend has promised to serve. Another refusal is a broken promise, whatever its words."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest

from lengthwise import native
from lengthwise.attention import no_gradients
from lengthwise.conformance import EncodingCase
from lengthwise.conformance.cases import HEAD_DIM, HEADS, modifiers_with, numbers
from lengthwise.forms import (
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    LogitTransform,
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
    Rotation, QueryGain, ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, ContentBias, KeyBias, CumulativeBias, DenseBias,
    RelativeValues, LogitTransform, PiecewiseRotation
}  # fmt: skip
SERVED: dict[str, set[type]] = {
    "fused": ALL - {DenseBias, LogitTransform, PiecewiseRotation},
    "blocked": ALL,
    "sdpa": ALL - {RelativeValues, LogitTransform, PiecewiseRotation},
    "reference": ALL,
    "flex": ALL - {RelativeValues, LogitTransform, PiecewiseRotation},
}


@pytest.fixture(autouse=True)
def type_checks_of_some_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check types at run time only in one of four tests, because the checks take longer than the tests themselves.

    All encodings share the functions that are checked, and every question is asked with the checks about several encodings.
    """
    jaxtyping.config.update("jaxtyping_disable", zlib.crc32(request.node.nodeid.encode()) % 4 != 0)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def refused_form() -> Callable[[Any, str], str | None]:
    return _refused_form


def _refused_form(make: Any, backend: str) -> str | None:
    """The name of a form that the encoding has and the backend may refuse; of a backend that has no gradients here, what it
    says of them; None: it has to serve."""
    modifiers = modifiers_with(EncodingCase.of(make).build(), Span.of(2), numbers(6, 1, 2, HEADS * HEAD_DIM))
    forms = [
        modifiers.logit_transform,
        *modifiers.values,
        *modifiers.terms,
        modifiers.rotation,
        modifiers.gain,
        modifiers.product,
    ]
    if backend == "fused" and native.missing():
        return ""
    names = (type(f).__name__ for f in forms if f is not None and type(f) not in SERVED[backend])
    return next(names, no_gradients(backend, "cpu"))
