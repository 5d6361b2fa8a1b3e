"""`use` and `unuse`: put an encoding into a model of transformers in place of its own, and restore the model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import Any, cast

from torch import Tensor, nn

from lengthwise.attention import EncodingCache
from lengthwise.config import Choice, ConfigError
from lengthwise.config.choices import require_choice
from lengthwise.encodings import ENCODINGS
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.combined import Combinations, layer_modules
from lengthwise.huggingface.attention import NAME
from lengthwise.huggingface.embedded_positions import add_positions, current_module
from lengthwise.huggingface.feature_cache import read_input
from lengthwise.huggingface.model_rotation import ModelRotation, NoRotation, RotationOfFewTokens, can_rotate
from lengthwise.huggingface.observation import decoder_of
from lengthwise.huggingface.outdated_cache import can_be_outdated, prepare_inputs, require_current_cache
from lengthwise.huggingface.own_attention import FORWARDS
from lengthwise.huggingface.own_encoding import head_dim_of, own_encoding, train_length_of
from lengthwise.huggingface.own_settings import is_complete, require_written, with_own_settings
from lengthwise.huggingface.rotated_keys import caches_rotated_keys, let_the_cache_rotate
from lengthwise.huggingface.saved import ReplacedConfig, write_module
from lengthwise.transformers_versions import warn_of_untested_version
from lengthwise.values import shown

KINDS = ("full_attention", "sliding_attention", "linear_attention")  # of `layer_types`, with "attention" in their name


class NoPositions(nn.Module):
    """Takes the place of a learned embedding of positions. It adds 0."""

    def __init__(self, original: nn.Embedding):
        super().__init__()
        self.original = original

    def forward(self, position_ids: Tensor) -> Tensor:
        return self.original.weight.new_zeros(*position_ids.shape, self.original.embedding_dim)


@dataclass
class LayerState:
    """What an attention layer has in addition. It is no module, because the model owns the encoding.

    `modules`, `indices`: the model's encodings, and which of them the layer combines. They are looked up at each call,
    because packages such as peft replace modules of a model.
    """

    modules: nn.ModuleList
    indices: tuple[int, ...]
    combinations: Combinations  # of all layers
    forms: EncodingCache  # of all layers
    block: Any  # the block that contains the layer, which gradient checkpointing may compute twice
    window: int | None  # the size of the configuration, for layers that do not tell theirs
    model_rotation: Any = None  # `ModelRotation`, if the model's own layers rotate few tokens by our angles

    @property
    def encoding(self) -> PositionEncoding:
        if len(self.indices) == 1:
            return current_module(getattr(self.modules, str(self.indices[0])))  # faster than an index
        return self.combinations.of(self.indices, [current_module(module) for module in self.modules])

    def is_recomputed(self) -> bool:
        return bool(getattr(self.block, "gradient_checkpointing", False)) and self.block.training


@dataclass
class Replaced:
    """What `unuse` restores."""

    implementation: str
    choice: Choice
    modules: list[tuple[nn.Module, str, nn.Module]] = field(default_factory=list)  # parent, name, original
    layers: list[nn.Module] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)


def use(model: Any, encoding: Choice | str | None = None) -> Any:
    """Replace the position encoding of a model of transformers, and return the model.

    `encoding`: a choice (`choose(FIRE)`), a text (`"fire:hidden_layers=1"`) or a pattern over layers (`"rope*3+nope"`).
    None: the encoding that the model's configuration describes, computed by lengthwise. The model then attends by the
    backends of lengthwise. The encoding's parameters belong to the model, as `model.get_decoder().position_encodings`:
    they train and move with it.

    Settings of a rotation that are not written come from the model's own encoding: its base, rotated fraction and
    layout, and all settings if it has the same class (`with_own_settings`). Printing the model shows them. A layer
    without positions stays one.

    The weights stay as they are. A model that was trained with another encoding has to be trained further.
    Supported are decoders whose attention layers call transformers' attention interface and whose own encoding is RoPE
    or a learned embedding of positions (Llama, Mistral, Qwen 2 and 3, Gemma, SmolLM3, GPT-NeoX, GPT-2 and relatives),
    BLOOM and MPT.

    Raises `ConfigError` for other models, for an encoding that does not fit, and for a model that already has one of
    ours. Warns once if the installed transformers is not one of the tested versions.

    >>> model = use(model, "fire")
    """
    if isinstance(model, str | PathLike):
        raise ConfigError(
            f"use takes a loaded model, got {shown(model)}; load it with AutoModelForCausalLM.from_pretrained"
        )
    decoder = decoder_of(model)
    if hasattr(decoder, "_lengthwise_replaced"):
        raise ConfigError("the model already has an encoding of lengthwise; call unuse(model) first")
    warn_of_untested_version(stacklevel=2)
    layers = _attention_layers(decoder)
    position_modules = _position_modules(decoder)
    config = model.config
    if config.get_text_config() is not config:
        raise ConfigError(
            f"a {config.model_type} takes more than text; use its language model, which it calls a decoder"
        )
    _require_supported_masks(config)
    rotates = not all(isinstance(original, nn.Embedding) for _, _, original in position_modules)
    choice = own_encoding(model) if encoding is None else _choice(encoding, model, len(layers), rotates)
    context = {
        "num_heads": int(config.num_attention_heads),
        "head_dim": head_dim_of(config),
        "d_model": int(config.hidden_size),
        "train_length": train_length_of(config),
    }
    _require_no_window(choice)
    _require_compatible_sinks(choice, layers)
    modules, module_indices = layer_modules(choice, len(layers), None, context)
    for n, indices in enumerate(module_indices):
        modules[indices[0]].inherited = choice.layers[n % len(choice.layers)].inherited
    like = next(decoder.parameters())
    replaced = Replaced(config._attn_implementation, choice)
    _set_implementation(model, NAME)
    for parent, name, original in position_modules:
        replaced.modules.append((parent, name, original))
        setattr(parent, name, NoPositions(original) if isinstance(original, nn.Embedding) else NoRotation(original))
    decoder.position_encodings = nn.ModuleList(modules).to(like.device)
    forms, combinations = EncodingCache(), Combinations()
    if can_be_outdated([modules[indices[0]] for indices in module_indices]):
        replaced.hooks.append(layers[0].register_forward_pre_hook(require_current_cache, with_kwargs=True))
        if hasattr(model, "prepare_inputs_for_generation"):
            model.prepare_inputs_for_generation = partial(prepare_inputs, model)
    for layer, indices in zip(layers, module_indices, strict=True):
        block = next((m for m in decoder.modules() if any(child is layer for child in m.children())), None)
        window = getattr(config, "sliding_window", None)
        state = LayerState(decoder.position_encodings, indices, combinations, forms, block, window)
        cast(Any, layer)._lengthwise = state
        replaced.layers.append(layer)
        if (forward := FORWARDS.get(type(layer).__name__)) is not None:
            layer.forward = partial(forward, layer)
        if modules[indices[0]].reads_content():
            replaced.hooks.append(layer.register_forward_pre_hook(read_input, with_kwargs=True))
        if caches_rotated_keys(state.encoding, like.device):
            replaced.hooks.append(layer.register_forward_pre_hook(let_the_cache_rotate, with_kwargs=True))
    if modules[0].acts_on_embedding():
        replaced.hooks.append(decoder.register_forward_pre_hook(add_positions, with_kwargs=True))
    _let_the_model_rotate(model, decoder, replaced)
    decoder._lengthwise_replaced = replaced
    model.save_pretrained = partial(save, model)
    return model


def _let_the_model_rotate(model: Any, decoder: Any, replaced: Replaced) -> None:
    """Let the layers rotate few tokens by our angles, if they can compute it and all have the same rotation."""
    encodings = list(decoder.position_encodings)
    rotary = [entry for entry in replaced.modules if not isinstance(entry[2], nn.Embedding)]
    if len(encodings) != 1 or len(rotary) != 1:
        return
    ((parent, name, original),) = rotary
    if not can_rotate(model.config.model_type, original, encodings[0]):
        return
    states = [cast(Any, layer)._lengthwise for layer in replaced.layers]
    rotation = ModelRotation(states[0], decoder.get_input_embeddings())
    for state in states:
        state.model_rotation = rotation
    setattr(parent, name, RotationOfFewTokens(original, rotation))


def unuse(model: Any) -> Any:
    """Restore the model's own encoding exactly, without the parameters of ours, and return the model."""
    decoder = decoder_of(model)
    replaced: Replaced | None = getattr(decoder, "_lengthwise_replaced", None)
    if replaced is None:
        raise ConfigError("the model has no encoding of lengthwise; there is nothing to restore")
    for hook in replaced.hooks:
        hook.remove()
    for layer in replaced.layers:
        del cast(Any, layer)._lengthwise
        if type(layer).__name__ in FORWARDS:
            del layer.forward
    for parent, name, original in replaced.modules:
        setattr(parent, name, original)
    del decoder.position_encodings, decoder._lengthwise_replaced, model.save_pretrained
    vars(model).pop("prepare_inputs_for_generation", None)
    _set_implementation(model, replaced.implementation)
    return model


