"""Methods: the model as it is, or with one of our encodings in place of its own."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from lengthwise.config import Choice, ConfigError, alternate
from lengthwise.config.layers import split_layers
from lengthwise.encodings import ENCODINGS, NoPE
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, unuse, use
from lengthwise.huggingface.replacement import encoding_of, layout_of, own_encoding, without_encoding
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
        return own_encoding(model.config, layout_of(model))
    except ConfigError:
        return None


def choice_for(model: Any, method: str) -> Choice:
    """Return the encoding of a method for a model, see `choice_of`."""
    return choice_of(method, own_choice(model), int(model.config.get_text_config().num_hidden_layers))


def choice_of(method: str, own: Choice | None, layers: int | None = None) -> Choice:
    """Return the encoding of a method.

    A rotation has the base, fraction and layout of the model's own in the same layer, unless the method sets them. `layers`: how
    many the model has.

    >>> from lengthwise.config import choose
    >>> from lengthwise.encodings import RoPE
    >>> choice_of("pi:factor=4", choose(RoPE, base=500000.0, layout="half")).label
    'PI(base=500000.0, layout=half, factor=4.0)'
    """
    choice = ENCODINGS.parse(method)
    if own is None:
        return choice
    texts = layer_texts(method)
    period = math.lcm(len(texts), len(own.layers))
    if layers is not None:
        choice.require_layers(layers)
        period = min(period, layers)
    pairs = [(texts[n % len(texts)], own.layers[n % len(own.layers)]) for n in range(period)]
    if all(layer.cls is NoPE for _, layer in pairs) and any(_rotates(ENCODINGS.parse(text)) for text, _ in pairs):
        raise ConfigError(
            f"the model has no positions in any layer, so {method} would change nothing; name another method, such as alibi"
        )
    return alternate(*(_inherit(ENCODINGS.parse(text), layer, text) for text, layer in pairs))


def layer_texts(method: str) -> list[str]:
    """Return the text of each layer of a pattern.

    >>> layer_texts("rope:base=1e+6*2+nope")
    ['rope:base=1e+6', 'rope:base=1e+6', 'nope']
    """
    texts: list[str] = []
    for part in split_layers(method):
        repeated = re.fullmatch(r"(.*[^*])\*(\d+)", part)
        texts += [repeated[1]] * int(repeated[2]) if repeated else [part]
    return texts


def _rotates(choice: Choice) -> bool:
    return "base" in dict(choice.settings)


def _inherit(choice: Choice, own: Choice, method: str) -> Choice:
    settings, found = dict(choice.settings), dict(own.settings)
    if _rotates(choice) and own.cls is NoPE:
        return own  # a layer without positions stays one
    for name in INHERITED:
        if name in settings and name in found and not re.search(rf"[:,(]\s*{name}\s*=", method):
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
    elif isinstance(model, LengthwiseForCausalLM):
        yield _rebuilt(model, choice_for(model, method))
    else:
        choice = choice_for(model, method)
        with without_encoding(model):
            use(model, choice)
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
