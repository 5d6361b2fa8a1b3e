"""Weights and settings of other libraries as ours, and back, without loss: order of dims, T5's table, ALiBi's slopes,
`rope_parameters`, the names in a Mamba.

Nothing is computed on a weight: rows change places, so every conversion back gives the same bits, whatever the dtype. Learned
slopes alone are kept as their logarithms here.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from lengthwise.choices import require_choice, settings_of
from lengthwise.config import Choice, ConfigError, choose, near_miss
from lengthwise.encodings import ENCODINGS, ALiBi, NoPE
from lengthwise.encodings.alibi import slopes
from lengthwise.encodings.base import at_least, positive

Layout = Literal["interleaved", "half"]


# ---- the order of dims in the projections of queries and keys ---------------------------------------------------


def half_from_interleaved(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """The projection of queries or keys, made for pairs (2p, 2p+1), for pairs (p, p + rotary_dims/2): rows change places.

    `weight` [num_heads · head_dim, d_model], or a bias [num_heads · head_dim]. `num_heads` is that of the projection: with
    grouped queries the keys have fewer. `rotary_dims`: how many of a head's first dims turn; all, when not given. Logits
    stay as they were when queries and keys are both converted; values and the output projection stay.

    >>> half_from_interleaved(torch.arange(6), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 2, 1, 3, 4, 5])
    """
    return weight[_rows(weight, num_heads, head_dim, rotary_dims, "half")]


def interleaved_from_half(
    weight: Shaped[Tensor, "hd *c"], *, num_heads: int, head_dim: int, rotary_dims: int | None = None
) -> Shaped[Tensor, "hd *c"]:
    """The way back of `half_from_interleaved`: for the pairs (2p, 2p+1) of GPT-J and the paper.

    >>> interleaved_from_half(torch.tensor([0, 2, 1, 3, 4, 5]), num_heads=1, head_dim=6, rotary_dims=4)
    tensor([0, 1, 2, 3, 4, 5])
    """
    return weight[_rows(weight, num_heads, head_dim, rotary_dims, "interleaved")]


def _rows(weight: Tensor, num_heads: int, head_dim: int, rotary_dims: int | None, to: Layout) -> Tensor:
    _require_dims("the weight", weight, (1, 2), "[num_heads · head_dim, d_model], or a bias [num_heads · head_dim]")
    at_least("rows that change places", num_heads=num_heads, head_dim=head_dim)
    dims = head_dim if rotary_dims is None else rotary_dims
    if isinstance(dims, bool) or not isinstance(dims, int):
        raise ConfigError(f"rotary_dims is {dims!r}; it has to be a whole number (a fraction · head_dim)")
    if not 0 < dims <= head_dim or dims % 2:
        raise ConfigError(f"rotary_dims is {dims}; it has to be even, and 2 to head_dim {head_dim}")
    if len(weight) != num_heads * head_dim:
        raise ConfigError(
            f"the weight has {len(weight)} rows, but {num_heads} heads of {head_dim} dims are {num_heads * head_dim}; "
            "give the number of heads of this projection (keys may have fewer), and queries, keys and values apart"
        )
    order = torch.arange(head_dim, device=weight.device)
    pairs = order[:dims].view(-1, 2).T if to == "half" else order[:dims].view(2, -1).T
    order = torch.cat([pairs.flatten(), order[dims:]])
    return (torch.arange(num_heads, device=weight.device)[:, None] * head_dim + order).flatten()


def _require_dims(what: str, given: object, dims: tuple[int, ...], shape: str) -> None:
    if not isinstance(given, Tensor):
        raise ConfigError(f"{what} is a {type(given).__name__}; give a tensor {shape}")
    if given.ndim not in dims:
        raise ConfigError(f"{what} has the shape {list(given.shape)}; give a tensor {shape}")


# ---- tables and slopes ------------------------------------------------------------------------------------------


def t5_weight_from_table(table: Shaped[Tensor, "buckets heads"]) -> Shaped[Tensor, "heads buckets"]:
    """T5's `relative_attention_bias.weight` as the weight of our T5, which has a row for each head.

    >>> t5_weight_from_table(torch.tensor([[1, 2], [3, 4], [5, 6]]))
    tensor([[1, 3, 5],
            [2, 4, 6]])
    """
    _require_dims("T5's table", table, (2,), "[buckets, heads]")
    return table.T.contiguous()


def t5_table_from_weight(weight: Shaped[Tensor, "heads buckets"]) -> Shaped[Tensor, "buckets heads"]:
    """The weight of our T5 as the table of Hugging Face's, which has a row for each bucket."""
    _require_dims("T5's weight", weight, (2,), "[heads, buckets]")
    return weight.T.contiguous()


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """The slopes of our ALiBi, in float64: what other libraries keep in a buffer, in the same order of heads.

    >>> alibi_slopes(3)
    tensor([0.0625, 0.0039, 0.2500], dtype=torch.float64)
    """
    at_least("alibi_slopes", num_heads=num_heads)
    return torch.tensor(slopes(num_heads), dtype=torch.float64)


