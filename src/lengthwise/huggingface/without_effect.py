"""Checks of settings that have no effect, or with which a model cannot be computed. `mistakes` lists all checks."""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.config import ConfigError
from lengthwise.encodings import RotaryEncoding
from lengthwise.evaluation.pretrained.loading import json_object
from lengthwise.evaluation.pretrained.rope_values import SYNONYMS
from lengthwise.huggingface.angles import Comparison
from lengthwise.huggingface.cases import MOVABLE, RAMP_KEYS, Case, Texts, is_number
from lengthwise.huggingface.description import build, label_of
from lengthwise.huggingface.names import misplaced_settings, misspelt_names
from lengthwise.huggingface.observation import attention_layers
from lengthwise.models.conversion import known_keys
from lengthwise.values import near_miss, unlisted

SMALLEST_THETA = 10.0  # with which no wavelength is longer than 63 tokens
OF_ONE_TYPE = (*RAMP_KEYS, "short_factor", "long_factor")


def failing_layers(case: Case) -> Texts:
    """An attention layer raises an error, for example if it rotates more dimensions than its angles have."""
    observation = case.folder.observation
    if lost := required_keys(case):
        yield (
            f"a forward pass raises an error, because rope_parameters has no {', '.join(lost)}; write that of the "
            "training"
        )
    elif observation.layer_error:
        entries = [case.folder.settings, *(entry for _, entry in case.folder.rope_entries())]
        is_partial = any(entry.get("partial_rotary_factor") not in (None, 1) for entry in entries)
        key = "partial_rotary_factor" if is_partial else "the settings of heads and of RoPE"
        yield f"a forward pass raises an error ({observation.layer_error}); correct {key}"
    elif observation.reason and case.rotates:
        yield (
            f"the layers could not be observed ({observation.reason}), so the table shows what their settings mean",
            False,
        )


def required_keys(case: Case) -> list[str]:
    """Return the missing keys of rope_parameters that every forward pass reads (of Ministral 3)."""
    if not case.folder.observation.reason:
        return []
    forwards = [inspect.unwrap(type(module).forward) for module in attention_layers(case.folder.model)]
    read = {c for forward in forwards for c in forward.__code__.co_consts if isinstance(c, str)}
    used = [entry for _, entry in case.folder.used_entries()]
    return [key for key in ("llama_4_scaling_beta",) if key in read and not all(entry.get(key) for entry in used)]


def unknown_rotation(case: Case) -> Texts:
    """A class has the right angles and rotates in a way that lengthwise does not have. This is no mistake."""
    agree = {layer for c in case.comparisons if isinstance(c, Comparison) and c.agrees for layer in c.layers}
    for group in case.groups:
        if group.unknown and agree.issuperset(group.layers):
            yield group.unknown, False


def degenerate_rotation(case: Case) -> Texts:
    """RoPE rotates no dimension, or all of them so fast that attention cannot tell positions apart."""
    head_dim = max((group.head_dim for group in case.groups), default=0)
    for name, entry in case.folder.used_entries():
        where, fraction, theta = (
            f"{name}: " if name else "",
            entry.get("partial_rotary_factor"),
            entry.get("rope_theta"),
        )
        if isinstance(fraction, int | float) and head_dim and int(fraction * head_dim) < 2:
            key = "rotary_pct" if "rotary_pct" in case.folder.settings else "partial_rotary_factor"
            yield (
                f"{where}{key} = {fraction:g} rotates none of the {head_dim} dimensions of a head; correct or remove it"
            )
        if is_number(theta) and theta < SMALLEST_THETA:
            longest = 2 * math.pi * max(theta, 1)
            yield f"{where}rope_theta = {theta:g} gives no wavelength of more than {longest:.0f} tokens; correct it"


def ignored_keys(case: Case) -> Texts:
    """A setting has no effect: it is misspelt, misplaced, or belongs to another rope type."""
    config = case.folder.config
    for key, name in misspelt_names(case).items():
        yield f"{key[:60]!r} is not read by {type(config).__name__}; did you mean {name!r}?"
    yield from misplaced_settings(case)
    if not case.rotates:
        return
    ignorable = getattr(config, "ignore_keys_at_rope_validation", None) or ()
    for name, entry in case.folder.rope_entries():
        kind = str(entry.get("rope_type", entry.get("type", "default")))
        keys = known_keys(SYNONYMS.get(kind, kind))
        for key in entry if keys else ():
            if (
                key not in (*keys, "type", "factor", *MOVABLE, *ignorable)
                and not hasattr(config, str(key))
                and (near := near_miss(str(key), keys))
            ):
                yield f"{name} has {str(key)[:40]!r}, which transformers ignores{near}"
        of_others = [key for key in OF_ONE_TYPE if keys and key not in keys and entry.get(key) is not None]
        if of_others and kind != "default":
            yield f"{name} has {', '.join(of_others)}, which rope_type {kind!r} does not read; correct the rope_type"
    yield from _ignored_flat(case)


