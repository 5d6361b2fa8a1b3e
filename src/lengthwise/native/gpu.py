"""What every host function of Triton kernels needs."""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

_F = TypeVar("_F", bound=Callable[..., Any])


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def on_device_of_first_argument(function: _F) -> _F:
    """Make the first argument's device the current one, because Triton launches kernels there."""

    @functools.wraps(function)
    def run(x: Tensor, *rest: Any) -> Any:
        if not x.is_cuda:  # the interpreter
            return function(x, *rest)
        with torch.cuda.device(x.device):
            return function(x, *rest)

    return run  # type: ignore[return-value]
