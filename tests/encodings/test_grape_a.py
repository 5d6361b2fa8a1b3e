"""GrapeA where another encoding says the same, and what backends without its form say."""

import math

import pytest
import torch

from lengthwise import attend
from lengthwise.config import ConfigError
from lengthwise.encodings import ALiBi, GrapeA


@pytest.mark.parametrize("backend", ["reference", "blocked", "sdpa"])
@pytest.mark.parametrize(("gates", "summands"), [("both", 2), ("query", 1), ("key", 1)])
def test_without_content_it_is_alibi(backend: str, gates: str, summands: int) -> None:
    """q = k = 0, so every gate is ln 2, and softplus(omega) is made its inverse."""
    grape = GrapeA(num_heads=4, head_dim=8, gates=gates).double()
    torch.nn.init.constant_(grape.omega, math.log(math.expm1(1 / (summands * math.log(2)))))
    zeros, v = torch.zeros(2, 4, 90, 8, dtype=torch.float64), torch.randn(2, 4, 90, 8, dtype=torch.float64)
    actual = attend(zeros, zeros, v, grape, backend=backend)
    expected = attend(zeros, zeros, v, ALiBi(num_heads=4), backend="reference")
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("backend", "reason"), [("flex", "no score_mod for GatedDistanceBias"), ("fused", "no kernel for")]
)
def test_backends_without_the_form_say_so(backend: str, reason: str) -> None:
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ConfigError, match=rf"{reason}.*\(GrapeA\)"):
        attend(q, q, q, GrapeA(num_heads=2, head_dim=8), backend=backend)
    with pytest.raises(ConfigError, match=r"made for heads of 8 dims, and q has 4; use GrapeA\(head_dim=4\)"):
        attend(q[..., :4], q[..., :4], q[..., :4], GrapeA(num_heads=2, head_dim=8))
