"""xPos: its centre cancels, and at its greatest length nothing overflows in float32, whatever is masked."""

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import RoPE, XPos
from lengthwise.span import Span

GREATEST = 32_862


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_centre_cancels() -> None:
    q, k, v = numbers(3, 1, 2, 50, 8).unbind(0)
    one, other = (attend(q, k, v, XPos(head_dim=8, max_length=length)) for length in (50, 30_001))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert not torch.allclose(one, attend(q, k, v, RoPE(head_dim=8)))


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_overflows_at_its_greatest_length(backend: str, dtype: torch.dtype) -> None:
    """The first query and the last key are masked, but multiplied before; a mask of -inf makes nan of inf."""
    xpos = XPos(head_dim=16, max_length=GREATEST)
    positions = torch.tensor([[0, 1, 17_000, GREATEST - 2, GREATEST - 1]])
    # Values of 4 and dims that add up: as far as products of normal numbers go.
    q, k, v = (torch.full((1, 2, 5, 16), 4.0, dtype=dtype).requires_grad_() for _ in range(3))
    for documents in (None, torch.tensor([[0, 0, 1, 1, 1]])):
        out = attend(q, k, v, xpos, tokens=TokenInfo(positions=positions, documents=documents), backend=backend)
        assert out.isfinite().all()
        for gradient in torch.autograd.grad(out.float().square().sum(), (q, k, v)):
            assert gradient.isfinite().all()


def test_one_position_more_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=f"XPos: max_length must be at most {GREATEST}, got {GREATEST + 1}"):
        XPos(head_dim=16, max_length=GREATEST + 1)
    xpos = XPos(head_dim=16, max_length=100)
    assert xpos.modifiers(Span.of(100)).rotation is not None
    with pytest.raises(ConfigError, match="XPos: position 100 is past its max_length 100"):
        xpos.modifiers(Span.of(101))
    assert XPos(head_dim=16, scale_base=1024.0, max_length=2 * GREATEST - 2).max_length


def test_gains_at_both_ends_are_those_that_the_docstring_names() -> None:
    rotation = XPos(head_dim=16).modifiers(Span.of(32_768)).rotation
    assert rotation is not None
    assert isinstance(rotation.gain_q, torch.Tensor)
    assert isinstance(rotation.gain_k, torch.Tensor)
    assert 1e17 < float(rotation.gain_q.max()) < 1e18
    assert 1e17 < float(rotation.gain_k.max()) < 1e18
