"""Consistency checks of user-defined position schemes: what `positions` returns has to be what the base class promises."""

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import PositionScheme
from lengthwise.user_classes import is_builtin_class, source_location

ROWS = 2


def require_consistent(scheme: PositionScheme, tokens: int, inputs: Tensor | None = None) -> None:
    """Raise `ConfigError`, with the file and line of the class, if the positions of a small batch contradict the scheme.

    Positions must be whole numbers [batch, tokens], or [batch, tokens, num_axes], in 0 ... `num_positions` - 1, and the same for
    the same generator state: a run could not be repeated or resumed otherwise. Lengthwise's own schemes are not checked here,
    because the tests do that.
    """
    make = type(scheme)
    if is_builtin_class(make):
        return
    where = f"{source_location(make)}: {make.__name__}"
    inputs = torch.zeros(ROWS, tokens, dtype=torch.long) if inputs is None else inputs
    for training in (True, False):
        scheme.require(tokens, training)
        first, second = (scheme.positions(inputs, None, torch.Generator().manual_seed(0), training) for _ in range(2))
        if first is None and second is None:
            continue
        axes = [] if scheme.num_axes == 1 else [scheme.num_axes]
        shape = [*inputs.shape[:2], *axes]
        if not isinstance(first, Tensor) or first.dtype != torch.int64 or list(first.shape) != shape:
            got = f"{first.dtype} of shape {list(first.shape)}" if isinstance(first, Tensor) else type(first).__name__
            raise ConfigError(
                f"{where}.positions must return a tensor of int64 [batch, tokens{', num_axes' if axes else ''}], here {shape}, or "
                f"None for consecutive positions, got {got}"
            )
        if first.device != inputs.device:
            raise ConfigError(f"{where}.positions must return a tensor on the device of its inputs, got {first.device}")
        if not isinstance(second, Tensor) or not torch.equal(first, second):
            raise ConfigError(
                f"{where}.positions must return the same positions for the same generator state; pass its generator to every "
                "random function, as in torch.randint(10, (rows, tokens), generator=generator)"
            )
        bound = scheme.checked_num_positions(tokens, training)
        if first.numel() and not 0 <= int(first.min()) <= int(first.max()) < bound:
            raise ConfigError(
                f"{where}.positions must lie in 0 ... num_positions - 1, here 0 ... {bound - 1}, got {int(first.min())} ... "
                f"{int(first.max())}"
            )
