"""CoPE where another encoding says the same."""

import math
from typing import Any

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import CoPE


def test_a_new_one_has_no_position() -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    nope = attend(q, k, v, backend="reference")
    torch.testing.assert_close(attend(q, k, v, CoPE(head_dim=8)), nope, atol=0, rtol=0)


def test_keys_that_all_count_are_distances() -> None:
    """Gates of 1: p = i - j + 1, and all keys past the last row share it."""
    cope = CoPE(head_dim=4, max_position=5).double()
    torch.nn.init.normal_(cope.e)
    q, logits = torch.randn(1, 2, 8, 4, dtype=torch.float64), torch.full((1, 2, 8, 8), 50.0, dtype=torch.float64)
    seen = torch.ones(8, 8, dtype=torch.bool).tril()
    p = (torch.arange(8)[:, None] - torch.arange(8) + 1).clamp(0, 4)
    wanted = 50 + torch.einsum("bhid,ijd->bhij", q, cope.e[p])
    torch.testing.assert_close(
        cope.add_bias(logits, q, seen[None, None], 0.5)[..., seen], wanted[..., seen], atol=1e-12, rtol=0
    )


def test_nothing_is_lost_in_a_long_count() -> None:
    """Of a position near 10^5 float32 keeps two decimals; what stands between two rows needs more."""
    length = 100_000
    cope = CoPE(head_dim=1, max_position=length)
    cope.e.data[1::2] = 1.0  # every second row: what is added is the way to the next even one
    logits = 5 + torch.rand(1, 1, 1, length, generator=torch.Generator().manual_seed(0))
    q, seen = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, length, dtype=torch.bool)
    added = cope.add_bias(torch.zeros_like(logits), q, seen, 1.0).detach()  # every gate is 1/2: exact in any precision
    assert added[0, 0, 0, [-1, -2, 0]].tolist() == [0.5, 1.0, 0.0]
    added = (cope.add_bias(logits, q, seen, 1.0) - logits).detach()
    gates = logits[0, 0, 0].sigmoid().tolist()
    for distance in (0, 99, 50_000, length - 1):
        part = math.fsum(gates[length - 1 - distance :]) % 2
        assert float(added[0, 0, 0, length - 1 - distance]) == pytest.approx(min(part, 2 - part), abs=1e-5)


def test_heads_of_another_width_get_a_plain_answer() -> None:
    q = torch.randn(1, 2, 5, 4)
    with pytest.raises(ConfigError, match="CoPE was made for heads of 8 dims, and q has 4"):
        attend(q, q, q, CoPE(head_dim=8))


@pytest.mark.parametrize("backend", ["auto", "reference", "blocked"])
@pytest.mark.parametrize("which", ["q", "k"])
def test_nan_stays_with_the_queries_that_see_it(which: str, backend: str) -> None:
    """Token 3 of 6, in the second of two sequences; as without an encoding, forward and backward."""
    met = {"q": torch.arange(6) == 3, "k": torch.arange(6) >= 3}[which]
    cope = CoPE(head_dim=4, max_position=4)
    torch.nn.init.normal_(cope.e)
    given = torch.randn(3, 2, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    spoiled = given.clone()
    spoiled["qk".index(which), 1, :, 3, 1] = math.nan
    wanted = attend(*given, cope, backend=backend)
    tensors = [x.clone().requires_grad_() for x in spoiled]
    out = attend(*tensors, cope, backend=backend)
    assert out[1][:, met].isnan().all()
    assert torch.equal(out[0], wanted[0])
    torch.testing.assert_close(out[1][:, ~met], wanted[1][:, ~met])
    out.sum().backward()
    assert cope.e.grad is not None and cope.e.grad.isnan().any()
    plain = [x.clone().requires_grad_() for x in given]
    attend(*plain, cope, backend=backend).sum().backward()
    for found, clean in zip(tensors, plain, strict=True):
        assert found.grad is not None and clean.grad is not None and found.grad[1].isnan().any()
        torch.testing.assert_close(found.grad[0], clean.grad[0])


@pytest.mark.parametrize("backend", ["auto", "reference", "blocked"])
@pytest.mark.parametrize("hidden", [{"tokens": TokenInfo(documents=torch.tensor([[0, 0, 0, 1, 1, 1]]))}, {"window": 2}])
def test_a_hidden_nan_is_not_counted(hidden: dict[str, Any], backend: str) -> None:
    """Key 1, which the last three queries do not see."""
    cope = CoPE(head_dim=4, max_position=4)
    torch.nn.init.normal_(cope.e)
    q, k, v = torch.randn(3, 1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    wanted = attend(q, k, v, cope, backend=backend, **hidden)
    k[..., 1, 1] = math.nan
    out = attend(q, k, v, cope, backend=backend, **hidden)
    assert torch.equal(out[..., 3:, :], wanted[..., 3:, :])
    assert out[..., 1, :].isnan().all()
