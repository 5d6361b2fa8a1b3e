"""Other inputs than normal ones: how a test may differ from the training of a regression.

x ~ N(0, I) of d coordinates becomes, with U a random basis and λ normalised so that Σ λ² = d:

    "half-subspace"  U diag(λ) Uᵀ x, λ the same for ⌊d/2⌋ directions and 0 for the others
    "skewed"         U diag(λ) Uᵀ x, λ_i ~ 1/i
    "quadrants"      the inputs before the last lie in one random orthant, the last one anywhere
    "orthogonal"     the last input is at right angles to all before it, and as long as it was
    "overlapping"    the last input is one of those before it

Source: Garg et al. 2022, section 4 and appendix B. Differs: a basis is drawn for every prompt; the published program draws
one for a whole test.
"""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

Inputs = Literal["normal", "half-subspace", "skewed", "quadrants", "orthogonal", "overlapping"]
INPUTS: tuple[str, ...] = get_args(Inputs)
LAST = ("quadrants", "orthogonal", "overlapping")  # the last input is drawn in another way than those before


def mixed(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Inputs whose covariance has other eigenvalues than 1, in a random basis of each prompt."""
    count, _, dims = xs.shape
    if kind == "half-subspace":
        values = (torch.arange(dims) < dims // 2).double()
    else:
        values = 1 / torch.arange(1, dims + 1, dtype=torch.float64)
    values *= math.sqrt(dims) / values.norm()
    basis = torch.linalg.qr(torch.randn(count, dims, dims, generator=generator, dtype=torch.float64)).Q
    return (xs.double() @ (basis * values) @ basis.mT).float()


def changed_last(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Prompts whose last input is another one than N(0, I), given those before it; or the other way round."""
    count, length, dims = xs.shape
    if length == 1:
        return xs
    before, last = xs[:, :-1], xs[:, -1:]
    if kind == "quadrants":
        before = before.abs() * (torch.randint(2, (count, 1, dims), generator=generator) * 2 - 1)
    elif kind == "orthogonal":
        last = _across(before.double(), last.double()).float()
    else:
        which = torch.randint(length - 1, (count,), generator=generator)
        last = before[torch.arange(count), which][:, None]
    return torch.cat([before, last], 1)


def _across(before: Float[Tensor, "b m d"], last: Float[Tensor, "b one d"]) -> Float[Tensor, "b one d"]:
    """What of `last` is at right angles to `before`, made as long as `last`."""
    basis = torch.linalg.qr(before.mT).Q
    left = last
    for _ in range(2):  # the second time takes away what rounding left
        left = left - left @ basis @ basis.mT
    return left * last.norm(dim=-1, keepdim=True) / left.norm(dim=-1, keepdim=True)
