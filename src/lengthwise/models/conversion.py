"""Convert weights and settings of other libraries to ours and back, without loss.

It covers the order of dims in projections, T5's table, ALiBi's slopes, `rope_parameters`, and the weight names of a Mamba.

Weights are only reordered, never computed with, so converting back gives the same bits for every dtype. The exception are
learned slopes, which Lengthwise stores as logarithms.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lengthwise.config import Choice, ConfigError, choose, near_miss
from lengthwise.config.choices import require_choice, settings_of
from lengthwise.encodings import ENCODINGS, ALiBi, NoPE
from lengthwise.encodings.alibi import slopes
from lengthwise.encodings.base import require_positive, require_positive_int

Layout = Literal["interleaved", "half"]


# ---- the order of dims in the projections of queries and keys ---------------------------------------------------


def half_from_interleaved(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """Reorder the rows of a query or key projection from pairs (2p, 2p+1) to pairs (p, p + rotary_dims/2).

    `weight` [num_heads · head_dim, d_model], or a bias [num_heads · head_dim]. `num_heads` is that of the projection: with
    grouped-query attention the keys have fewer. `rotary_dims`: how many of a head's first dims are rotated. Default: all. Convert
    both queries and keys, then the logits stay the same; values and the output projection are not converted.

    >>> half_from_interleaved(torch.arange(6), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 2, 1, 3, 4, 5])
    """
    return weight[_row_order(weight, num_heads, head_dim, rotary_dims, "half")]


def interleaved_from_half(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """Undo `half_from_interleaved`: reorder the rows to the pairs (2p, 2p+1) of GPT-J and the paper.

    >>> interleaved_from_half(torch.tensor([0, 2, 1, 3, 4, 5]), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 1, 2, 3, 4, 5])
    """
    return weight[_row_order(weight, num_heads, head_dim, rotary_dims, "interleaved")]


def _row_order(weight: Tensor, num_heads: int, head_dim: int, rotary_dims: int | None, target: Layout) -> Tensor:
    """Return the indices of the rows of a projection in the target layout."""
    _require_dims("the weight", weight, (1, 2), "[num_heads · head_dim, d_model], or a bias [num_heads · head_dim]")
    require_positive_int("a projection", num_heads=num_heads, head_dim=head_dim)
    dims = head_dim if rotary_dims is None else rotary_dims
    if isinstance(dims, bool) or not isinstance(dims, int):
        raise ConfigError(f"rotary_dims must be a whole number (a fraction · head_dim), got {dims!r}")
    if not 0 < dims <= head_dim or dims % 2:
        raise ConfigError(f"rotary_dims must be even, and 2 to head_dim {head_dim}, got {dims}")
    if len(weight) != num_heads * head_dim:
        raise ConfigError(
            f"the weight must have {num_heads * head_dim} rows for {num_heads} heads of {head_dim} dims, got {len(weight)}; "
            "pass the number of heads of this projection (keys may have fewer), and convert queries and keys separately"
        )
    order = torch.arange(head_dim, device=weight.device)
    pairs = order[:dims].view(-1, 2).T if target == "half" else order[:dims].view(2, -1).T
    order = torch.cat([pairs.flatten(), order[dims:]])
    return (torch.arange(num_heads, device=weight.device)[:, None] * head_dim + order).flatten()


def _require_dims(what: str, value: object, ndims: tuple[int, ...], shape: str) -> None:
    if not isinstance(value, Tensor):
        raise ConfigError(f"{what} must be a tensor {shape}, got a {type(value).__name__}")
    if value.ndim not in ndims:
        raise ConfigError(f"{what} must be a tensor {shape}, got the shape {list(value.shape)}")


# ---- tables and slopes ------------------------------------------------------------------------------------------


def t5_weight_from_table(table: Shaped[Tensor, "buckets heads"]) -> Shaped[Tensor, "heads buckets"]:
    """Convert T5's `relative_attention_bias.weight` to the weight of our T5, which has a row for each head.

    >>> t5_weight_from_table(torch.tensor([[1, 2], [3, 4], [5, 6]]))
    tensor([[1, 3, 5],
            [2, 4, 6]])
    """
    _require_dims("T5's table", table, (2,), "[buckets, heads]")
    return table.T.contiguous()


def t5_table_from_weight(weight: Shaped[Tensor, "heads buckets"]) -> Shaped[Tensor, "buckets heads"]:
    """Convert the weight of our T5 to the table of Hugging Face's T5, which has a row for each bucket."""
    _require_dims("T5's weight", weight, (2,), "[heads, buckets]")
    return weight.T.contiguous()


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """Return the slopes of our ALiBi in float64, in the same order of heads as the buffers of other libraries.

    >>> alibi_slopes(3)
    tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    require_positive_int("alibi_slopes", num_heads=num_heads)
    return torch.tensor(slopes(num_heads), dtype=torch.float64)


def alibi_from_slopes(values: Float[Tensor, "*shape"]) -> Choice:
    """Return the choice of our ALiBi for the slopes of another library, of any shape with one number for each head.

    Raise `ConfigError` if they differ from the published slopes by more than the precision of their dtype: because they are
    learned, have another maximum, or another order of heads.
    """
    _require_slopes(values)
    ours = alibi_slopes(values.numel())
    error = ((values.detach().cpu().flatten().to(torch.float64) - ours) / ours).abs()
    wrong = (~(error <= 2 * torch.finfo(values.dtype).eps)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {values.numel()} heads must be ALiBi's {float(ours[first]):.6g}, got "
            f"{float(values.flatten()[first]):.6g}; use ALiBi(learned=True) with log_slopes from alibi_log_slopes(slopes)"
        )
    return choose(ALiBi)


def alibi_log_slopes(values: Float[Tensor, "*shape"]) -> Float[Tensor, " heads"]:
    """Return the `log_slopes` of our ALiBi(learned=True) in float64, for slopes of any shape with one number for each head.

    Use it for slopes that are learned or have another maximum. The parameter stores float32, so its slopes have a relative error
    of about 1e-7 · |log slope|. Raise `ConfigError` for slopes that are not above 0, which our ALiBi cannot represent.

    >>> alibi = ALiBi(num_heads=2, learned=True)
    >>> _ = alibi.load_state_dict({"log_slopes": alibi_log_slopes(torch.tensor([0.5, 0.125]))})
    >>> alibi.bias(torch.tensor([2]))
    tensor([[-1.0000],
            [-0.2500]], dtype=torch.float64, grad_fn=<MulBackward0>)
    """
    _require_slopes(values)
    slopes = values.detach().flatten().to(torch.float64)
    wrong = (~((slopes > 0) & slopes.isfinite())).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {values.numel()} heads must be finite and above 0, got {float(slopes[first]):.6g}"
        )
    return slopes.log()


def _require_slopes(value: object) -> None:
    if not isinstance(value, Tensor) or not value.numel() or not value.is_floating_point():
        shown = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ConfigError(f"slopes must be a tensor of floats, one for each head, got {shown}")


# ---- Mamba ------------------------------------------------------------------------------------------------------

_MAMBA_PREFIXES = (  # transformers' prefix of a weight's name, and ours
    ("backbone.layers.", "blocks."),
    ("backbone.embeddings.", "token_embedding."),
    ("backbone.norm_f.", "norm."),
    ("lm_head.", "lm_head."),
)


def mamba_from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the `state_dict` of transformers' `MambaForCausalLM` to that of our `Mamba`. Only the names change.

    Tied embeddings are untied: our `lm_head` gets a weight of its own. Theirs has no projection of vectors, so our model takes
    tokens.
    """
    weights = (
        {"lm_head.weight": state["backbone.embeddings.weight"], **state}
        if "backbone.embeddings.weight" in state
        else state
    )
    return {_renamed(name, _MAMBA_PREFIXES).replace(".mixer.", "."): value for name, value in weights.items()}


