"""Checks of the tensors that are passed to an encoding."""

from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError


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
