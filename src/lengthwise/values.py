"""Values of settings: strict conversion to declared types, and error messages for invalid values and unknown names."""

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
    """An invalid setting. The message is one line with the problem, the expectation and the fix."""


class ArgumentError(ConfigError, TypeError):
    """An argument or setting that the called function or class does not have."""


# Names of our settings in other libraries and papers. Of several names of ours, the first that the class has is suggested.
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


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'base'?` for an alias such as `theta`, and otherwise the result of `near_miss`."""
    known = list(known)
    our_name = next((candidate for candidate in ALIASES.get(name, ()) if candidate in known), None)
    return near_miss(name, known) if our_name is None else f"; did you mean {our_name!r}?"


SIMILARITY = 0.72  # of a near miss (`difflib`): it accepts "sauce" for "source", but not "logslopes" for "longrope"


def near_miss(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'alibi'?` if a known name is similar to `name`, begins with it or has the same letters, else "".

    Case, dashes and underscores are ignored.
    """

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    spellings = {plain(k): k for k in known}
    near = difflib.get_close_matches(plain(name), spellings, 1, SIMILARITY)
    start, letters = plain(name), sorted(plain(name))
    near = near or [k for k in spellings if sorted(k) == letters or (len(start) >= 3 and k.startswith(start))]
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""


def require_known(owner: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ArgumentError` for the first of `names` that is not in `known`, with a suggestion and the known names."""
    known = list(known)
    for name in names:
        if name not in known:
            available = f"its settings are: {', '.join(known)}" if known else "it has no settings"
            raise ArgumentError(f"{owner} has no setting {name!r}{suggestion(name, known)}; {available}")


EXAMPLE = "postgresql://user@host/name"  # an address in help texts, which contains no secret
_SCHEME = (
    r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|sqlite|mongodb|redis|https?|ftps?|sftp|ssh)(?:\+[A-Za-z0-9_.]+)?:"
)
_PASSWORD = r"(?:passw(?:or)?d|pwd)\s*="  # in a connection string, with or without an address
_ADDRESS = re.compile(
    # The second alternative finds addresses whose double slash `Path` has reduced to one; C:/ is a drive.
    rf"://|^[A-Za-z][A-Za-z0-9+.-]+:/|(?:^|/){_SCHEME}|{_PASSWORD}|^(?![A-Za-z]:[/\\]).*:.*@",
    re.DOTALL | re.IGNORECASE,
)
_SECRETS = (
    re.compile(rf"(?:\b{_SCHEME}|[A-Za-z][A-Za-z0-9+.-]*:/).*@\S*", re.DOTALL | re.IGNORECASE),
    re.compile(r"""[^\s:/'"`]{1,200}:\S*@\S*"""),
    re.compile(
        rf"""[^\s"']{{0,500}}{_PASSWORD}\s*(?:'[^']*'|[^"]*(?=")|[^']*(?=')|\S*)""", re.IGNORECASE
    ),  # to the closing quote
)


def require_no_address(name: str, path: str | os.PathLike[str]) -> None:
    """Raise `ConfigError` for the address of a database or a web page where a folder or file is needed.

    The message contains nothing of the address except a known scheme, because any other part may be a password. Raise
    `ArgumentError` if `path` is neither a string nor a path.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise ArgumentError(f"{name} must be a path, as a string or a Path, got {type(path).__name__}")
    if _ADDRESS.search(text):
        scheme = re.match(_SCHEME, text, re.IGNORECASE)
        visible = f" ({scheme[0].partition('+')[0].rstrip(':')}://...)" if scheme else ""
        raise ConfigError(
            f"{name} must be a folder on this machine, or a file in one, got an address{visible}; database servers are not "
            "supported"
        )


def without_secrets(text: str) -> str:
    """Return `text` with `***` in place of addresses that may contain a password. `EXAMPLE` stays."""
    parts = text.split(EXAMPLE)
    for secret in _SECRETS:
        parts = [secret.sub("***", part) for part in parts]
    return EXAMPLE.join(parts)


def require_integer(owner: str, low: int, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number of at least `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ConfigError(f"{owner}: {name} must be a whole number of at least {low}, got {value!r}")


def require_at_most(owner: str, high: int, **values: int) -> None:
    """Raise `ConfigError` unless each value is at most `high`."""
    for name, value in values.items():
        if value > high:
            raise ConfigError(f"{owner}: {name} must be at most {high:,}, got {value}")


def require_bool(owner: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{owner}: {name} must be true or false, got {value!r}")


def cast(value: Any, expected: Any, name: str) -> Any:
    """Return `value` as the type `expected`; raise `ConfigError` if it has another type.

    An int is converted if a float is expected, and a list if a tuple is. Nothing else is converted.
    """
    origin, args = typing.get_origin(expected), typing.get_args(expected)
    if expected is Any:
        return value
    if origin is Literal:
        if value not in args or type(value) not in {type(a) for a in args}:
            near = near_miss(value, [a for a in args if isinstance(a, str)]) if isinstance(value, str) else ""
            raise ConfigError(f"{name} must be one of {', '.join(map(repr, args))}, got {value!r}{near}")
        return value
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return cast(value, option, name)
            except ConfigError:
                continue
    elif origin is tuple and isinstance(value, (list, tuple)):
        inner = args[0] if len(args) == 2 and args[1] is Ellipsis else None
        if inner is not None:
            return tuple(cast(v, inner, f"{name}[{n}]") for n, v in enumerate(value))
        if len(args) == len(value):
            return tuple(cast(v, a, f"{name}[{n}]") for n, (v, a) in enumerate(zip(value, args, strict=True)))
    elif origin is dict:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: cast(v, args[1], f"{name}[{key!r}]") for key, v in value.items()}
    elif expected is type(None):
        if value is None:
            return None
    elif expected is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value) + 0.0  # turns -0.0 into 0.0, so that equal values have equal hashes
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ConfigError(f"{name} must be a finite number, got {str(value)[:40]}")
        return number
    elif (
        isinstance(expected, type) and isinstance(value, expected) and not (expected is int and isinstance(value, bool))
    ):
        return value
    raise ConfigError(f"{name} must be {_type_name(expected)}, got {value!r} ({type(value).__name__})")


def _type_name(kind: Any) -> str:
    """Return the name of a type for messages: `int or None`, `tuple of int`, `'a' or 'b'`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_type_name, args))
    if origin is tuple:
        parts = [_type_name(arg) for arg in args if arg is not Ellipsis]
        return f"tuple of {parts[0]}" if args[-1] is Ellipsis else f"tuple ({', '.join(parts)})"
    if origin is dict:
        return f"dict of {_type_name(args[1])}"
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))


def parse_value(text: str, expected: Any, name: str) -> Any:
    """Return a value from the command line as the type of its setting."""
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
            return cast(candidate, expected, name)
        except ConfigError:
            continue
    try:
        return cast(candidates[0], expected, name)
    except ConfigError as error:
        if re.search(r"\s\w+=", text):
            raise ConfigError(f"{error}; separate settings with commas, without spaces") from None
        if "tuple" in _type_name(expected):
            raise ConfigError(f"{error}; write a tuple with square brackets, as in [1,2]") from None
        raise


def join_names(names: Sequence[str]) -> str:
    """Return the names as a list in a sentence: `ALiBi, FIRE and T5`."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
