"""What takes the place of a model's rotary embedding: a rotation by an angle of 0, which costs almost nothing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SHAPES = {"unsqueeze", "squeeze", "__getitem__", "to", "expand", "transpose", "contiguous", "view", "reshape", "float"}
FEW_TOKENS = 64  # fewer are multiplied faster than Python decides that they need not be
PRODUCTS, SUMS = {"mul", "__mul__", "__rmul__"}, {"add", "__add__", "__radd__"}


class Constant(Tensor):
    """A tensor of ones or of zeros. A product with it, and a sum with it, is not computed if its result is known.

    Layers of transformers compute q · cos + rotate_half(q) · sin, in five passes over q, and as many in the backward
    pass. With `Ones` and `Zeros` that is q itself. All other functions see an ordinary tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if len(args) == 2 and not kwargs and name in PRODUCTS | SUMS:
                constant, other = args if isinstance(args[0], Constant) else args[::-1]
                if isinstance(other, Tensor) and _fits(constant, other):
                    is_one = isinstance(constant, Ones)
                    if is_one is (name in PRODUCTS):
                        return other
                    if not is_one:
                        zero = torch.zeros((), dtype=other.dtype, device=other.device)
                        return zero.expand(other.shape).as_subclass(Zeros)
            result = func(*args, **(kwargs or {}))
            if name in SHAPES and isinstance(result, Tensor):
                return result.as_subclass(type(args[0]))
        return result


class Ones(Constant):
    """A tensor of ones."""


class Zeros(Constant):
    """A tensor of zeros."""


def _fits(constant: Tensor, other: Tensor) -> bool:
    """Return whether a result has the shape of the other tensor."""
    shape, sizes = constant.shape, other.shape
    missing = len(sizes) - len(shape)
    return missing >= 0 and all(size in (1, sizes[missing + axis]) for axis, size in enumerate(shape))


class NoRotation(nn.Module):
    """Takes the place of a model's rotary embedding. Its cos and sin rotate by an angle of 0, which changes no bit."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.original = original
        self._dims: dict[Any, tuple[int, torch.dtype]] = {}  # of cos and sin, by the type of layer

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original that the model reads, such as LFM 3's `layer_types` and Granite SWA's
        `config`.
        """
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("original"), name)

    def forward(self, x: Tensor, position_ids: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        key = x.dtype, arguments, *options.values()
        if key not in self._dims:
            cos, _ = self.original(x, position_ids, *arguments, **options)
            self._dims[key] = cos.shape[-1], cos.dtype
        dim, dtype = self._dims[key]
        sizes = *position_ids.shape, dim
        ones = torch.ones((), dtype=dtype, device=x.device).expand(sizes)
        zeros = torch.zeros((), dtype=dtype, device=x.device).expand(sizes)
        if x.shape[1] < FEW_TOKENS or torch.compiler.is_compiling():
            return ones, zeros
        return ones.as_subclass(Ones), zeros.as_subclass(Zeros)
