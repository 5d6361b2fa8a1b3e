"""Input distributions for tests of a regression that differ from its training.

x ~ N(0, I) with d coordinates becomes, with a random basis U and λ normalised so that Σ λ² = d:

    "half-subspace"  U diag(λ) Uᵀ x, λ the same for ⌊d/2⌋ directions and 0 for the others
    "skewed"         U diag(λ) Uᵀ x, λ_i ∝ 1/i
    "quadrants"      all inputs but the last lie in one random orthant
    "orthogonal"     the last input is projected to be orthogonal to all others, and keeps its norm
    "overlapping"    the last input equals one of the others

Source: Garg et al. 2022, section 4 and appendix B. Differs: every prompt has its own basis; the published code draws one for a
whole test.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Inputs = Literal["normal", "half-subspace", "skewed", "quadrants", "orthogonal", "overlapping"]
LAST = ("quadrants", "orthogonal", "overlapping")  # the last input has another distribution than those before it


def mix_covariance(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Change the eigenvalues of the inputs' covariance, in a random basis for each prompt."""
    count, _, dims = xs.shape
    if kind == "half-subspace":
        values = (torch.arange(dims) < dims // 2).double()
    else:
        values = 1 / torch.arange(1, dims + 1, dtype=torch.float64)
    values *= math.sqrt(dims) / values.norm()
    basis = torch.linalg.qr(torch.randn(count, dims, dims, generator=generator, dtype=torch.float64)).Q
    return (xs.double() @ (basis * values) @ basis.mT).float()


def change_last(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Give the last input another distribution than the inputs before it, by changing the one or the others."""
    count, length, dims = xs.shape
    if length == 1:
        return xs
    before, last = xs[:, :-1], xs[:, -1:]
    if kind == "quadrants":
        before = before.abs() * (torch.randint(2, (count, 1, dims), generator=generator) * 2 - 1)
    elif kind == "orthogonal":
        last = _orthogonal_part(before.double(), last.double()).float()
    else:
        index = torch.randint(length - 1, (count,), generator=generator)
        last = before[torch.arange(count), index][:, None]
    return torch.cat([before, last], 1)


def _orthogonal_part(before: Float[Tensor, "b m d"], last: Float[Tensor, "b one d"]) -> Float[Tensor, "b one d"]:
    """Return the part of `last` that is orthogonal to `before`, scaled to the norm of `last`."""
    basis = torch.linalg.qr(before.mT).Q
    residual = last
    for _ in range(2):  # the second projection removes rounding errors of the first
        residual = residual - residual @ basis @ basis.mT
    return residual * last.norm(dim=-1, keepdim=True) / residual.norm(dim=-1, keepdim=True)
