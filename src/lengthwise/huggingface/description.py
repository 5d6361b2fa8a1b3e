"""What each layer of a model does with positions: its encoding, window, temperature and intended length."""

import copy
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from lengthwise.config import Choice, ConfigError, choose
from lengthwise.encodings import Learned, NoPE, RotaryEncoding, Sinusoidal
from lengthwise.huggingface.folder import Data, ModelFolder
from lengthwise.huggingface.observation import ObservedLayer, attention_layers, rotary_embeddings
from lengthwise.huggingface.own_attention import alibi_of
from lengthwise.huggingface.own_encoding import Settings, UnknownRotation, head_dim_of, train_length_of
from lengthwise.models.conversion import known_keys

FAR = (1 << 21) - 1  # a position beyond all windows
GROWTH = 1e-3  # of a query with the position, relative, beyond rounding
TABLES = ("wpe", "embed_positions", "position_embeddings")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that treat positions alike. `kind`: the entry of `layer_types`, "" if there is none.

    `encoding`: None in layers without attention. `temperature`: what multiplies the logits besides 1 / sqrt(head_dim),
    or limits them, and the sinks of the softmax, in words; "" if there is none. `softmax_scale`: the factor of q·k in
    the attention module, without that of the encoding. `head_dim`: the number of dimensions that `encoding` rotates, or
    of which it rotates a part.
    `unknown`: why the observed rotation is another one than that of the settings, which `encoding` describes; "" if it
    is the same.
    """

    layers: tuple[int, ...] = ()
    kind: str = ""
    encoding: Choice | None = None
    window: int | None = None
    temperature: str = ""
    softmax_scale: float | None = None
    head_dim: int = 0
    unknown: str = ""


def layer_groups(folder: ModelFolder) -> list[LayerGroup]:
    """Return the groups of equal layers in their order. Raise `ConfigError` for unknown encodings."""
    config = folder.config
    groups: dict[LayerGroup, list[int]] = {}
    encodings = _encodings(folder)
    kinds = list(getattr(config, "layer_types", None) or [""] * folder.layers)
    modules = {int(module.layer_idx): module for module in attention_layers(folder.model)}
    windows: dict[Any, int | None] = {}
    for layer in range(folder.layers):
        kind = kinds[layer] if layer < len(kinds) else ""
        group = replace(encodings.get(layer, LayerGroup()), kind=kind)
        if group.encoding is not None:
            observed, module = folder.observation.layers.get(layer), modules.get(layer)
            window = _window(config, kind, layer)
            if observed is not None and observed.shows is not None:
                if observed.shows not in windows:
                    windows[observed.shows] = _shown_window(observed.shows)
                window = windows[observed.shows]
            scale = _softmax_scale(config, module, observed)
            temperature = _temperature(folder, group, module, observed, scale)
            group = replace(group, window=window, softmax_scale=scale, temperature=temperature)
        groups.setdefault(group, []).append(layer)
    return [replace(group, layers=tuple(layers)) for group, layers in groups.items()]


def _encodings(folder: ModelFolder) -> dict[int, LayerGroup]:
    """Return groups with the encodings of the layers that have attention, by the settings that transformers reads."""
    config, observed = folder.config, folder.observation.layers
    has_alibi = hasattr(type(config), "alibi") and config.alibi is True  # other classes ignore it
    with_attention = sorted(observed) or [int(module.layer_idx) for module in attention_layers(folder.model)]
    with_attention = with_attention or list(range(folder.layers))
    if config.model_type in ("bloom", "mpt") and (alibi := alibi_of(_with_used_slopes(folder))) is not None:
        return dict.fromkeys(with_attention, LayerGroup(encoding=alibi, head_dim=head_dim_of(config)))
    rotates = rotary_embeddings(folder.model) and getattr(config, "rope_parameters", None)
    if rotates and not has_alibi:
        try:
            settings = Settings(_without_ignored_keys(config))
            return {layer: _rotation(settings, layer, observed.get(layer)) for layer in with_attention}
        except ConfigError as error:
            raise ConfigError(f"{folder.path / 'config.json'}: {error}") from error
    if (table := table_of(folder.model)) is not None:
        return dict.fromkeys(with_attention, LayerGroup(encoding=table, head_dim=head_dim_of(config)))
    if getattr(config, "rope_parameters", None) and not has_alibi:
        # a class that has the setting, and rotates only if another one says so
        return dict.fromkeys(with_attention, LayerGroup(encoding=choose(NoPE), head_dim=head_dim_of(config)))
    if has_alibi:
        raise ConfigError(
            f"{folder.path}: a {config.model_type} computes ALiBi in its own way (the biases of Falcon are divided by "
            "the root of the head's size, for example); lengthwise knows ALiBi of BLOOM and MPT only"
        )
    raise ConfigError(
        f"{folder.path}: lengthwise does not know the position encoding of a {config.model_type}; known are RoPE by "
        "rope_parameters, ALiBi of BLOOM and MPT, and tables of positions"
    )


def _rotation(settings: Settings, layer: int, observed: ObservedLayer | None) -> LayerGroup:
    if observed is None:
        head_dim = head_dim_of(settings.config)
        return LayerGroup(encoding=settings.described(layer, head_dim), head_dim=head_dim)
    try:
        encoding = settings.encoding_of(layer, observed)
    except UnknownRotation as error:
        described = settings.described(layer, observed.head_dim)
        return LayerGroup(encoding=described, head_dim=observed.head_dim, unknown=str(error))
    return LayerGroup(encoding=encoding.choice, head_dim=observed.head_dim - encoding.first_dim)


def ignores_bias_max(folder: ModelFolder) -> bool:
    """Return whether the model is an MPT whose class computes the slopes of 8, whatever `alibi_bias_max` says."""
    if folder.config.model_type != "mpt":
        return False
    forward = inspect.unwrap(type(folder.model.get_decoder()).forward)
    return "alibi_bias_max" not in forward.__code__.co_names


def _with_used_slopes(folder: ModelFolder) -> Any:
    """Return a copy of the configuration with the `alibi_bias_max` that transformers computes with."""
    result = copy.deepcopy(folder.config)
    if ignores_bias_max(folder):
        result.attn_config.alibi_bias_max = 8
    return result


def _without_ignored_keys(config: Any) -> Any:
    """Return a copy of the configuration without the RoPE settings that transformers ignores."""
    result = copy.deepcopy(config)

    def used_settings(entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        if "alpha" in entry:
            raise ConfigError(f"lengthwise has no counterpart of the RoPE setting alpha of a {config.model_type}")
        keys = known_keys(str(entry.get("rope_type", entry.get("type", "default"))))
        return {key: value for key, value in entry.items() if not keys or key in keys}

    parameters = config.rope_parameters
    is_nested = any(isinstance(value, Mapping) for value in parameters.values())
    result.rope_parameters = (
        {k: used_settings(v) for k, v in parameters.items()} if is_nested else used_settings(parameters)
    )
    return result


def table_of(model: nn.Module) -> Choice | None:
    """Return the encoding of a model that adds a table of positions to its embeddings; None for other models."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in TABLES:
            continue
        if "Sinusoidal" in type(module).__name__:
            return choose(Sinusoidal)
        if isinstance(module, nn.Embedding):
            return choose(Learned, max_length=module.num_embeddings - int(getattr(module, "offset", 0)))
    return None


