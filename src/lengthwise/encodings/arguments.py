"""The arguments of encodings: a model's sizes, and checks for constructors and methods."""

import math
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.user_classes import wrong_return
from lengthwise.values import require_at_most, require_integer, shown

# Sizes for checking settings before the model is known; every encoding has to work at these sizes.
NOMINAL_SIZES = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}
MAX_COUNT = 2**31  # largest value of a setting that is a count
MIN_NUMBER, MAX_NUMBER = 1e-12, 1e12  # limits of a float setting; at both of them attention in float32 is finite


def require_positive_int(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number from 1 to MAX_COUNT. `what` starts the message."""
    require_integer(what, 1, **values)
    require_at_most(what, MAX_COUNT, **values)  # type: ignore[arg-type]


def require_positive(what: str, *, or_zero: bool = False, **values: object) -> None:
    """Raise `ConfigError` unless each value is a number from 1e-12 to 1e12, or 0 if `or_zero`."""
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


def require_tensor(encoding: object, method: str, value: Any, **sizes: int | None) -> None:
    """Raise `ConfigError` unless a method of an encoding returned a tensor of real numbers with axes of these sizes;
    None: any.

    Truth values are no numbers: as a bias they would be a mask of nearly no effect.
    """
    is_real = isinstance(value, Tensor) and not value.is_complex() and value.dtype != torch.bool
    if (
        not is_real
        or len(value.shape) != len(sizes)
        or any(size not in (None, n) for size, n in zip(sizes.values(), value.shape, strict=True))
    ):
        axes = ", ".join(name if size is None else f"{size} {name}" for name, size in sizes.items())
        raise wrong_return(encoding, method, f"a tensor of real numbers [{axes}]", value)
