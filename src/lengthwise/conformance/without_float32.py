"""Whether an encoding that is in float64 computes in float64.

It is computed twice: as it is, and with float64 wherever it asks for float32. If it computes nothing in float32, both
results are the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lengthwise.conformance.answers import Failure
from lengthwise.conformance.cases import HEAD_DIM, EncodingCase, numbers, run
from lengthwise.encodings import PositionEncoding

TOLERANCE = 1e-9  # of results of about 1; float32 has errors of 1e-8 and more
LOW = (torch.float32, torch.bfloat16, torch.float16)


def require_float64(case: EncodingCase, positions: list[int]) -> None:
    """Raise `Failure` if attention or the embedding at these positions is computed in float32."""
    encoding = _with_digits(case.build())
    with _float64_in_place_of_float32():
        other = case.build()
        other.load_state_dict(encoding.state_dict())
        expected = _results(other, positions)
    for what, actual in _results(encoding, positions).items():
        error = float((actual - expected[what]).abs().max())
        if not error <= TOLERANCE:
            raise Failure(
                f"{what} in float64 is computed in float32, positions {positions[0]} to {positions[-1]}: off by "
                f"{error:.2g}, allowed {TOLERANCE:.0e}; compute tables, angles and vectors in "
                "lengthwise.forms.table_dtype(device)"
            )


def _results(encoding: PositionEncoding, positions: list[int]) -> dict[str, Tensor]:
    ids = torch.tensor([positions])
    q, k, v = (numbers(92 + n, 2, 4, len(positions), HEAD_DIM) for n in range(3))
    x = numbers(95, 2, len(positions), 4 * HEAD_DIM)
    with torch.no_grad():
        attention = run(encoding, "reference", q, k, v, ids, x=x)
        return {"attention": attention, "the embedding": encoding.embed(x, ids)}


@torch.no_grad()
def _with_digits(encoding: PositionEncoding) -> PositionEncoding:
    """Give parameters and buffers, which were initialized in float32, digits that float32 does not have."""
    for tensor in (*encoding.parameters(), *encoding.buffers()):
        if tensor.is_floating_point():
            tensor.mul_(1 + 2**-25)
    return encoding


@contextmanager
def _float64_in_place_of_float32() -> Iterator[None]:
    default = torch.get_default_dtype()  # of the logarithm of whole numbers, for example
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():
            yield
    finally:
        torch.set_default_dtype(default)


class _Float64(TorchDispatchMode):
    """Let every operator return float64 where it is asked for a less precise dtype."""

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if options.get("dtype") in LOW:
            options["dtype"] = torch.float64
        return function(*args, **options)