@contextmanager
def without_encoding(model: Any) -> Iterator[None]:
    """Remove the encoding of `use`, if there is one, and put it back at the end with its parameters."""
    choice = encoding_of(model)
    if choice is None:
        yield
        return
    decoder = decoder_of(model)
    trained = decoder.position_encodings
    unuse(model)
    try:
        yield
    finally:
        use(model, choice)
        ours = decoder.position_encodings
        for old, new in zip(trained.parameters(), ours.parameters(), strict=True):
            new.data = old.data
        for old, new in zip(trained.buffers(), ours.buffers(), strict=True):
            new.data = old.data


def save(model: Any, save_directory: Any, *arguments: Any, **options: Any) -> None:
    """Save a model with one of our encodings. This is its `save_pretrained`, with the same arguments.

    The folder is that of transformers, but its config.json has a type of its own (`ReplacedConfig`). Otherwise
    transformers would load the weights into a model with the original encoding, without an error.
    """
    config, choice = model.config, encoding_of(model)
    assert choice is not None
    described = ReplacedConfig.of(config, choice)
    if options.get("is_main_process", True):
        write_module(save_directory, described.auto_map)
    model.config = described
    try:
        type(model).save_pretrained(model, save_directory, *arguments, **options)
    finally:
        model.config = config


