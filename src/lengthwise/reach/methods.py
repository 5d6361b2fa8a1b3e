"""Methods: the model as it is, or with one of our encodings in place of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lengthwise.config import Choice, ConfigError
from lengthwise.encodings import ENCODINGS
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, unuse, use
from lengthwise.huggingface.own_encoding import own_encoding
from lengthwise.huggingface.own_settings import with_own_settings
from lengthwise.huggingface.replacement import encoding_of, without_encoding
from lengthwise.huggingface.saved import saved_choice
from lengthwise.measurements.reach import OWN
from lengthwise.reach.grouped import without_copies


def own_choice(model: Any) -> Choice | None:
    """Return the encoding that a model was trained with; None if it is none of ours."""
    if isinstance(model, LengthwiseForCausalLM):
        return None if model.config.encoding is None else saved_choice(model.config.encoding)
    if (replaced := encoding_of(model)) is not None:
        return replaced
    try:
        return own_encoding(model)
    except ConfigError:
        return None


def choice_for(model: Any, method: str) -> Choice:
    """Return the encoding of a method for a model, see `choice_of`."""
    return choice_of(method, own_choice(model), int(model.config.get_text_config().num_hidden_layers))


def choice_of(method: str, model_choice: Choice | None, layers: int | None = None) -> Choice:
    """Return the encoding of a method, with the settings of the model's own encoding that the method does not name.

    `layers`: how many the model has.

    >>> from lengthwise.config import choose
    >>> from lengthwise.encodings import RoPE
    >>> choice_of("pi:factor=4", choose(RoPE, base=500000.0, layout="half")).label
    'PI(base=500000.0, layout=half, factor=4.0)'
    """
    return with_own_settings(ENCODINGS.parse(method), model_choice, layers)


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
            f"{choice.label} has other parameters than the model's own encoding, so the weights do not fit; name a "
            "method without parameters"
        )
    other = LengthwiseForCausalLM(LengthwiseConfig(**settings))
    other.load_state_dict(state, assign=True)
    return other.eval()