def _ignored_flat(case: Case) -> Texts:
    """Yield settings for all layers in a class that reads settings for each kind of layer."""
    used = case.folder.used_entries()
    if not used or not all(name for name, _ in used):
        return
    rope_types = ("default", *ROPE_INIT_FUNCTIONS, *SYNONYMS)
    for name, entry in case.folder.rope_entries():
        if "." in name:
            continue
        kind = entry.get("rope_type", entry.get("type", "default"))
        lost = [
            key
            for key, value in entry.items()
            if value is not None and not _is_used(key, value, [settings for _, settings in used])
        ]
        if kind not in rope_types:
            yield f"{name} has the rope_type {unlisted(str(kind)[:40], rope_types)}"
        elif lost:
            kinds = ", ".join(kind for kind, _ in used)
            yield (
                f"{name} has {', '.join(lost)} for all layers, which {type(case.folder.config).__name__} ignores; "
                f"write the settings for each kind of layer ({kinds})"
            )


def _is_used(key: str, value: Any, used: list[dict[str, Any]]) -> bool:
    if key in ("rope_type", "type"):
        return any(SYNONYMS.get(str(value), value) == settings.get("rope_type") for settings in used)
    return any(settings.get(key) == value for settings in used)


def misspelt_rope_type(entry: Mapping[str, Any]) -> bool:
    """Return whether a dictionary of RoPE settings has a misspelt rope_type."""
    names = ("rope_type", "type")
    return not any(name in entry for name in names) and any(
        isinstance(value, str) and near_miss(str(key), names) for key, value in entry.items()
    )


def ignored_window(case: Case) -> Texts:
    """A sliding window is written, and no layer has it, so all layers see everything.

    Qwen's classes drop it unless use_sliding_window is true, and give it to the layers from max_window_layers on only.
    A window of the intended length or more changes nothing, and use_sliding_window = false means none.
    """
    settings, observed = case.folder.settings, case.folder.observation.layers
    window, switch = settings.get("sliding_window"), settings.get("use_sliding_window")
    if not observed or not isinstance(window, int) or not is_number(window) or switch is False:
        return
    if window >= (case.folder.length or math.inf) or any(group.window is not None for group in case.groups):
        return
    config = case.folder.config
    first, kinds = getattr(config, "max_window_layers", None), getattr(config, "layer_types", None) or ()
    if hasattr(config, "use_sliding_window") and switch is None:
        reason = "use_sliding_window is missing and false by default; write it"
    elif isinstance(first, int) and first >= case.folder.layers and not settings.get("layer_types"):
        reason = (
            f"max_window_layers = {first} leaves none of the {case.folder.layers} layers to it; correct one of them"
        )
    elif settings.get("layer_types") or "full_attention" in kinds:
        reason = "layer_types has no sliding_attention; correct one of them"
    else:
        reason = (
            f"{type(config).__name__} does not read it; remove it, or use the class that the model was trained with"
        )
    yield f"sliding_window = {window:,} has no effect: {reason}"


def ignored_soft_cap(case: Case) -> Texts:
    """The class does not compute a soft cap of logits that is written (Gemma 3 has the setting of Gemma 2)."""
    cap, observed = case.folder.settings.get("attn_logit_softcapping"), case.folder.observation.layers
    if is_number(cap) and observed and not any(layer.softcap for layer in observed.values()):
        yield (
            f"attn_logit_softcapping = {cap:g} has no effect: {type(case.folder.config).__name__} does not read it; "
            "remove it"
        )


def length_beyond_wavelengths(case: Case) -> Texts:
    """The intended length is more than the longest wavelength of RoPE, so that angles of far tokens repeat.

    This may be intended, but an unscaled model whose max_position_embeddings was raised looks the same. Layers see
    their window at most.
    """
    length = case.folder.length
    for group in case.groups:
        if length is None or group.encoding is None or not issubclass(group.encoding.cls, RotaryEncoding):
            continue
        frequencies = build(case.folder, group).frequencies(torch.tensor(length)).flatten()
        seen = min(length, group.window or length)
        if bool((frequencies > 0).all()) and seen > (longest := 2 * math.pi / float(frequencies.min())):
            yield (
                f"{label_of(group.encoding)}: the longest wavelength is {longest:,.0f} tokens, and the model is "
                f"intended for {length:,}; if it was trained with fewer, its positions need a scaling or another theta",
                False,
            )


def tokenizer_length(case: Case) -> Texts:
    """The tokenizer's model_max_length is less than the intended length, and some programs cut texts there."""
    file, length = case.folder.path / "tokenizer_config.json", case.folder.length
    try:
        longest = json_object(file).get("model_max_length") if file.is_file() else None
    except ConfigError as error:
        yield str(error), False
        return
    if is_number(longest) and length is not None and longest < length:
        yield (
            f"model_max_length = {longest:,.0f} in tokenizer_config.json is less than the intended {length:,} tokens, "
            "and some programs cut texts there",
            False,
        )
