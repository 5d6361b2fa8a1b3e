"""The `rope_parameters` of transformers to the choice of an encoding, and back."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from lengthwise.config import Choice, ConfigError, choose, near_miss, settings_of
from lengthwise.config.choices import require_choice
from lengthwise.encodings import ENCODINGS, NoPE, RoPE, YaRN
from lengthwise.models.conversion.weights import Layout
from lengthwise.values import join_names


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# For each rope_type our encoding, and the name of our setting for each of their keys.
_TYPES: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("RoPE", {}),
    "linear": ("PI", {"factor": "factor"}),
    "dynamic": ("DynamicNTK", {"factor": "factor"}),
    "yarn": (
        "YaRN",
        _same("factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"),
    ),
    "longrope": ("LongRoPE", _same("short_factor", "long_factor", "factor", "attention_factor")),
    "llama3": ("Llama3", _same("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": ("PRoPE", {"partial_rotary_factor": "p"}),
}
_COMMON_KEYS = {"rope_theta": "base", "partial_rotary_factor": "rotary_fraction"}
_REQUIRED_KEYS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_DEFAULTS: dict[str, Any] = {  # their defaults, where ours may differ
    "partial_rotary_factor": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
    "attention_factor": None,
    "mscale": 1.0,
    "mscale_all_dim": 0.0,
}
_TYPES_WITH_TRAIN_LENGTH = ("yarn", "longrope", "llama3")  # types that have original_max_position_embeddings


def encoding_from_rope_parameters(
    parameters: Mapping[str, Any] | None,
    *,
    head_dim: int,
    rope_theta: float | None = None,
    max_position_embeddings: int | None = None,
    layout: Layout = "half",
) -> Choice:
    """Return the choice for `rope_parameters` of transformers 5, or `rope_scaling` and `rope_theta` of transformers 4.

    `None` (a layer without RoPE) gives NoPE. The training length is not a setting of our encodings; the model passes
    it, and `trained_length` reads it from the parameters. `max_position_embeddings` is needed for "longrope" and "yarn"
    without `factor`. `layout` is that of the weights: "half" for transformers, except for GPT-J.

    >>> encoding_from_rope_parameters({"rope_type": "default", "rope_theta": 500000.0}, head_dim=64).label
    'RoPE(base=500000.0, layout=half)'
    """
    if parameters is None:
        return choose(NoPE)
    theirs = dict(parameters)
    legacy = theirs.pop("type", "default")
    kind = theirs.pop("rope_type", legacy)
    are_mappings = [isinstance(value, Mapping) for value in theirs.values() if value is not None]
    if are_mappings and all(are_mappings):
        raise ConfigError(
            f"rope_parameters has one entry for each kind of layer ({', '.join(map(str, theirs))}); convert each "
            "separately and combine them with alternate(...)"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(
            f"there is no counterpart of rope_type {kind!r}{near_miss(str(kind), _TYPES)}; available: "
            f"{', '.join(_TYPES)}"
        )
    name, method_keys = _TYPES[kind]
    names = {**_COMMON_KEYS, **method_keys}
    if kind == "proportional" and theirs.get("factor") in (1, None):
        theirs.pop("factor", None)  # it has this key, which has no effect at 1
    trained = theirs.pop("original_max_position_embeddings", None)
    for key in theirs:
        if key not in names:
            raise ConfigError(
                f"rope_type {kind!r} has no counterpart of {key!r}{near_miss(str(key), names)}; available: "
                f"{', '.join(names)}"
            )
    if theirs.get("rope_theta") is None:
        theirs["rope_theta"] = 10_000.0 if rope_theta is None else rope_theta
    if kind in ("yarn", "longrope") and theirs.get("factor") is None:
        if trained is None or max_position_embeddings is None:
            raise ConfigError(
                f"rope_type {kind!r} without factor uses max_position_embeddings / original_max_position_embeddings; "
                "give both"
            )
        theirs["factor"] = max_position_embeddings / trained
    for key in _REQUIRED_KEYS.get(kind, ()):
        if theirs.get(key) is None:
            has = ", ".join(name for name, value in parameters.items() if value is not None)
            raise ConfigError(f"rope_type {kind!r} needs {key}, and rope_parameters has: {has}")
    if theirs.get("attention_factor") is not None or not (theirs.get("mscale") and theirs.get("mscale_all_dim")):
        # transformers ignores one of them without the other, and both if there is an attention_factor.
        theirs.pop("mscale", None)
        theirs.pop("mscale_all_dim", None)
    settings: dict[str, Any] = {"layout": layout}
    for key, ours in names.items():
        value = _DEFAULTS.get(key)
        if theirs.get(key) is not None:
            value = _converted(key, theirs[key], head_dim / 2 if ours == "p" else head_dim)
        if value is not None:
            settings[ours] = value
    choice = choose(ENCODINGS.find(name), **settings)
    # This raises if the settings do not fit this head dim.
    choice.build(head_dim=head_dim, train_length=trained or max_position_embeddings or 2048)
    return choice


def known_keys(kind: str) -> frozenset[str]:
    """Return the keys of `rope_parameters` that transformers reads for a rope type; empty for an unknown type."""
    if kind not in _TYPES:
        return frozenset()
    further = {"factor"} if kind == "proportional" else set()
    return frozenset({"rope_type", "original_max_position_embeddings", *_COMMON_KEYS, *_TYPES[kind][1], *further})


def _converted(key: str, value: Any, total: int | float) -> Any:
    """Return the value of our setting for one of their keys. `total`: the dims or pairs that a fraction refers to."""
    if key == "partial_rotary_factor":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise ConfigError(f"partial_rotary_factor must be a number, more than 0 and at most 1, got {value!r}")
        dims = int(value * total)  # rounded down as in transformers: 50 · 0.58 is 28.999999999999996, so 28
        return float(value) if int(value * total + 1e-9) == dims else dims / total
    return value


_MAX_HEAD_DIM = 1024  # up to which an exported fraction is exact


def _exported_fraction(fraction: float) -> float:
    """Return the smallest number from `fraction` on for which int(number · n) equals our number of dims for every n.

    For example, 0.58 · 100 is 57.99999999999999 in transformers, so the result for 0.58 is the next larger float.
    """
    ours = {n: int(fraction * n + 1e-9) for n in range(1, _MAX_HEAD_DIM + 1)}
    number = fraction
    for n, dims in ours.items():
        if int(number * n) < dims:
            number = dims / n
            while int(number * n) < dims:
                number = math.nextafter(number, 2)
    if any(int(number * n) != dims for n, dims in ours.items()):
        raise ConfigError(
            f"the fraction must give the same number of dims in transformers, which rounds down, got {fraction!r}; "
            "write it with all its digits"
        )
    return number


def rope_parameters_from_encoding(choice: Choice, *, train_length: int | None = None) -> dict[str, Any] | None:
    """Return the `rope_parameters` for a choice; None for NoPE. Keys that have both libraries' default are left out.

    `train_length`: the `original_max_position_embeddings` of the types that have it. Raise `ConfigError` for an
    encoding or a setting without a counterpart in transformers.

    >>> rope_parameters_from_encoding(choose(RoPE, base=500000.0, layout="half"))
    {'rope_type': 'default', 'rope_theta': 500000.0}
    """
    require_choice("rope_parameters_from_encoding()", choice)
    if len(choice.layers) > 1:
        raise ConfigError(f"{choice.label} is a pattern over layers; convert each of its layers")
    if choice.layer_settings:
        raise ConfigError(
            f"rope_parameters have no {join_names(list(choice.layer_settings))}, got {choice.label}; omit them"
        )
    if choice.cls is NoPE:
        return None
    kind = next((kind for kind, (name, _) in _TYPES.items() if name == choice.name), None)
    if kind is None:
        available = ", ".join(name for name, _ in _TYPES.values())
        raise ConfigError(f"transformers has no rope_type for {choice.label}; available: {available}")
    their_keys = {ours: key for key, ours in {**_COMMON_KEYS, **_TYPES[kind][1]}.items()}
    defaults = settings_of(choice.cls)
    settings = dict(choice.settings)
    scales = settings.get("mscale", 1), settings.get("mscale_all_dim", 0)
    if scales != (1, 0) and not all(scales):
        raise ConfigError(
            "mscale and mscale_all_dim must both differ from 0 for transformers to read them, got "
            f"{scales[0]} and {scales[1]} in {choice.label}; give attention_factor"
        )
    parameters: dict[str, Any] = {"rope_type": kind}
    for name, value in settings.items():
        if name in their_keys:
            key = their_keys[name]
            mscale_is_read = name == "mscale" and settings["mscale_all_dim"]
            if mscale_is_read or key not in _DEFAULTS or value != _DEFAULTS[key]:
                value = _exported_fraction(value) if key == "partial_rotary_factor" else value
                parameters[key] = list(value) if isinstance(value, tuple) else value
            if value is None and key in _REQUIRED_KEYS.get(kind, ()):
                raise ConfigError(
                    f"rope_type {kind!r} needs {key}, and {choice.label} computes it by a formula; set it explicitly"
                )
        elif name != "layout" and value != defaults[name].default:
            raise ConfigError(f"rope_type {kind!r} has no counterpart of {name}={value!r} of {choice.name}")
    if kind in _TYPES_WITH_TRAIN_LENGTH:
        if train_length is None:
            raise ConfigError(f"rope_type {kind!r} needs original_max_position_embeddings; give train_length")
        parameters["original_max_position_embeddings"] = train_length
    return parameters


def equivalent(choice: Choice, head_dim: int, train_length: int) -> Choice:
    """Return an encoding of transformers with the same frequencies, or the choice itself.

    NTK-aware scaling is RoPE with another base, and NTK-by-parts is YaRN without its factor of q and k.

    >>> from lengthwise.encodings import NTKAware
    >>> other = equivalent(choose(NTKAware, factor=8.0), 64, 2048)
    >>> other.name, round(dict(other.settings)["base"], 2)
    ('RoPE', 85550.38)
    """
    settings = dict(choice.settings)
    context = {"head_dim": head_dim, "train_length": train_length}
    if choice.name == "NTKAware":
        dims = choice.build(**context).rotary_dims
        settings["base"] *= settings.pop("factor") ** (dims / (dims - 2))
        other = choose(RoPE, **settings)
    elif choice.name == "NTKByParts" and settings["ramp"] == "index":
        other = choose(YaRN, **settings, attention_factor=1.0)
    else:
        return choice
    length = torch.tensor(train_length)
    ours, theirs = (entry.build(**context).frequencies(length) for entry in (choice, other))
    return other if torch.allclose(ours, theirs, rtol=1e-12, atol=0) else choice


def trained_length(parameters: Mapping[str, Any] | None, max_position_embeddings: int) -> int:
    """Return the `train_length` of our model: `original_max_position_embeddings` for the types that use it.

    For all other types it is `max_position_embeddings`.

    >>> trained_length({"rope_type": "llama3", "original_max_position_embeddings": 8192}, 131072)
    8192
    """
    theirs = parameters or {}
    is_used = theirs.get("rope_type", theirs.get("type")) in _TYPES_WITH_TRAIN_LENGTH
    original = theirs.get("original_max_position_embeddings") if is_used else None
    return max_position_embeddings if original is None else int(original)
