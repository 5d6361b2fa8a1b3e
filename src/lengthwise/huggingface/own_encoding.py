"""The encoding that a model of transformers has: settings that agree with the observed rotation of each layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from lengthwise.config import Choice, ConfigError, alternate, choose
from lengthwise.encodings import NoPE
from lengthwise.encodings.contract import modifiers_of
from lengthwise.huggingface.observation import ObservedLayer, observe
from lengthwise.huggingface.own_attention import alibi_of
from lengthwise.models.conversion import encoding_from_rope_parameters, trained_length
from lengthwise.models.conversion.weights import Layout
from lengthwise.span import Span

LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")
TOLERANCE = 1e-3  # of the largest number of a query or key, for rotations in float32 by up to 1,024 radians


def own_encoding(model: Any) -> Choice:
    """Return the encoding of a model of transformers: a pattern over its attention layers.

    Which layers rotate, and how, is observed (see `observation`). Raises `ConfigError` if there is no encoding in the
    model's configuration, if the observed rotation is not that of its settings, and if the model cannot be observed.
    """
    config = model.config.get_text_config()
    if (alibi := alibi_of(config)) is not None:
        return alibi
    if not getattr(config, "rope_parameters", None):
        raise ConfigError(
            f"the configuration of a {config.model_type} has neither rope_parameters nor ALiBi; name an encoding"
        )
    observation = observe(model)
    if observation.reason or not (layers := observation.layers):
        reason = observation.reason or "its layers do not call transformers' attention interface"
        raise ConfigError(
            f"the rotation of a {config.model_type} cannot be observed in a forward pass without weights ({reason}); "
            "name an encoding"
        )
    choices = []
    settings = Settings(config)
    for index in sorted(layers):
        encoding = settings.encoding_of(index, layers[index])
        if encoding.first_dim or layers[index].head_dim != head_dim_of(config):
            raise ConfigError(
                f"{layers[index].name} of layer {index} has heads of {layers[index].head_dim} dimensions and rotates "
                f"them from number {encoding.first_dim} on, while head_dim is {head_dim_of(config)}, which lengthwise "
                "does not support"
            )
        choices.append(encoding.choice)
    return pattern(choices)


def layout_of(model: Any) -> Layout:
    """Return which dimensions the layers of a model rotate together; "half" if none is rotated."""
    layouts = [dict(choice.settings).get("layout") for choice in own_encoding(model).layers]
    return next((layout for layout in layouts if layout is not None), "half")


class UnknownRotation(ConfigError):
    """The observed rotation of a layer is not that of any setting."""


@dataclass(frozen=True)
class LayerEncoding:
    """The encoding of one layer. `first_dim`: of its heads, from which on they are rotated."""

    choice: Choice
    first_dim: int = 0


class Settings:
    """The rotations that a configuration describes.

    A layer may have a theta of its own that stands elsewhere in the configuration, as in `layer_rope_theta`.
    """

    def __init__(self, config: Any):
        self.config = config
        self.train_length = train_length_of(config)
        self.choices = cache(self._choices)

    def encoding_of(self, index: int, layer: ObservedLayer) -> LayerEncoding:
        """Return the encoding whose settings give a layer's observed rotation. Raise `ConfigError` if there is none."""
        if _changes(layer.plain_q) or _changes(layer.plain_k):
            raise UnknownRotation(
                f"{layer.name} has positions that no rotary embedding computes, which lengthwise does not know"
            )
        if not layer.rotates:
            return LayerEncoding(choose(NoPE))
        entry = self.entry_of(index)
        rope_dims = getattr(
            self.config, "qk_rope_head_dim", None
        )  # as in DeepSeek's attention, which rotates only these
        # They come first, because lists of factors may have its length only.
        head_dims = dict.fromkeys(size for size in (rope_dims, layer.head_dim) if size)
        for has_other_theta in (False, True):
            for head_dim in head_dims:
                for choice in self.choices(entry, head_dim, has_other_theta):
                    for first_dim in dict.fromkeys((0, layer.head_dim - head_dim)):
                        if self._agrees(choice, head_dim, first_dim, layer):
                            return LayerEncoding(choice, first_dim)
        raise UnknownRotation(
            f"{layer.name} rotates in a way that lengthwise does not have, or its angles are not those of "
            f"{'rope_parameters' if not entry else f'rope_parameters.{entry}'}, so lengthwise cannot compute this "
            "encoding"
        )

    def described(self, index: int, head_dim: int) -> Choice:
        """Return the encoding of a layer by its settings alone."""
        entry = self.entry_of(index)
        is_nested = any(isinstance(value, Mapping) for value in self.config.rope_parameters.values())
        return choose(NoPE) if is_nested and not entry else self.choices(entry, head_dim, False)[0]

    def entry_of(self, index: int) -> str:
        """Return the key of a layer's settings in nested `rope_parameters`, "" if all layers have the same."""
        kinds = getattr(self.config, "layer_types", None) or ()
        kind = kinds[index] if index < len(kinds) else ""
        return kind if isinstance(self.config.rope_parameters.get(kind), Mapping) else ""

    def _choices(self, entry: str, head_dim: int, has_other_theta: bool) -> list[Choice]:
        parameters = self.config.rope_parameters[entry] if entry else self.config.rope_parameters
        thetas = _numbers(self.config.to_dict()) if has_other_theta else [None]
        variants = [parameters if theta is None else {**parameters, "rope_theta": theta} for theta in thetas]
        return [
            encoding_from_rope_parameters(
                variant,
                head_dim=head_dim,
                # RecurrentGemma has none
                max_position_embeddings=getattr(self.config, "max_position_embeddings", None),
                layout=layout,
            )
            for variant in variants
            for layout in LAYOUTS
        ]

    def _agrees(self, choice: Choice, head_dim: int, first_dim: int, layer: ObservedLayer) -> bool:
        rotated = slice(first_dim, first_dim + head_dim)
        rotation = self._rotation(choice, head_dim, layer.positions)
        for plain, observed, rotate in (
            (layer.plain_q, layer.q, rotation.rotate_query),
            (layer.plain_k, layer.k, rotation.rotate_key),
        ):
            ours = plain.clone()
            ours[..., rotated] = rotate(plain[..., rotated])
            if not (ours - observed).abs().max() <= TOLERANCE * observed.abs().max():
                return False
        return True

    def _rotation(self, choice: Choice, head_dim: int, positions: Tensor) -> Any:
        encoding = choice.build(head_dim=head_dim, train_length=self.train_length)
        return modifiers_of(encoding, Span(positions[None], positions[None], int(positions[-1]) + 1)).rotation