def _window(config: Any, kind: str, layer: int) -> int | None:
    """Return how many keys a query of this layer sees at most, or None without a limit."""
    local, name = getattr(config, "attention_layers", None), None
    if kind == "chunked_attention":
        name = "attention_chunk_size"
    elif isinstance(local, list) and layer < len(local) and local[layer] == "local":  # of GPT-Neo
        name = "window_size"
    elif kind in ("", "sliding_attention", "hybrid_sliding"):
        name = "sliding_window"
    window = None if name is None else getattr(config, name, None)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ConfigError(f"{name} in config.json must be a whole number of at least 1, or null, got {window!r:.40}")
    return window


def _shown_window(shows: Any) -> int | None:
    """Return how many keys a mask shows to a query at most, or None if it shows all before it."""
    first = _first_shown(shows, FAR)
    if first == 0:
        return None
    query = first - 1  # the last query of a chunk, which sees all of it
    return query - _first_shown(shows, query) + 1


def _first_shown(shows: Any, query: int) -> int:
    row = torch.zeros(1, dtype=torch.long)
    return int(shows(row, row, torch.tensor([query]), torch.arange(query + 1)).flatten().long().argmax())


def _softmax_scale(config: Any, module: Any, observed: ObservedLayer | None) -> float | None:
    if observed is not None:
        scale = observed.head_dim**-0.5 if observed.scale is None else float(observed.scale)
        return scale * observed.factor
    if config.model_type == "gpt_neo":
        return 1.0
    for name in ("scaling", "softmax_scale", "inv_norm_factor"):
        if isinstance(value := getattr(module, name, None), int | float):
            return float(value)
    return None


