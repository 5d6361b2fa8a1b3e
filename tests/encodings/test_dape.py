"""DAPE and the encodings that it is built on."""

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import DAPE
from lengthwise.span import Span

BASES = ("alibi", "kerple_log", "fire")


def test_it_offers_these_bases() -> None:
    for base in BASES:
        dape = DAPE(num_heads=2, train_length=8, base=base)
        assert dape.shift_invariant == (base != "fire")


@pytest.mark.parametrize("base", BASES)
def test_an_mlp_of_zeros_leaves_the_base(base: str) -> None:
    dape = DAPE(num_heads=4, train_length=8, base=base).double()
    torch.nn.init.zeros_(dape.second.weight)
    torch.nn.init.zeros_(dape.second.bias)
    q, k, v = torch.randn(3, 2, 4, 12, 8, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 3, 4, 9, 10, 11, 80, 81, 1000, 1001]])
    for tokens in (None, TokenInfo(positions)):
        got = attend(q, k, v, dape, tokens=tokens)
        torch.testing.assert_close(got, attend(q, k, v, dape.base, tokens=tokens), atol=1e-12, rtol=0)


@pytest.mark.parametrize("base", BASES)
def test_the_bias_is_the_bases_own(base: str) -> None:
    dape = DAPE(num_heads=2, train_length=8, base=base).double()
    at = torch.tensor([[0, 3, 40, 41], [5, 6, 7, 2000]])
    span, nothing = Span(at, at, 2001), torch.zeros(2, 2, 4, 1, dtype=torch.float64)
    (term,) = dape.base.modifiers(span).terms
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    wanted = term.dense(nothing, nothing, span, 1.0)
    torch.testing.assert_close(dape.bias(span)[..., seen], wanted[..., seen], atol=1e-12, rtol=0)


def test_other_heads_get_a_plain_answer() -> None:
    q = torch.randn(1, 4, 5, 4)
    for heads in (1, 2):
        with pytest.raises(ConfigError, match=f"DAPE: q must have num_heads = {heads} heads, got 4"):
            attend(q, q, q, DAPE(num_heads=heads, train_length=8))


@pytest.mark.parametrize("documents", [None, [[0] * 70 + [1] * 130]])
def test_bounds_go_by_the_gradient_of_a_whole_call(documents: list[list[int]] | None) -> None:
    """KERPLE's parameters at a bound: the sign of a block's gradient may be another one than that of the sum."""
    torch.manual_seed(0)
    dape = DAPE(num_heads=4, train_length=64).double()
    q, k, v, grad = torch.randn(4, 1, 4, 200, 8, dtype=torch.float64)
    with torch.no_grad():
        dape.base.r2.copy_(torch.tensor([-0.05, 0.3, -0.2, 0.001]))
    tokens = None if documents is None else TokenInfo(documents=torch.tensor(documents))
    wanted, got = (
        torch.autograd.grad(attend(q, k, v, dape, tokens=tokens, backend=backend), list(dape.parameters()), grad)
        for backend in ("reference", "blocked")
    )
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