def _changes(plain: Tensor) -> bool:
    """Whether queries or keys without RoPE change with the position by more than a factor, such as a temperature."""
    directions = plain / plain.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return bool((directions - directions[:, :, :1]).abs().max() > TOLERANCE)


def _numbers(value: Any) -> list[float]:
    """Return the different numbers above 1 in a configuration, which may be thetas."""
    if isinstance(value, Mapping | list | tuple):
        values = value.values() if isinstance(value, Mapping) else value
        return list(dict.fromkeys(number for inner in values for number in _numbers(inner)))
    return [float(value)] if isinstance(value, int | float) and value > 1 else []


def pattern(choices: list[Choice]) -> Choice:
    return choices[0] if len(set(choices)) == 1 else alternate(*choices)


def head_dim_of(config: Any) -> int:
    """Return the dimensions of a head. Raise `ConfigError` if they differ between layers, as in Gemma 4."""
    try:
        return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    except RuntimeError as error:
        raise ConfigError(
            f"the layers of a {config.model_type} have heads of different sizes, which lengthwise does not support"
        ) from error


def train_length_of(config: Any) -> int:
    """Return the length at which the model was trained before its positions were scaled.

    With linear scaling and another theta, transformers has no setting for it. Folders of `lengthwise extend` have it
    outside of rope_parameters, where Phi-3 has it too.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [entry for entry in parameters.values() if isinstance(entry, Mapping)]
    names = ("max_position_embeddings", "max_seq_len", "n_positions", "seq_length")
    longest = next((int(length) for name in names if (length := getattr(config, name, None))), 2048)
    original = getattr(config, "original_max_position_embeddings", None)
    if original and all(entry.get("rope_type", "default") in ("default", "linear") for entry in nested or [parameters]):
        return min(longest, int(original))
    return min(trained_length(entry, longest) for entry in nested or [parameters])