def usual_scale(config: Any, module: Any) -> float:
    """Return 1 / sqrt(head_dim), with all dimensions of a query, rotated or not."""
    return (
        float(getattr(module, "qk_head_dim", None) or getattr(module, "head_dim", None) or head_dim_of(config)) ** -0.5
    )


def label_of(choice: Choice) -> str:
    """Return the label of an encoding without long lists of numbers, such as the factors of LongRoPE."""
    return re.sub(r"=\([^()]{24,}\)", "=(...)", choice.label)


def build(folder: ModelFolder, group: LayerGroup) -> Any:
    """Return the module of the encoding of some layers, with the sizes of the model."""
    config = folder.config
    assert group.encoding is not None
    return group.encoding.build(
        num_heads=int(config.num_attention_heads),
        head_dim=group.head_dim,
        d_model=int(config.hidden_size),
        train_length=train_length_of(config),
    )


def _temperature(
    folder: ModelFolder, group: LayerGroup, module: Any, observed: ObservedLayer | None, scale: float | None
) -> str:
    config, encoding, factors = folder.config, cast(Choice, group.encoding), []
    if issubclass(encoding.cls, RotaryEncoding):
        gain = build(folder, group).gain(torch.tensor(folder.length or 1))
        if gain is not None and not math.isclose(gain, 1.0):
            factors.append(f"× {gain**2:.4g} of rotated dimensions (attention factor {gain:.4g})")
    if scale is not None and (module is not None or observed is None):
        usual = usual_scale(config, module)
        if not math.isclose(scale, usual, rel_tol=1e-6):
            factors.append(f"× {scale / usual:.4g} (softmax scale {scale:.4g})")
    by_position = _by_position(config, encoding)
    if observed is not None and not by_position and abs(observed.query_growth - 1) > GROWTH:
        by_position = [
            f"× {observed.query_growth:.4g} at position {int(observed.positions[-1]):,}, which depends on the position"
        ]
    factors += by_position
    cap = getattr(config, "attn_logit_softcapping", None) if observed is None else observed.softcap
    if cap:
        factors.append(f"at most {cap:g} (soft cap)")
    if isinstance(getattr(module, "sinks", None), nn.Parameter) if observed is None else observed.has_sinks:
        factors.append("a sink logit of each head, which is learned")
    return ", ".join(factors)


def _by_position(config: Any, encoding: Choice) -> list[str]:
    """Return the factors of queries that grow with the position: of Ministral 3, Llama 4 and Beam."""
    if config.model_type == "beam" and encoding.cls is NoPE:
        return ["× (1 + (i + 1) / 2,048)^0.1 at position i"]
    if getattr(config, "attn_temperature_tuning", False) and encoding.cls is NoPE and hasattr(config, "floor_scale"):
        return [f"× (1 + {config.attn_scale:g} ln(1 + floor((i + 1) / {config.floor_scale:,}))) at position i"]
    rope: Data = getattr(config, "rope_parameters", None) or {}
    if isinstance(beta := rope.get("llama_4_scaling_beta"), int | float) and beta:
        original = rope.get("original_max_position_embeddings", "L")
        return [f"× (1 + {beta:g} ln(1 + floor(i / {original}))) at position i"]
    return []
