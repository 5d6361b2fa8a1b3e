"""Shaw in a caller's attention: which backend serves it, and which rows it uses."""

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import unsupported_reason
from lengthwise.config import ConfigError
from lengthwise.encodings import Shaw
from lengthwise.span import Span


def qkv(tokens=12, dim=6):
    torch.manual_seed(0)
    return torch.randn(3, 2, 4, tokens, dim, dtype=torch.float64).unbind(0)


def test_fused_attention_serves_it_without_value_vectors_only():
    assert "weights" in str(unsupported_reason("sdpa", Shaw(head_dim=6).modifiers(Span.of(5)), Span.of(5)))
    with pytest.raises(ConfigError, match="RelativeValues needs the weights"):
        attend(*qkv(), Shaw(head_dim=6), backend="sdpa")
    keys_alone = Shaw(head_dim=6, clip=3, values=False)
    assert unsupported_reason("sdpa", keys_alone.modifiers(Span.of(5)), Span.of(5)) is None
    for causal in (True, False):
        one, other = (attend(*qkv(), keys_alone, causal=causal, backend=name) for name in ("sdpa", "reference"))
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("causal", [True, False])
def test_under_a_causal_mask_rows_for_later_keys_are_never_used(causal):
    shaw = Shaw(head_dim=6, clip=3)
    attend(*qkv(), shaw, causal=causal).square().sum().backward()
    for rows in (shaw.key_vectors, shaw.value_vectors):
        used = rows.grad.abs().sum(1) > 0
        assert used.tolist() == [True] * 4 + [not causal] * 3


def test_both_ways_by_hand():
    q, k, v = qkv(5)
    shaw = Shaw(head_dim=6, clip=2).double()
    out = attend(q, k, v, shaw, causal=False, scale=0.4)
    b, h, i = 1, 2, 3
    rows = [max(-2, min(2, j - i)) + 2 for j in range(5)]
    weights = torch.stack([0.4 * q[b, h, i] @ (k[b, h, j] + shaw.key_vectors[r]) for j, r in enumerate(rows)]).softmax(
        0
    )
    by_hand = sum(weights[j] * (v[b, h, j] + shaw.value_vectors[r]) for j, r in enumerate(rows))
    torch.testing.assert_close(out[b, h, i], by_hand)
