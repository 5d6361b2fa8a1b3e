"""Calls of the methods that encodings override, with checks of what they return.

The rest of Lengthwise calls these methods only here, so an encoding of a user that returns something else gets one
message with the file, the class and the method. Sizes are checked where they are known: `AttentionModifiers.check`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import forward_ad

from lengthwise.encodings.arguments import require_input, require_tensor
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.combined import Combined
from lengthwise.forms import (
    AttentionModifiers,
    LogitTransform,
    Product,
    QueryGain,
    RelativeValues,
    Rotation,
    SinkLogit,
    Term,
    TokenRotation,
)
from lengthwise.span import Span
from lengthwise.user_classes import wrong_return
from lengthwise.values import ConfigError

_FORMS: dict[str, tuple[type, ...]] = {
    "rotation": (TokenRotation,),
    "terms": (Term,),
    "values": (RelativeValues,),
    "logit_transform": (LogitTransform,),
    "gain": (QueryGain,),
    "sink": (SinkLogit,),
    "product": (Product,),
}


def modifiers_of(encoding: PositionEncoding, span: Span) -> AttentionModifiers:
    """Return `encoding.modifiers(span)` with the name of the encoding.

    Raise `ConfigError` if it is no such object, or if the encoding does not read positions with the axes of the span.
    """
    if span.num_axes > 1:
        encoding.require_axes(span.num_axes)
    try:
        modifiers: Any = encoding.modifiers(span)
    except RuntimeError as error:
        if not is_transformed():
            raise
        raise ConfigError(
            f"{type(encoding).__name__} cannot be computed inside a transform of torch.func "
            f"({str(error).splitlines()[0]}); use "
            "torch.autograd instead, or an encoding without gradients of its own, such as RoPE or ALiBi"
        ) from error
    if not isinstance(modifiers, AttentionModifiers):
        raise wrong_return(encoding, "modifiers", "AttentionModifiers", modifiers)
    for name, forms in _FORMS.items():
        value = getattr(modifiers, name)
        if name in ("terms", "values"):
            _require_forms(encoding, "modifiers", f"AttentionModifiers with a tuple of forms as {name}", value, forms)
        elif value is not None:
            _require_forms(encoding, "modifiers", f"AttentionModifiers with a form or None as {name}", (value,), forms)
    return replace(modifiers, encoding=encoding.title)


def is_transformed() -> bool:
    """Whether the call is inside a transform of torch.func or of forward-mode differentiation."""
    if torch.compiler.is_compiling():
        return False
    # PyTorch has no public function for this.
    return torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0


def features_of(encoding: PositionEncoding, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
    """Return `encoding.features(x)`.

    Raise `ConfigError` unless x has the width of the encoding, and the result is a tensor of real numbers for each
    token.
    """
    base = encoding.all_parts[0] if isinstance(encoding, Combined) else encoding
    if "d_model" in base.init_arguments:
        require_input(base.title, x, base.init_arguments["d_model"])
    features = encoding.features(x)
    require_tensor(encoding, "features", features, batch=x.shape[0], tokens=x.shape[1], features=None)
    return features


def content_of(
    encoding: PositionEncoding, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
) -> tuple[Term | Rotation | Product, ...]:
    """Return `encoding.content(...)`. Raise `ConfigError` unless it is a tuple of forms."""
    forms = encoding.content(features, span, documents)
    _require_forms(encoding, "content", "a tuple of forms", forms, (*_FORMS["terms"], Rotation, *_FORMS["product"]))
    return forms


def embedded(
    encoding: PositionEncoding, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]
) -> Float[Tensor, "b t c"]:
    """Return `encoding.embed(x, positions)`. Raise `ConfigError` unless it is a tensor like `x`."""
    result = encoding.embed(x, positions)
    require_tensor(encoding, "embed", result, batch=x.shape[0], tokens=x.shape[1], d_model=x.shape[2])
    return result


def effective_length_of(encoding: PositionEncoding, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """Return `encoding.effective_length(length)`. Raise `ConfigError` unless it is integers of the same shape."""
    result: Any = encoding.effective_length(length)
    is_integer = isinstance(result, Tensor) and result.dtype in (torch.int64, torch.int32)
    if not is_integer or result.shape != length.shape:
        expected = f"an integer tensor of the shape of length, {list(length.shape)}"
        raise wrong_return(encoding, "effective_length", expected, result)
    return result


def tracked_of(encoding: PositionEncoding) -> dict[str, Float[Tensor, "..."]]:
    """Return `encoding.tracked()`, without gradients. Raise `ConfigError` unless it has real tensors of 0 to 2 axes."""
    with torch.no_grad():
        tracked: Any = encoding.tracked()
        for value in tracked.values() if isinstance(tracked, Mapping) else (tracked,):
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim > 2 or not value.numel():
                expected = "a dictionary of floating-point tensors: scalars, [heads] or [heads, entries]"
                raise wrong_return(encoding, "tracked", expected, value)
        return {name: value.detach() for name, value in tracked.items()}


def _require_forms(
    encoding: PositionEncoding, method: str, expected: str, value: object, forms: tuple[type, ...]
) -> None:
    wrong = [x for x in value if not isinstance(x, forms)] if isinstance(value, tuple) else [value]
    if wrong:
        names = ", ".join(form.__name__ for form in forms)
        raise wrong_return(encoding, method, f"{expected} ({names})", wrong[0])