def mamba_to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `mamba_from_transformers`."""
    prefixes = tuple((ours, theirs) for theirs, ours in _MAMBA_PREFIXES)
    renamed = ((_renamed(name, prefixes), value) for name, value in state.items())
    return {re.sub(r"(layers\.\d+\.)(?!norm\.)", r"\1mixer.", name): value for name, value in renamed}


def _renamed(name: str, prefixes: tuple[tuple[str, str], ...]) -> str:
    """Return the name with its prefix replaced."""
    for old, new in prefixes:
        if name.startswith(old):
            return new + name.removeprefix(old)
    raise ConfigError(
        f"there is no counterpart of {name!r}{near_miss(name, [old for old, _ in prefixes])}; a Mamba's names begin with: "
        + ", ".join(old for old, _ in prefixes)
    )


# ---- rope_parameters --------------------------------------------------------------------------------------------

# For each rope_type our encoding, and the name of our setting for each of their keys.
_TYPES: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("RoPE", {}),
    "linear": ("PI", {"factor": "factor"}),
    "dynamic": ("DynamicNTK", {"factor": "factor"}),
    "yarn": (
        "YaRN",
        {
            name: name
            for name in (
                "factor",
                "beta_fast",
                "beta_slow",
                "truncate",
                "attention_factor",
                "mscale",
                "mscale_all_dim",
            )
        },
    ),
    "longrope": ("LongRoPE", {name: name for name in ("short_factor", "long_factor", "factor", "attention_factor")}),
    "llama3": ("Llama3", {name: name for name in ("factor", "low_freq_factor", "high_freq_factor")}),
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
    """Return the choice for a `rope_parameters` of transformers 5, or a `rope_scaling` of transformers 4 with its `rope_theta`.

    `None` (a layer without RoPE) gives NoPE. The training length is not a setting of our encodings; the model passes it, and
    `trained_length` reads it from the parameters. `max_position_embeddings` is needed for "longrope" and "yarn" without
    `factor`. `layout` is that of the weights: "half" for transformers, except for GPT-J.

    >>> encoding_from_rope_parameters({"rope_type": "default", "rope_theta": 500000.0}, head_dim=64).label
    'RoPE(base=500000.0, layout=half)'
    """
    if parameters is None:
        return choose(NoPE)
    require_positive_int("encoding_from_rope_parameters", head_dim=head_dim)
    if max_position_embeddings is not None:
        require_positive_int("encoding_from_rope_parameters", max_position_embeddings=max_position_embeddings)
    theirs = dict(_require_mapping(parameters))
    legacy = theirs.pop("type", "default")
    kind = theirs.pop("rope_type", legacy)
    are_mappings = [isinstance(value, Mapping) for value in theirs.values() if value is not None]
    if are_mappings and all(are_mappings):
        raise ConfigError(
            f"rope_parameters has one entry for each kind of layer ({', '.join(map(str, theirs))}); convert each separately "
            "and combine them with alternate(...)"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(
            f"there is no counterpart of rope_type {kind!r}{near_miss(str(kind), _TYPES)}; available: {', '.join(_TYPES)}"
        )
    name, names = _TYPES[kind]
    known = {**_COMMON_KEYS, **names}
    if kind == "proportional" and theirs.get("factor") in (1, None):
        theirs.pop("factor", None)  # it has this key, which has no effect at 1
    trained = theirs.pop("original_max_position_embeddings", None)
    if trained is not None:
        require_positive_int("rope_parameters", original_max_position_embeddings=trained)
    for key in theirs:
        if key not in known:
            raise ConfigError(
                f"rope_type {kind!r} has no counterpart of {key!r}{near_miss(str(key), known)}; available: {', '.join(known)}"
            )
    if theirs.get("rope_theta") is None:
        theirs["rope_theta"] = 10_000.0 if rope_theta is None else rope_theta
    require_positive("rope_parameters", rope_theta=theirs["rope_theta"])
    if kind in ("yarn", "longrope") and theirs.get("factor") is None:
        if trained is None or max_position_embeddings is None:
            raise ConfigError(
                f"rope_type {kind!r} without factor uses max_position_embeddings / original_max_position_embeddings; give "
                "both"
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
    for key, ours in known.items():
        value = theirs.get(key)
        value = (
            _DEFAULTS.get(key) if value is None else _converted(key, value, head_dim if ours != "p" else head_dim / 2)
        )
        if value is not None:
            settings[ours] = value
    choice = choose(ENCODINGS.find(name), **settings)
    # This raises if the settings do not fit this head dim.
    choice.build(head_dim=head_dim, train_length=trained or max_position_embeddings or 2048)
    return choice


def _require_mapping(parameters: object) -> Mapping[str, Any]:
    if not isinstance(parameters, Mapping):
        raise ConfigError(
            "rope_parameters must be a dictionary such as {'rope_type': 'default', 'rope_theta': 10000.0}, or None for a layer "
            f"without RoPE, got {parameters!r}, a {type(parameters).__name__}"
        )
    return parameters


def _converted(key: str, value: Any, total: int | float) -> Any:
    """Return the value of our setting for one of their keys. `total`: the number of dims or pairs that a fraction refers to."""
    if key == "partial_rotary_factor":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise ConfigError(f"partial_rotary_factor must be a number, more than 0 and at most 1, got {value!r}")
        part = int(value * total)  # rounded down as in transformers: 50 · 0.58 is 28.999999999999996, so 28
        return float(value) if int(value * total + 1e-9) == part else part / total
    if key in ("short_factor", "long_factor"):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{key} must be a list of numbers, one for each pair of dims, got {value!r}")
        require_positive("rope_parameters", **{f"{key}[{n}]": divisor for n, divisor in enumerate(value)})
    return value


_MAX_HEAD_DIM = 1024  # up to which an exported fraction is exact


def _exported_fraction(fraction: float) -> float:
    """Return the smallest number from `fraction` on for which int(number · n) equals our number of dims for every n.

    For example, 0.58 · 100 is 57.99999999999999 in transformers, so the result for 0.58 is the next larger float.
    """
    ours = {n: int(fraction * n + 1e-9) for n in range(1, _MAX_HEAD_DIM + 1)}
    number = fraction
    for n, part in ours.items():
        if int(number * n) < part:
            number = part / n
            while int(number * n) < part:
                number = math.nextafter(number, 2)
    if any(int(number * n) != part for n, part in ours.items()):
        raise ConfigError(
            f"the fraction must give the same number of dims in transformers, which rounds down, got {fraction!r}; write it with "
            "all its digits"
        )
    return number


def rope_parameters_from_encoding(choice: Choice, *, train_length: int | None = None) -> dict[str, Any] | None:
    """Return the `rope_parameters` for a choice; None for NoPE. Keys that have both libraries' default are left out.

    `train_length`: the `original_max_position_embeddings` of the types that have it. Raise `ConfigError` for an encoding or a
    setting without a counterpart in transformers.

    >>> rope_parameters_from_encoding(choose(RoPE, base=500000.0, layout="half"))
    {'rope_type': 'default', 'rope_theta': 500000.0}
    """
    require_choice("rope_parameters_from_encoding()", choice)
    if train_length is not None:
        require_positive_int("rope_parameters_from_encoding", train_length=train_length)
    if len(choice.layers) > 1:
        raise ConfigError(f"{choice.label} is a pattern over layers; convert each of its layers")
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


def trained_length(parameters: Mapping[str, Any] | None, max_position_embeddings: int) -> int:
    """Return the `train_length` of our model: `original_max_position_embeddings` for the types that use it.

    For all other types it is `max_position_embeddings`.

    >>> trained_length({"rope_type": "llama3", "original_max_position_embeddings": 8192}, 131072)
    8192
    """
    require_positive_int("trained_length", max_position_embeddings=max_position_embeddings)
    theirs = {} if parameters is None else _require_mapping(parameters)
    is_used = theirs.get("rope_type", theirs.get("type")) in _TYPES_WITH_TRAIN_LENGTH
    original = theirs.get("original_max_position_embeddings") if is_used else None
    if original is None:
        return max_position_embeddings
    require_positive_int("rope_parameters", original_max_position_embeddings=original)
    return int(original)
