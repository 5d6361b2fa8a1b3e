"""BandedBias where a table says the same, and in half precision."""

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import BandedBias, DistanceBias
from lengthwise.span import Span


class _Curve(DistanceBias):
    bidirectional = True

    def __init__(self, *, table: Tensor):
        super().__init__()
        self.table = table

    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        count = self.table.shape[1]
        inside = (distance >= 0) & (distance < count)
        return self.table[:, distance.clamp(0, count - 1)] * inside


def test_content_that_is_always_the_same_is_a_table() -> None:
    banded = BandedBias(num_heads=4, d_model=3, band=4, rank=2).double()
    torch.nn.init.normal_(banded.P)
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    x = torch.randn(3, dtype=torch.float64).expand(2, 9, -1)
    curve = _Curve(table=(banded.W @ x[0, 0]) @ banded.P)
    for positions, causal in ((None, True), (None, False), (torch.tensor([[0, 1, 2, 3, 7, 8, 9, 100, 102]]), True)):
        got = attend(q, k, v, banded, tokens=TokenInfo(positions, x=x), causal=causal)
        wanted = attend(q, k, v, curve, tokens=TokenInfo(positions), causal=causal)
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)


def test_a_bias_stays_in_float32_under_autocast() -> None:
    banded, x = BandedBias(num_heads=2, d_model=32), torch.randn(1, 7, 32)
    (wanted,) = banded.content(banded.features(x), Span.of(7), None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (got,) = banded.content(banded.features(x), Span.of(7), None)
    assert got.content.dtype == got.table.dtype == torch.float32
    torch.testing.assert_close(got.content, wanted.content, atol=0, rtol=0)


def test_an_input_of_another_width_gets_a_plain_answer() -> None:
    q = torch.randn(1, 2, 5, 4)
    with pytest.raises(ConfigError, match="BandedBias: the last dimension of x must be d_model = 6, got 8"):
        attend(q, q, q, BandedBias(num_heads=2, d_model=6), tokens=TokenInfo(x=torch.randn(1, 5, 8)))
