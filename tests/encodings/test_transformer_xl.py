"""Transformer-XL's four terms: what each depends on, under any scale."""

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import BACKENDS, unsupported_reason
from lengthwise.encodings import TransformerXL
from lengthwise.span import Span

H, D, C = 3, 4, 10


def made(**settings):
    torch.manual_seed(0)
    xl = TransformerXL(num_heads=H, head_dim=D, d_model=C, **settings).double()
    with torch.no_grad():
        xl.u.mul_(50)
        xl.v.mul_(50)
    return xl


def logits(xl, q, k, span, scale=1.0):
    return sum(term.dense(q, k, span, scale) for term in xl.modifiers(span).terms)


def test_what_position_says_alone_depends_on_the_distance_alone():
    """With neither queries nor keys v's term is left: one number for each distance, in each head."""
    span, nothing = Span.of(40), torch.zeros(1, H, 40, D, dtype=torch.float64)
    found = logits(made(bidirectional=True), nothing, nothing, span)[0]
    for distance in range(-39, 40):
        diagonal = found.diagonal(-distance, 1, 2)
        assert (diagonal == diagonal[:, :1]).all()
    assert len(found[0].unique()) == 79


def test_the_third_term_depends_on_the_key_alone():
    xl = made()
    with torch.no_grad():
        xl.W_R.zero_()
    q, k = torch.randn(2, 1, H, 9, D, dtype=torch.float64).unbind(0)
    found = logits(xl, q, k, Span.of(9), 0.3)[0]
    torch.testing.assert_close(found, (0.3 * torch.einsum("hd,hjd->hj", xl.u, k[0]))[:, None].expand(-1, 9, -1))


@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0])
def test_every_term_is_scaled(scale):
    """The logits of scale s are s times those of scale 1, so a caller's own scale serves."""
    q, k, v = torch.randn(3, 2, H, 9, D, dtype=torch.float64).unbind(0)
    xl, span = made(), Span.of(9)
    torch.testing.assert_close(logits(xl, q, k, span, scale), scale * logits(xl, q, k, span))
    content = torch.einsum("bhid,bhjd->bhij", q, k)
    total = (scale * (content + logits(xl, q, k, span))).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    for backend in (name for name in BACKENDS if not unsupported_reason(name, xl.modifiers(span), span)):
        with torch.no_grad():
            out = attend(q, k, v, xl, scale=scale, backend=backend)
        torch.testing.assert_close(out, total.softmax(-1) @ v)


def test_one_token_serves_both_ways():
    q, k, v = torch.randn(3, 1, H, 1, D, dtype=torch.float64).unbind(0)
    for xl in (made(bidirectional=True), made(bidirectional=True, max_distance=1)):
        torch.testing.assert_close(attend(q, k, v, xl, causal=False), v)


def test_the_table_ends_at_max_distance():
    table = made(max_distance=5).modifiers(Span.of(1000)).terms[0].table
    assert table.shape == (H, 6, D)
    torch.testing.assert_close(made().modifiers(Span.of(1000)).terms[0].table[:, :6], table)