def _set_implementation(model: Any, name: str) -> None:
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)
    else:  # its layers do not ask for the attention function, but its mask is made by the mask function of this name
        model.config._attn_implementation_internal = name


def encoding_of(model: Any) -> Choice | None:
    """Return the encoding that `use` has put into a model, and None if there is none."""
    decoder = decoder_of(model)
    replaced: Replaced | None = getattr(decoder, "_lengthwise_replaced", None)
    return None if replaced is None else replaced.choice


def _choice(encoding: Choice | str, model: Any, layers: int, rotates: bool) -> Choice:
    """Return a choice with the settings of the model that it does not name. `rotates`: the model has RoPE."""
    choice = ENCODINGS.parse(encoding) if isinstance(encoding, str) else encoding
    require_choice("the encoding of a model", choice)
    if all(is_complete(layer) for layer in choice.layers):
        choice.require_layers(layers)
        return choice
    try:
        model_choice = own_encoding(model)
    except ConfigError as error:
        if rotates:
            require_written(choice, error)
        model_choice = None
    return with_own_settings(choice, model_choice, layers)


def _attention_layers(decoder: nn.Module) -> list[nn.Module]:
    """Return the attention layers in order. Raise `ConfigError` if they call no attention interface."""
    layers = [m for m in decoder.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "layer_idx")]
    if not layers or not all(
        type(m).__name__ in FORWARDS or hasattr(sys.modules[type(m).__module__], "ALL_ATTENTION_FUNCTIONS")
        for m in layers
    ):
        raise ConfigError(
            f"{type(decoder).__name__} has no attention layers that call transformers' attention interface; models "
            "such as Llama, Mistral, Qwen 2 and 3, Gemma, SmolLM3, GPT-NeoX and GPT-2 do, and those of BLOOM and MPT "
            "are supported without it"
        )
    return sorted(layers, key=lambda layer: int(cast(Any, layer).layer_idx))


def _require_supported_masks(config: Any) -> None:
    """Raise `ConfigError` for layers that hide keys in another way than by a window, such as chunks in Llama 4."""
    for kind in getattr(config, "layer_types", None) or ():
        if kind not in KINDS and ("attention" in kind or "sparse" in kind):
            raise ConfigError(
                f"layers of a {config.model_type} have {kind}; the encodings of lengthwise know causal attention and "
                "windows only"
            )


def _position_modules(decoder: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Return the modules of the model's own encoding, with their parents and names."""
    position_modules: list[tuple[nn.Module, str, nn.Module]] = []
    for parent in decoder.modules():
        for name, child in parent.named_children():
            if "RotaryEmbedding" in type(child).__name__ or (name == "wpe" and isinstance(child, nn.Embedding)):
                position_modules.append((parent, name, child))
    if not position_modules and not any(type(m).__name__ in FORWARDS for m in decoder.modules()):
        raise ConfigError(f"the own position encoding of {type(decoder).__name__} cannot be switched off")
    return position_modules


def _require_compatible_sinks(choice: Choice, layers: list[nn.Module]) -> None:
    """Raise `ConfigError` if a layer with its own sinks gets an encoding that cannot be combined with them."""
    for n, module in enumerate(layers):
        layer = choice.layers[n % len(choice.layers)]
        if isinstance(getattr(module, "sinks", None), nn.Parameter):
            if any(component.name == "Sinks" for component in layer.parts):
                raise ConfigError(f"{layer.label}: the layers of this model keep learned sinks of their own; omit ours")
            if not cast(type[PositionEncoding], layer.cls).has_softmax:
                raise ConfigError(
                    f"{layer.name} has no softmax, to which the learned sinks of this model could be added; name "
                    "another encoding"
                )


def _require_no_window(choice: Choice) -> None:
    """Raise `ConfigError` if a layer has a window: a model of transformers has the windows of its own configuration."""
    for layer in choice.layers:
        if (window := layer.layer.window) is not None:
            raise ConfigError(
                f"{layer.label}: the windows of a model of transformers are those of its configuration; omit "
                f"window={window}"
            )
