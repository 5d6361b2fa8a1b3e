"""Methods: the model as it is, or with one of our encodings in place of its own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from lengthwise.config import Choice, ConfigError, alternate
from lengthwise.encodings import ENCODINGS
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, unuse, use
from lengthwise.huggingface.replacement import encoding_of, own_encoding
from lengthwise.huggingface.saved import saved_choice
from lengthwise.reach.grouped import without_copies
from lengthwise.reach.plan import OWN

INHERITED = ("base", "rotary_fraction", "layout")  # settings of rotations that belong to the weights


def own_choice(model: Any) -> Choice | None:
    """Return the encoding that a model was trained with; None if it is none of ours."""
    if isinstance(model, LengthwiseForCausalLM):
        return None if model.config.encoding is None else saved_choice(model.config.encoding)
    if (replaced := encoding_of(model)) is not None:
        return replaced
    try:
        return own_encoding(model.config)
    except ConfigError:
        return None


def choice_of(method: str, own: Choice | None) -> Choice:
    """Return the encoding of a method.

    A rotation has the base, fraction and layout of the model's own, unless the method sets them.

    >>> from lengthwise.config import choose
    >>> from lengthwise.encodings import RoPE
    >>> choice_of("pi:factor=4", choose(RoPE, base=500000.0, layout="half")).label
    'PI(base=500000.0, layout=half, factor=4.0)'
    """
    choice = ENCODINGS.parse(method)
    if own is None or choice.remaining_layers:
        return choice
    return alternate(*(_inherit(choice, layer, method) for layer in own.layers))


def _inherit(choice: Choice, own: Choice, method: str) -> Choice:
    settings, found = dict(choice.settings), dict(own.settings)
    if "base" in settings and not found:
        return own  # a layer without positions stays one
    for name in INHERITED:
        if name in settings and name in found and not re.search(rf"[:,]\s*{name}\s*=", method):
            settings[name] = found[name]
    return replace(choice, settings=tuple(settings.items()))


@contextmanager
def applied(model: Any, method: str, seed: int = 0) -> Iterator[Any]:
    """Yield the model with the encoding of a method. Raises `ConfigError` if it cannot have it.

    `seed`: of the parameters of an encoding that has some; they are random, because nothing is trained.
    """
    torch.manual_seed(seed)
    if method == OWN and isinstance(model, LengthwiseForCausalLM):
        yield model
    elif method == OWN:
        with without_copies(model):
            yield model
    elif encoding_of(model) is not None:
        raise ConfigError(
            "the model has an encoding of lengthwise already, so it can only be measured as it is; omit --methods"
        )
    elif isinstance(model, LengthwiseForCausalLM):
        yield _rebuilt(model, choice_of(method, own_choice(model)))
    else:
        use(model, choice_of(method, own_choice(model)))
        try:
            yield model
        finally:
            unuse(model)


def _rebuilt(model: LengthwiseForCausalLM, choice: Choice) -> LengthwiseForCausalLM:
    """Return one of our models with another encoding and the same weights, which both share."""
    settings: dict[str, Any] = {**model.config.to_dict(), "encoding": choice.to_data()}
    state = model.state_dict()
    with torch.device("meta"):
        other = LengthwiseForCausalLM(LengthwiseConfig(**settings))
    if set(other.state_dict()) != set(state):
        raise ConfigError(
            f"{choice.label} has other parameters than the model's own encoding, so the weights do not fit; name a method without "
            "parameters"
        )
    other = LengthwiseForCausalLM(LengthwiseConfig(**settings))
    other.load_state_dict(state, assign=True)
    return other.eval()
