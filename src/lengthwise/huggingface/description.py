"""What each layer of a model does with positions: its encoding, window, temperature and intended length."""

import copy
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lengthwise.config import Choice, ConfigError, choose
from lengthwise.encodings import Learned, NoPE, RotaryEncoding, Sinusoidal
from lengthwise.huggingface.folder import Data, ModelFolder
from lengthwise.huggingface.own_attention import alibi_of
from lengthwise.huggingface.replacement import head_dim_of, layout_of, own_encoding, train_length_of
from lengthwise.models.conversion import known_keys

WITHOUT_ATTENTION = ("linear_attention", "conv", "moe", "mamba", "recurrent")
"""Kinds of layers in `layer_types` that mix tokens by other means than attention, or not at all."""
TABLES = ("wpe", "embed_positions", "position_embeddings")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that treat positions alike. `kind`: the entry of `layer_types`, "" if there is none.

    `encoding`: None in layers without attention. `temperature`: what multiplies the logits besides 1 / sqrt(head_dim), or limits
    them, and the sinks of the softmax, in words; "" if there is none. `softmax_scale`: the factor of q·k in the attention module,
    without that of the encoding.
    """

    layers: tuple[int, ...]
    kind: str
    encoding: Choice | None
    window: int | None
    temperature: str
    softmax_scale: float | None


def layer_groups(folder: ModelFolder) -> list[LayerGroup]:
    """Return the groups of equal layers, in the order of their first layers. Raise `ConfigError` for unknown encodings."""
    config = folder.config
    groups: dict[tuple[str, Choice | None, int | None, str, float | None], list[int]] = {}
    choice = encoding_of(folder)
    kinds = list(getattr(config, "layer_types", None) or [""] * folder.layers)
    modules = {int(module.layer_idx): module for module in folder.attention_layers()}
    for layer in range(folder.layers):
        kind = kinds[layer] if layer < len(kinds) else ""
        module = modules.get(layer)
        encoding = None if kind in WITHOUT_ATTENTION else choice.layers[layer % len(choice.layers)]
        if encoding is not None and getattr(module, "use_rope", True) in (False, 0):
            encoding = choose(NoPE)
        window = _window(config, kind, layer) if encoding is not None else None
        scale = _softmax_scale(module) if encoding is not None else None
        temperature = _temperature(folder, encoding, module, scale) if encoding is not None else ""
        groups.setdefault((kind, encoding, window, temperature, scale), []).append(layer)
    return [
        LayerGroup(tuple(layers), kind, encoding, window, temperature, scale)
        for (kind, encoding, window, temperature, scale), layers in groups.items()
    ]


def encoding_of(folder: ModelFolder) -> Choice:
    """Return the encoding of a model, as lengthwise computes it, with the settings that transformers reads."""
    config = folder.config
    rotary = [m for m in folder.model.modules() if "RotaryEmbedding" in type(m).__name__]
    if config.model_type in ("bloom", "mpt") and (alibi := alibi_of(_with_used_slopes(folder))) is not None:
        return alibi
    if rotary and hasattr(config, "rope_parameters") and getattr(config, "alibi", False) is not True:
        try:
            return own_encoding(_with_known_keys(config), layout_of(folder.model))
        except ConfigError as error:
            raise ConfigError(f"{folder.path / 'config.json'}: {error}") from error
        except (AttributeError, RuntimeError) as error:  # settings that differ from layer to layer
            raise ConfigError(
                f"{folder.path}: the layers of a {config.model_type} have settings that lengthwise does not know ({error})"
            ) from error
    if (table := table_of(folder.model)) is not None:
        return table
    if getattr(config, "rope_parameters", None) and getattr(config, "alibi", False) is not True:
        return choose(NoPE)  # a class that has the setting, and rotates only if another one says so
    raise ConfigError(
        f"{folder.path}: lengthwise does not know the position encoding of a {config.model_type}; known are RoPE by "
        "rope_parameters, ALiBi of BLOOM and MPT, and tables of positions"
    )


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


def _with_known_keys(config: Any) -> Any:
    """Return a copy of the configuration without the RoPE settings that transformers ignores."""
    result = copy.deepcopy(config)

    def known(entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        if "alpha" in entry:
            raise ConfigError(f"lengthwise has no counterpart of the RoPE setting alpha of a {config.model_type}")
        keys = known_keys(str(entry.get("rope_type", entry.get("type", "default"))))
        return {key: value for key, value in entry.items() if not keys or key in keys}

    parameters = config.rope_parameters
    is_nested = any(isinstance(value, Mapping) for value in parameters.values())
    result.rope_parameters = {k: known(v) for k, v in parameters.items()} if is_nested else known(parameters)
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


def _softmax_scale(module: Any) -> float | None:
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


def build(folder: ModelFolder, encoding: Choice) -> Any:
    """Return the module of an encoding with the sizes of the model."""
    config = folder.config
    return encoding.build(
        num_heads=int(config.num_attention_heads),
        head_dim=head_dim_of(config),
        d_model=int(config.hidden_size),
        train_length=train_length_of(config),
    )


def _temperature(folder: ModelFolder, encoding: Choice, module: Any, scale: float | None) -> str:
    config, parts = folder.config, []
    if issubclass(encoding.cls, RotaryEncoding):
        gain = build(folder, encoding).gain(torch.tensor(folder.length or 1))
        if gain is not None and not math.isclose(gain, 1.0):
            parts.append(f"× {gain**2:.4g} of rotated dimensions (attention factor {gain:.4g})")
    if module is not None and scale is not None:
        usual = usual_scale(config, module)
        if not math.isclose(scale, usual, rel_tol=1e-6):
            parts.append(f"× {scale / usual:.4g} (softmax scale {scale:.4g})")
    parts += _by_position(config, encoding)
    cap = getattr(config, "attn_logit_softcapping", None)
    if cap:
        parts.append(f"at most {cap:g} (soft cap)")
    if isinstance(getattr(module, "sinks", None), nn.Parameter):
        parts.append("a sink logit of each head, which is learned")
    return ", ".join(parts)


def _by_position(config: Any, encoding: Choice) -> list[str]:
    """Return the factors of queries that grow with the position: of Ministral 3, and of Llama 4 and Beam in layers without RoPE."""
    if config.model_type == "beam" and encoding.cls is NoPE:
        return ["× (1 + (i + 1) / 2,048)^0.1 at position i"]
    if getattr(config, "attn_temperature_tuning", False) and encoding.cls is NoPE and hasattr(config, "floor_scale"):
        return [f"× (1 + {config.attn_scale:g} ln(1 + floor((i + 1) / {config.floor_scale:,}))) at position i"]
    rope: Data = getattr(config, "rope_parameters", None) or {}
    if isinstance(beta := rope.get("llama_4_scaling_beta"), int | float) and beta:
        original = rope.get("original_max_position_embeddings", "L")
        return [f"× (1 + {beta:g} ln(1 + floor(i / {original}))) at position i"]
    return []
