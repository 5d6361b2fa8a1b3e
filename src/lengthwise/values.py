"""Values of settings: strict, typed, and the same however they are spelled; and the words for those that cannot be."""

import difflib
import json
import math
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal


class ConfigError(ValueError):
    """A setting that cannot be. The message is one line that says what it got, why that cannot be, and what to do."""


class ArgumentError(ConfigError, TypeError):
    """An argument or setting that the function or class called does not have."""


# What other libraries and papers call our settings: for each of their names ours, the first that a class has is meant.
ALIASES: dict[str, tuple[str, ...]] = {
    "theta": ("base",),
    "rope_theta": ("base",),
    "rope_base": ("base",),
    "rotary_emb_base": ("base",),
    "freq_base": ("base",),
    "max_period": ("base",),
    "scaling_factor": ("factor",),
    "scale_factor": ("factor",),
    "rope_factor": ("factor",),
    "alpha": ("factor",),
    "rotary_pct": ("rotary_fraction",),
    "rotary_percent": ("rotary_fraction",),
    "partial_rotary_factor": ("rotary_fraction",),
    "interleaved": ("layout",),
    "is_neox_style": ("layout",),
    "dim": ("head_dim", "d_model"),
    "dim_head": ("head_dim",),
    "d_head": ("head_dim",),
    "head_size": ("head_dim",),
    "heads": ("num_heads",),
    "n_heads": ("num_heads",),
    "n_head": ("num_heads",),
    "nhead": ("num_heads",),
    "num_attention_heads": ("num_heads",),
    "n_kv_heads": ("num_kv_heads",),
    "num_key_value_heads": ("num_kv_heads",),
    "embed_dim": ("d_model",),
    "n_embd": ("d_model",),
    "hidden_size": ("d_model", "width"),
    "hidden_dim": ("width", "d_ff"),
    "mlp_width": ("width",),
    "depth": ("hidden_layers", "num_layers"),
    "n_layers": ("num_layers",),
    "n_layer": ("num_layers",),
    "num_hidden_layers": ("num_layers",),
    "intermediate_size": ("d_ff",),
    "max_position_embeddings": ("max_length", "train_length"),
    "original_max_position_embeddings": ("train_length",),
    "max_seq_len": ("max_length", "train_length"),
    "max_seq_length": ("max_length", "train_length"),
    "max_len": ("max_length",),
    "relative_attention_num_buckets": ("num_buckets",),
    "relative_attention_max_distance": ("max_distance",),
    "learnable": ("learned",),
    "trainable": ("learned",),
    "init_c": ("c",),
    "init_L": ("L",),
}


def meant(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'base'?` for `theta` and the like, and otherwise the near miss, if there is one."""
    known = list(known)
    ours = next((ours for ours in ALIASES.get(name, ()) if ours in known), None)
    return near_miss(name, known) if ours is None else f"; did you mean {ours!r}?"


def near_miss(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'alibi'?` when a known name is close to `name` (case ignored), and an empty string otherwise."""
    spelled = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), spelled, 1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


def require_known(what: str, got: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ArgumentError` for the first name in `got` that `known` lacks, naming what is meant and what there is."""
    known = list(known)
    for name in got:
        if name not in known:
            there_is = f"its settings are: {', '.join(known)}" if known else "it has no settings"
            raise ArgumentError(f"{what} has no setting {name!r}{meant(name, known)}; {there_is}")


EXAMPLE = "postgresql://user@host/name"  # of an address, in advice; it holds no secret
_KNOWN = (
    r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|sqlite|mongodb|redis|https?|ftps?|sftp|ssh)(?:\+[A-Za-z0-9_.]+)?:"
)
_SETTING = r"(?:passw(?:or)?d|pwd)\s*="  # of a connection, alone or in an address
_ADDRESS = re.compile(
    # The second is also what a path has, which keeps one slash; C:/ is a drive.
    rf"://|^[A-Za-z][A-Za-z0-9+.-]+:/|(?:^|/){_KNOWN}|{_SETTING}|^(?![A-Za-z]:[/\\]).*:.*@",
    re.DOTALL | re.IGNORECASE,
)
_SECRETS = (
    re.compile(rf"(?:\b{_KNOWN}|[A-Za-z][A-Za-z0-9+.-]*:/).*@\S*", re.DOTALL | re.IGNORECASE),
    re.compile(r"""[^\s:/'"`]{1,200}:\S*@\S*"""),
    re.compile(
        rf"""[^\s"']{{0,500}}{_SETTING}\s*(?:'[^']*'|[^"]*(?=")|[^']*(?=')|\S*)""", re.IGNORECASE
    ),  # to the closing quote
)