def alibi_from_slopes(given: Float[Tensor, "*shape"]) -> Choice:
    """Our ALiBi for the slopes of another library's, of any shape with one number for each head.

    `ConfigError` when they are not the published ones to the precision of their dtype: learned, of another maximum, or
    in another order of heads."""
    _require_slopes(given)
    ours = alibi_slopes(given.numel())
    off = ((given.detach().cpu().flatten().to(torch.float64) - ours) / ours).abs()
    wrong = (~(off <= 2 * torch.finfo(given.dtype).eps)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {given.numel()} heads is {float(given.flatten()[first]):.6g}, and ALiBi's is "
            f"{float(ours[first]):.6g}; ALiBi(learned=True) takes others, with log_slopes from alibi_log_slopes(slopes)"
        )
    return choose(ALiBi)


def alibi_log_slopes(given: Float[Tensor, "*shape"]) -> Float[Tensor, " heads"]:
    """The `log_slopes` of our ALiBi(learned=True) for slopes of any shape, one for each head: of another maximum, or learned.

    In float64; the parameter keeps float32, and its slopes are then right to about 1e-7 · |log slope| of themselves.
    `ConfigError` for a slope that is not above 0, which ours cannot have.

    >>> alibi = ALiBi(num_heads=2, learned=True)
    >>> _ = alibi.load_state_dict({"log_slopes": alibi_log_slopes(torch.tensor([0.5, 0.125]))})
    >>> alibi.bias(torch.tensor([2]))
    tensor([[-1.0000],
            [-0.2500]], dtype=torch.float64, grad_fn=<MulBackward0>)
    """
    _require_slopes(given)
    slopes = given.detach().flatten().to(torch.float64)
    wrong = (~((slopes > 0) & slopes.isfinite())).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ConfigError(
            f"slope {first} of {given.numel()} heads is {float(slopes[first]):.6g}; ALiBi(learned=True) has finite slopes above 0"
        )
    return slopes.log()


def _require_slopes(given: object) -> None:
    if not isinstance(given, Tensor) or not given.numel() or not given.is_floating_point():
        what = f"{given.dtype} {list(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise ConfigError(f"the slopes are {what}; give a tensor of floats, one for each head")


# ---- Mamba ------------------------------------------------------------------------------------------------------

_MAMBA = (  # the beginnings of transformers' names, and ours
    ("backbone.layers.", "blocks."),
    ("backbone.embeddings.", "read."),
    ("backbone.norm_f.", "norm."),
    ("lm_head.", "write."),
)


def mamba_from_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `state_dict` of transformers' `MambaForCausalLM` as that of our `Mamba`; the parameters themselves are the same.

    An output head that shares the table of the embeddings is one of its own here. Theirs has no linear map of vectors, so
    ours reads tokens.
    """
    given = (
        {"lm_head.weight": state["backbone.embeddings.weight"], **state}
        if "backbone.embeddings.weight" in state
        else state
    )
    return {_renamed(name, _MAMBA).replace(".mixer.", "."): value for name, value in given.items()}


def mamba_to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The way back of `mamba_from_transformers`."""
    back = tuple((ours, theirs) for theirs, ours in _MAMBA)
    renamed = ((_renamed(name, back), value) for name, value in state.items())
    return {re.sub(r"(layers\.\d+\.)(?!norm\.)", r"\1mixer.", name): value for name, value in renamed}


def _renamed(name: str, beginnings: tuple[tuple[str, str], ...]) -> str:
    for old, new in beginnings:
        if name.startswith(old):
            return new + name.removeprefix(old)
    raise ConfigError(
        f"there is no counterpart of {name!r}{near_miss(name, [old for old, _ in beginnings])}; a Mamba's names begin with: "
        + ", ".join(old for old, _ in beginnings)
    )


# ---- rope_parameters --------------------------------------------------------------------------------------------

