"""ALiBi's settings: both ways, and slopes that learn."""

import pytest
import torch

from lengthwise import attend
from lengthwise.config import ConfigError
from lengthwise.encodings import ALiBi
from lengthwise.encodings.alibi import slopes


def test_slopes_of_ten_heads():
    """antofuller/CROMA#12: for a number of heads that is no power of two, other slopes than those of ALiBi's code."""
    assert slopes(10) == pytest.approx([2.0**-n for n in range(1, 9)] + [2.0**-0.5, 2.0**-1.5])


@pytest.mark.parametrize("heads", [1, 6, 8, 12])
def test_learned_slopes_start_at_the_published_ones_and_can_be_read(heads):
    fixed, learned = ALiBi(num_heads=heads), ALiBi(num_heads=heads, learned=True)
    assert fixed.slopes == tuple(slopes(heads))
    assert isinstance(learned.slopes, tuple)
    assert learned.slopes == pytest.approx(fixed.slopes, rel=4e-7)
    assert not list(fixed.parameters())
    with torch.no_grad():
        learned.log_slopes.fill_(-1.0)
    assert learned.slopes == pytest.approx([0.36787944117144233] * heads, rel=1e-14)
    assert torch.equal(-learned.bias(torch.tensor([1]))[:, 0], torch.tensor(learned.slopes, dtype=torch.float64))


def test_a_slope_stays_above_zero_whatever_a_step_does():
    alibi = ALiBi(num_heads=4, learned=True)
    step = torch.optim.SGD(alibi.parameters(), lr=1.0)
    for _ in range(20):
        step.zero_grad()
        (-alibi.bias(torch.arange(9)).sum()).backward()  # falls as the slopes do
        step.step()
    assert all(0 < slope < before for slope, before in zip(alibi.slopes, slopes(4), strict=True))


def test_both_ways_a_key_is_as_far_after_the_query_as_before():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64).unbind(0)
    alibi = ALiBi(num_heads=4, bidirectional=True)
    there = attend(q, k, v, alibi, causal=False)
    back = attend(*(x.flip(2) for x in (q, k, v)), alibi, causal=False).flip(2)
    torch.testing.assert_close(there, back)
    torch.testing.assert_close(attend(q, k, v, alibi), attend(q, k, v, ALiBi(num_heads=4)))
    with pytest.raises(ConfigError, match="bidirectional=True"):
        attend(q, k, v, ALiBi(num_heads=4), causal=False)
