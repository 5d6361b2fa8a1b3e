"""Check settings, rows and files against declared types. pydantic checks, and its errors become one line."""

import contextlib
import dataclasses
import functools
import json
import math
import re
import types
import typing
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from lengthwise.values import ConfigError, near_miss, require_known, shown

T = TypeVar("T")

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
"""How classes are checked that declare it as `__pydantic_config__`, and all other types: no text is taken for a number.
"""


def validated(value: Any, expected: Any, name: str) -> Any:
    """Return `value` as the type `expected`, a list as a tuple; raise `ConfigError` for a wrong type."""
    try:
        result = _adapter(expected).validate_python(_as_tuple(value))
    except ValidationError as error:
        raise ConfigError(_wrong_type(error.errors()[0], value, expected, name)) from None
    return 0.0 if isinstance(result, float) and result == 0 else result  # not -0.0, so that equal runs have equal keys


def from_json(kind: type[T], text: str | bytes) -> T:
    """Return the dataclass that JSON describes. Raise `ConfigError` with the first problem."""
    declared: Any = kind
    try:
        return typing.cast(T, _adapter(declared).validate_json(text))
    except ValidationError as error:
        problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        raise ConfigError(f"it is not JSON ({problem['ctx']['error']})")
    owner, place = _owner(kind, problem["loc"]), problem["loc"]
    if problem["type"] == "unexpected_keyword_argument":
        require_known(owner.__name__, [str(place[-1])], [field.name for field in dataclasses.fields(owner)])
    if problem["type"] == "missing":
        raise ConfigError(f"{owner.__name__} needs the setting {place[-1]!r}, which has no default")
    if problem["type"] == "value_error" and not str(problem["ctx"]["error"]).startswith("must "):
        raise problem["ctx"]["error"]
    name = next((step for step in reversed(place) if step in _hints(owner)), None)
    if name is None:
        raise ConfigError(f"{owner.__name__} must be an object with named settings, got {shown(problem['input'])}")
    hint, where = _hints(owner)[str(name)], f"{owner.__name__}.{name}"
    if isinstance(place[-1], int) and typing.get_origin(hint) is tuple:
        hint, where = typing.get_args(hint)[0], f"{where}[{place[-1]}]"
    raise ConfigError(_wrong_type(problem, problem["input"], hint, where))


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    inner = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
    return TypeAdapter(kind, config=None if dataclasses.is_dataclass(inner) else STRICT)  # these have their own


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    return typing.get_type_hints(owner, include_extras=True)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _owner(kind: Any, place: tuple[int | str, ...]) -> Any:
    """Return the class with the setting at a place, such as `TrainingConfig` for ("training", "steps") in a `Run`."""
    for name in place[:-1]:
        hint = _hints(kind).get(str(name))
        inside = [hint, *typing.get_args(hint)]
        kind = next((kind_inside for kind_inside in inside if dataclasses.is_dataclass(kind_inside)), kind)
    return kind


def _wrong_type(problem: ErrorDetails, value: Any, expected: Any, name: str) -> str:
    if problem["type"] == "value_error":
        text = str(problem["ctx"]["error"])
        return f"{name} {text}" if text.startswith("must ") else text
    if problem["type"] == "finite_number" or (isinstance(value, float) and not math.isfinite(value)):
        return f"{name} must be a finite number, got {shown(value)}"
    if typing.get_origin(expected) is Literal:
        options = typing.get_args(expected)
        near = near_miss(value, [o for o in options if isinstance(o, str)]) if isinstance(value, str) else ""
        return f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}{near}"
    return f"{name} must be {type_name(expected)}, got {shown(value)} ({type(value).__name__})"


def type_name(kind: Any) -> str:
    """Return the name of a type for messages: `int or None`, `tuple of int`, `'a' or 'b'`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_name(args[0])
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(type_name, args))
    if origin is tuple:
        element_types = [type_name(arg) for arg in args if arg is not Ellipsis]
        return f"tuple of {element_types[0]}" if args[-1] is Ellipsis else f"tuple ({', '.join(element_types)})"
    if origin is dict:
        return f"dict of {type_name(args[1])}"
    if kind is bool:
        return "true or false"
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))


def parse_value(text: str, expected: Any, name: str) -> Any:
    """Return a value from the command line as the type of its setting."""
    try:
        value = json.loads(text)
    except ValueError:
        value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    try:
        return validated(value, expected, name)
    except ConfigError as error:
        with contextlib.suppress(ConfigError):
            return validated(text, expected, name)
        if re.search(r"\s\w+=", text):
            raise ConfigError(f"{error}; separate settings with commas, without spaces") from None
        if "tuple" in type_name(expected):
            raise ConfigError(f"{error}; write a tuple with square brackets, as in [1,2]") from None
        raise