def require_no_address(what: str, where: str | os.PathLike[str]) -> None:
    """Raise `ConfigError` for the address of a database or a web page where a folder or file is needed.

    The message has nothing of the address but a scheme that is known: any other part may be a password. `ArgumentError` for what
    is no path at all.
    """
    text = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise ArgumentError(f"{what} is of type {type(where).__name__}; give a path, as text or a Path")
    if _ADDRESS.search(text):
        scheme = re.match(_KNOWN, text, re.IGNORECASE)
        shown = f" ({scheme[0].partition('+')[0].rstrip(':')}://...)" if scheme else ""
        raise ConfigError(
            f"{what} is an address{shown}, and it has to be a folder on this machine, or a file in one; databases are not "
            "supported by address yet"
        )


def without_secrets(text: str) -> str:
    """Return `text` without the addresses in it that may have a password, and with `EXAMPLE` wherever it stands."""
    parts = text.split(EXAMPLE)
    for secret in _SECRETS:
        parts = [secret.sub("***", part) for part in parts]
    return EXAMPLE.join(parts)


def require_whole(what: str, low: int, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number, at least `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ConfigError(f"{what}: {name} is {value!r}; it has to be a whole number, at least {low}")


def require_most(what: str, high: int, **values: int) -> None:
    """Raise `ConfigError` unless each value is at most `high`."""
    for name, value in values.items():
        if value > high:
            raise ConfigError(f"{what}: {name} is {value}; it has to be at most {high:,}")


def require_bool(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{what}: {name} is {value!r}; it is true or false")


def cast(value: Any, wanted: Any, where: str) -> Any:
    """`value` as the type `wanted`, or a `ConfigError`. An int is a float where a float is wanted, and nothing else bends."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return value
    if origin is Literal:
        if value not in args or type(value) not in {type(a) for a in args}:
            near = near_miss(value, [a for a in args if isinstance(a, str)]) if isinstance(value, str) else ""
            raise ConfigError(f"{where} is {value!r}{near}; it is one of: {', '.join(map(repr, args))}")
        return value
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return cast(value, option, where)
            except ConfigError:
                continue
    elif origin is tuple and isinstance(value, (list, tuple)):
        inner = args[0] if len(args) == 2 and args[1] is Ellipsis else None
        if inner is not None:
            return tuple(cast(v, inner, f"{where}[{n}]") for n, v in enumerate(value))
        if len(args) == len(value):
            return tuple(cast(v, a, f"{where}[{n}]") for n, (v, a) in enumerate(zip(value, args, strict=True)))
    elif origin is dict:
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {name: cast(v, args[1], f"{where}[{name!r}]") for name, v in value.items()}
    elif wanted is type(None):
        if value is None:
            return None
    elif wanted is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value) + 0.0  # -0.0 is 0.0: one value has one spelling
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ConfigError(f"{where} is {str(value)[:40]}; it has to be a finite number")
        return number
    elif isinstance(wanted, type) and isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} is {value!r}, a {type(value).__name__}; it has to be {_spelled(wanted)}")


def _spelled(wanted: Any) -> str:
    """A type as its setting is written: `int or None`, `tuple of int`, `'a' or 'b'`."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_spelled, args))
    if origin is tuple:
        parts = [_spelled(arg) for arg in args if arg is not Ellipsis]
        return f"tuple of {parts[0]}" if args[-1] is Ellipsis else f"tuple ({', '.join(parts)})"
    if origin is dict:
        return f"dict of {_spelled(args[1])}"
    return "None" if wanted is type(None) else getattr(wanted, "__name__", str(wanted))


def parse_value(text: str, wanted: Any, where: str) -> Any:
    """A value typed on a command line, as the type that the setting has."""
    candidates: list[Any] = []
    try:
        candidates.append(json.loads(text))
    except ValueError:
        if text.lower() in ("true", "false"):
            candidates.append(text.lower() == "true")
        elif text.lower() == "none":
            candidates.append(None)
    candidates.append(text)
    for candidate in candidates:
        try:
            return cast(candidate, wanted, where)
        except ConfigError:
            continue
    return cast(candidates[0], wanted, where)


def listing(words: Sequence[str]) -> str:
    """`ALiBi, FIRE and T5`."""
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"
