"""In half precision the gradients of q and k are as exact as torch's when values have a mean, or logits are large.

The gradient of a logit is its weight times (dP - delta), and delta is the mean of dP over a row. If delta comes from
the output that was rounded to half precision, its error is as large as the values, however little they differ.
"""

import pytest
import torch

from lengthwise import attend, encodings


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("mean", "factor"), [(0, 1), (4, 1), (16, 1), (0, 8)])
@pytest.mark.parametrize("name", ["none", "ALiBi", "T5"])
def test_gradients_are_as_exact_as_those_of_torch(dtype: torch.dtype, mean: float, factor: float, name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, out = torch.randn(4, 1, 4, 128, 64, generator=generator).to(dtype).unbind(0)
    q, v = q * factor, v + mean
    torch.manual_seed(0)
    encoding = None if name == "none" else getattr(encodings, name)(num_heads=4)

    def gradients(backend: str, computed: torch.dtype) -> tuple[torch.Tensor, ...]:
        inputs = [tensor.to(computed).requires_grad_() for tensor in (q, k, v)]
        result = attend(*inputs, encoding, backend=backend)
        return torch.autograd.grad(result, inputs, out.to(computed))

    exact = gradients("reference", torch.float64)
    for backend in ("auto", "blocked"):
        for got, usual, want in zip(gradients(backend, dtype), gradients("sdpa", dtype), exact, strict=True):
            error, allowed = ((x.double() - want).norm() / want.norm() for x in (got, usual))
            assert error <= 2 * allowed, (backend, float(error), float(allowed))
