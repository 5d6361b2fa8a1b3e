"""FoX adds up the gradients of whole rows, so rounding errors of the rows must not add up too."""

import pytest
import torch

from lengthwise import attend, encodings
from lengthwise.attention import TokenInfo


@pytest.mark.parametrize("tokens", [128, 300])
@pytest.mark.parametrize("mean", [0.0, 16.0], ids=["values around 0", "values around 16"])
def test_gradients_through_fox_are_as_exact_as_the_reference(tokens: int, mean: float) -> None:
    """A block that leaves out a query's own total was off by 50 times the error of the reference at 128 tokens."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, out = torch.randn(4, 1, 4, tokens, 32, generator=generator).unbind(0)
    v, x = v + mean, torch.randn(1, tokens, 64, generator=generator)
    torch.manual_seed(0)
    made = encodings.FoX(num_heads=4, d_model=64)

    def gradients(backend: str, dtype: torch.dtype) -> list[torch.Tensor]:
        fox = encodings.FoX(num_heads=4, d_model=64)
        fox.load_state_dict(made.state_dict())
        fox = fox.to(dtype)
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (q, k, v, x)]
        result = attend(*inputs[:3], fox, tokens=TokenInfo(x=inputs[3]), backend=backend)
        return list(torch.autograd.grad(result, [inputs[3], *fox.parameters()], out.to(dtype)))

    exact = gradients("reference", torch.float64)
    errors = {
        backend: [float((got.double() - want).norm() / want.norm()) for got, want in zip(found, exact, strict=True)]
        for backend, found in ((name, gradients(name, torch.float32)) for name in ("auto", "blocked", "reference"))
    }
    for backend in ("auto", "blocked"):
        for error, usual in zip(errors[backend], errors["reference"], strict=True):
            assert error <= 8 * max(usual, 1e-7), errors
