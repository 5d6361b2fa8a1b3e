"""The arguments of encodings: checks before a constructor runs, and checks for constructors and methods."""

import inspect
import math
from abc import ABCMeta
from functools import cache
from typing import Any, Literal, Unpack, get_args, get_origin

import torch
from torch import Tensor

from lengthwise.class_versions import is_builtin_class, require_complete
from lengthwise.config import ConfigError, annotation, context_of, settings_of
from lengthwise.values import (
    ArgumentError,
    join_names,
    require_at_most,
    require_bool,
    require_integer,
    require_known,
    shown,
)

# Sizes for checking settings before the model is known; every encoding has to work at these sizes.
NOMINAL_SIZES = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}
_MEANINGS = {
    "num_heads": "the number of attention heads",
    "head_dim": "the dimensions of each head",
    "d_model": "the width of the model",
    "train_length": "the length that the model was trained at",
}
MAX_COUNT = 2**31  # largest value of a setting that is a count
MIN_NUMBER, MAX_NUMBER = 1e-12, 1e12  # limits of a float setting; at both of them attention in float32 is finite


class CheckedArguments(ABCMeta):
    """The metaclass of encodings. It checks arguments before Python does, so that errors explain them.

    Sizes must be positive whole numbers, and a setting that is declared as a `bool` or a `Literal` one of its values.
    Constructors check all other settings. `__new__` could not do this, because copying and unpickling call it without
    arguments.
    """

    def __call__(cls, *args: Any, **arguments: Any) -> Any:
        if not is_builtin_class(cls):
            require_complete(cls)
        required = context_of(cls)
        known = [*required, *settings_of(cls)]
        if args:
            example = ", ".join(f"{name}={value!r}" for name, value in zip(known, args, strict=False))
            raise ArgumentError(f"{cls.__name__} takes its arguments by name; write {cls.__name__}({example})")
        if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values()):
            require_known(cls.__name__, arguments, known)
        if missing := [name for name in required if name not in arguments]:
            needed = [f"{name} ({_MEANINGS[name]})" if name in _MEANINGS else name for name in missing]
            values = {name: NOMINAL_SIZES.get(name, "...") for name in missing}
            example = ", ".join(f"{name}={value}" for name, value in {**arguments, **values}.items())
            raise ArgumentError(
                f"{cls.__name__} needs {join_names(needed)}; write, for example, {cls.__name__}({example})"
            )
        require_positive_int(cls.__name__, **{name: arguments[name] for name in required if name in _MEANINGS})
        for name, parameter in settings_of(cls).items():
            if name in arguments:
                _require_declared(cls.__name__, name, arguments[name], annotation(cls, parameter))
        return super().__call__(**arguments)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`. Without it, `inspect.signature` would return that of `__call__`."""
        return _signature(cls)


@cache
def _signature(cls: type) -> inspect.Signature:
    """Return the signature of `__init__`, in which `**name: Unpack[...]` stands for these arguments of the base class."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    if parameters and get_origin(parameters[-1].annotation) is Unpack:
        owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
        (names,) = get_args(parameters.pop().annotation)
        inherited = inspect.signature(owner.__mro__[1]).parameters
        own = {p.name: p for p in parameters}
        by_name = {name: p for name, p in inherited.items() if name in {*names.__annotations__, *own}} | own
        parameters = sorted(by_name.values(), key=lambda p: p.default is not p.empty)
    return signature.replace(parameters=parameters)


def _require_declared(owner: str, name: str, value: object, declared: object) -> None:
    options = get_args(declared)
    if declared is bool:
        require_bool(owner, **{name: value})
    elif get_origin(declared) is Literal and value not in options:
        one_of = " or ".join(map(repr, options)) if len(options) < 3 else f"one of {', '.join(map(str, options))}"
        raise ConfigError(f"{owner}: {name} must be {one_of}, got {shown(value)}")


def require_positive_int(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number from 1 to MAX_COUNT. `what` starts the message."""
    require_integer(what, 1, **values)
    require_at_most(what, MAX_COUNT, **values)  # type: ignore[arg-type]


def require_positive(what: str, *, or_zero: bool = False, **values: object) -> None:
    """Raise `ConfigError` unless each value is a number from 1e-12 to 1e12, or 0 if `or_zero`. `what` starts the message."""
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf or (value == 0 and not or_zero):  # type: ignore[operator]
            low = ", 0 or more" if or_zero else " more than 0"
            raise ConfigError(f"{what}: {name} must be a finite number{low}, got {shown(value)}")
        if value and not MIN_NUMBER <= value <= MAX_NUMBER:  # type: ignore[operator]
            low = f"{'0, or ' * or_zero}at least {MIN_NUMBER:g}"
            limit = low if value < MIN_NUMBER else f"at most {MAX_NUMBER:g}"  # type: ignore[operator]
            raise ConfigError(f"{what}: {name} must be {limit}, got {shown(value)}")


def require_input(what: str, x: Any, d_model: int) -> None:
    """Raise `ConfigError` unless `x` is a tensor [batch, tokens, d_model]. `what` starts the message."""
    if not isinstance(x, Tensor):
        raise ConfigError(f"{what}: x must be a tensor [batch, tokens, {d_model}], got {type(x).__name__}")
    if x.ndim != 3:
        raise ConfigError(f"{what}: x must be a tensor [batch, tokens, {d_model}], got shape {list(x.shape)}")
    if x.shape[-1] != d_model:
        raise ConfigError(
            f"{what}: the last dimension of x must be d_model = {d_model}, got {x.shape[-1]}; set d_model to that"
        )


def require_positions(what: str, positions: Any, x: Tensor) -> None:
    """Raise `ConfigError` unless `positions` are int64 or int32 [batch or 1, tokens], one for each token of `x`."""
    batch, tokens = x.shape[:2]
    if not isinstance(positions, Tensor):
        raise ConfigError(f"{what}: positions must be a tensor of int64, got {type(positions).__name__}")
    if positions.dtype not in (torch.int64, torch.int32):
        raise ConfigError(f"{what}: positions must be whole numbers (int64), got {positions.dtype}")
    if positions.ndim != 2 or positions.shape[1] != tokens or positions.shape[0] not in (1, batch):
        raise ConfigError(
            f"{what}: positions must have the shape [{batch}, {tokens}] or [1, {tokens}], like the tokens of x, got "
            f"{list(positions.shape)}"
        )