# rope_type: our encoding, and what their keys are called here.
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
_EVERYWHERE = {"rope_theta": "base", "partial_rotary_factor": "rotary_fraction"}
_NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_USUAL: dict[str, Any] = {  # what their keys are when they are not given, whatever ours are
    "partial_rotary_factor": 1.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
    "attention_factor": None,
    "mscale": 1.0,
    "mscale_all_dim": 0.0,
}
_TRAINED = ("yarn", "longrope", "llama3")  # types that have original_max_position_embeddings


def encoding_from_rope_parameters(
    parameters: Mapping[str, Any] | None,
    *,
    head_dim: int,
    rope_theta: float | None = None,
    max_position_embeddings: int | None = None,
    layout: Layout = "half",
) -> Choice:
    """The choice for a `rope_parameters` of transformers 5, or a `rope_scaling` of transformers 4 with its `rope_theta`.

    `None` (a layer without rope) is NoPE. The trained length is no setting of ours but what the model is told:
    `trained_length` reads it. `max_position_embeddings` is for "longrope" and "yarn" without `factor`. `layout` is
    that of the weights: transformers' are "half", but for GPT-J's.

    >>> encoding_from_rope_parameters({"rope_type": "default", "rope_theta": 500000.0}, head_dim=64).label
    'RoPE(base=500000.0, layout=half)'
    """
    if parameters is None:
        return choose(NoPE)
    at_least("encoding_from_rope_parameters", head_dim=head_dim)
    if max_position_embeddings is not None:
        at_least("encoding_from_rope_parameters", max_position_embeddings=max_position_embeddings)
    given = dict(_require_mapping(parameters))
    legacy = given.pop("type", "default")
    kind = given.pop("rope_type", legacy)
    layered = [isinstance(value, Mapping) for value in given.values() if value is not None]
    if layered and all(layered):
        raise ConfigError(
            f"rope_parameters has one entry for each kind of layer ({', '.join(map(str, given))}); convert each by itself "
            "and make a pattern of them with alternate(...)"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(
            f"there is no counterpart of rope_type {kind!r}{near_miss(str(kind), _TYPES)}; there are: {', '.join(_TYPES)}"
        )
    name, names = _TYPES[kind]
    known = {**_EVERYWHERE, **names}
    if kind == "proportional" and given.get("factor") in (1, None):
        given.pop("factor", None)  # one of its keys, and nothing at 1
    trained = given.pop("original_max_position_embeddings", None)
    if trained is not None:
        at_least("rope_parameters", original_max_position_embeddings=trained)
    for key in given:
        if key not in known:
            raise ConfigError(
                f"rope_type {kind!r} has no counterpart of {key!r}{near_miss(str(key), known)}; it has: {', '.join(known)}"
            )
    if given.get("rope_theta") is None:
        given["rope_theta"] = 10_000.0 if rope_theta is None else rope_theta
    positive("rope_parameters", rope_theta=given["rope_theta"])
    if kind in ("yarn", "longrope") and given.get("factor") is None:
        if trained is None or max_position_embeddings is None:
            raise ConfigError(
                f"rope_type {kind!r} without factor takes max_position_embeddings / original_max_position_embeddings; give "
                "both"
            )
        given["factor"] = max_position_embeddings / trained
    for key in _NEEDED.get(kind, ()):
        if given.get(key) is None:
            has = ", ".join(name for name, value in parameters.items() if value is not None)
            raise ConfigError(f"rope_type {kind!r} needs {key}, and rope_parameters has: {has}")
    if given.get("attention_factor") is not None or not (given.get("mscale") and given.get("mscale_all_dim")):
        given.pop("mscale", None)  # one alone says nothing there, nor both beside attention_factor
        given.pop("mscale_all_dim", None)
    settings: dict[str, Any] = {"layout": layout}
    for key, ours in known.items():
        value = given.get(key)
        value = _USUAL.get(key) if value is None else _ours(key, value, head_dim if ours != "p" else head_dim / 2)
        if value is not None:
            settings[ours] = value
    choice = choose(ENCODINGS.find(name), **settings)
    choice.build(
        head_dim=head_dim, train_length=trained or max_position_embeddings or 2048
    )  # whether it fits this head
    return choice


def _require_mapping(parameters: object) -> Mapping[str, Any]:
    if not isinstance(parameters, Mapping):
        raise ConfigError(
            f"rope_parameters is {parameters!r}, a {type(parameters).__name__}; give a dictionary such as "
            "{'rope_type': 'default', 'rope_theta': 10000.0}, or None for a layer without rope"
        )
    return parameters


def _ours(key: str, value: Any, all_of: int | float) -> Any:
    if key == "partial_rotary_factor":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise ConfigError(f"partial_rotary_factor is {value!r}; it has to be a number, more than 0 and at most 1")
        part = int(value * all_of)  # as there: 50 · 0.58 is 28.999999999999996, and is 28
        return float(value) if int(value * all_of + 1e-9) == part else part / all_of
    if key in ("short_factor", "long_factor"):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{key} is {value!r}; it has to be a list of numbers, one for each pair of dims")
        positive("rope_parameters", **{f"{key}[{n}]": divisor for n, divisor in enumerate(value)})
    return value


_MOST = 1024  # dims of a head, for which a fraction is written down


def _fraction_to_write(fraction: float) -> float:
    """The smallest number from `fraction` on for which int(number · n) is what ours takes of every n: 0.58 · 100 is
    57.99999999999999 there, so it is the number after 0.58."""
    ours = {n: int(fraction * n + 1e-9) for n in range(1, _MOST + 1)}
    number = fraction
    for n, part in ours.items():
        if int(number * n) < part:
            number = part / n
            while int(number * n) < part:
                number = math.nextafter(number, 2)
    if any(int(number * n) != part for n, part in ours.items()):
        raise ConfigError(
            f"no number is the fraction {fraction!r} of every head to transformers, which rounds its product down; give it with "
            "all its digits"
        )
    return number


def rope_parameters_from_encoding(choice: Choice, *, train_length: int | None = None) -> dict[str, Any] | None:
    """`rope_parameters` for a choice; None for NoPE. What is at its default there and here is left out.

    `train_length`: written down for the types that have `original_max_position_embeddings`. `ConfigError` for an encoding
    that transformers has no counterpart of, or for a setting of it.

    >>> rope_parameters_from_encoding(choose(RoPE, base=500000.0, layout="half"))
    {'rope_type': 'default', 'rope_theta': 500000.0}
    """
    require_choice("rope_parameters_from_encoding()", choice)
    if train_length is not None:
        at_least("rope_parameters_from_encoding", train_length=train_length)
    if len(choice.layers) > 1:
        raise ConfigError(f"{choice.label} is a pattern over layers; convert each of its layers")
    if choice.make is NoPE:
        return None
    kind = next((kind for kind, (name, _) in _TYPES.items() if name == choice.name), None)
    if kind is None:
        there = ", ".join(name for name, _ in _TYPES.values())
        raise ConfigError(f"transformers has no rope_type for {choice.label}; it has counterparts of: {there}")
    theirs = {ours: key for key, ours in {**_EVERYWHERE, **_TYPES[kind][1]}.items()}
    usual = settings_of(choice.make)
    given = dict(choice.settings)
    scales = given.get("mscale", 1), given.get("mscale_all_dim", 0)
    if scales != (1, 0) and not all(scales):
        raise ConfigError(
            f"transformers reads mscale and mscale_all_dim where neither is 0, and {choice.label} has {scales[0]} and "
            f"{scales[1]}; give attention_factor"
        )
    made: dict[str, Any] = {"rope_type": kind}
    for name, value in given.items():
        if name in theirs:
            beside_mscale = name == "mscale" and given["mscale_all_dim"]
            if beside_mscale or theirs[name] not in _USUAL or value != _USUAL[theirs[name]]:
                value = _fraction_to_write(value) if theirs[name] == "partial_rotary_factor" else value
                made[theirs[name]] = list(value) if isinstance(value, tuple) else value
            if value is None and theirs[name] in _NEEDED.get(kind, ()):
                raise ConfigError(
                    f"rope_type {kind!r} needs {theirs[name]}, and {choice.label} leaves it to its formula"
                )
        elif name != "layout" and value != usual[name].default:
            raise ConfigError(f"rope_type {kind!r} has no counterpart of {name}={value!r} of {choice.name}")
    if kind in _TRAINED:
        if train_length is None:
            raise ConfigError(f"rope_type {kind!r} writes original_max_position_embeddings down; give train_length")
        made["original_max_position_embeddings"] = train_length
    return made


def trained_length(parameters: Mapping[str, Any] | None, max_position_embeddings: int) -> int:
    """What our model is told as `train_length`: `original_max_position_embeddings`, in the types that read it.

    >>> trained_length({"rope_type": "llama3", "original_max_position_embeddings": 8192}, 131072)
    8192
    """
    at_least("trained_length", max_position_embeddings=max_position_embeddings)
    given = {} if parameters is None else _require_mapping(parameters)
    read = given.get("rope_type", given.get("type")) in _TRAINED
    original = given.get("original_max_position_embeddings") if read else None
    if original is None:
        return max_position_embeddings
    at_least("rope_parameters", original_max_position_embeddings=original)
    return int(original)
