"""Sinks: one number for each head in the softmax's denominator, on every backend."""

import math

import pytest
import torch

from lengthwise import attend, attention, encodings
from lengthwise.attention import BACKENDS, Bins, Mask, plan, statistics
from lengthwise.attention.backends import flex
from lengthwise.config import ConfigError
from lengthwise.forms import AttentionModifiers, QueryGain, RelativeKeyBias, SinkLogit, ToeplitzBias
from lengthwise.span import Span
from tests.pairwise import pairwise


def numbers(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_hand(q, k, v, sink, bias, mask):
    """transformers' gpt_oss: a column of sinks, which is dropped after the softmax."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    logits = (q @ k.mT * q.shape[-1] ** -0.5 + bias).masked_fill(~mask.visible(q.device)[:, None], -math.inf)
    column = sink[None, :, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column], -1).softmax(-1)[..., :-1] @ v


@pairwise(
    backend=BACKENDS,
    kind=["alone", "table", "vectors"],
    where=["all", "window", "documents", "step", "bidirectional"],
)
def test_outputs_and_gradients(backend, kind, where):
    if backend == "flex" and (kind, where) != ("table", "all"):
        pytest.skip("FlexAttention is slow on a CPU, and has no gradients there")
    queries, keys = 2 if where == "step" else 150, 150
    q, k, v = (numbers(n, 2, h, t, 8).requires_grad_() for n, (h, t) in enumerate(((4, queries), (2, keys), (2, keys))))
    sink, table = numbers(3, 4).requires_grad_(), numbers(4, 4, 300).requires_grad_()
    documents = (torch.arange(keys) * 3 // keys)[None].expand(2, -1) if where == "documents" else None
    mask = Mask(queries, keys, where != "bidirectional", documents, 20 if where == "window" else None)
    distance = torch.arange(keys)[keys - queries :, None] - torch.arange(keys)
    bias, terms = torch.zeros(()), ()
    if kind == "table":
        bias, terms = table[:, distance + 149], (ToeplitzBias(table, -149),)
    elif kind == "vectors":
        vectors = table[:1].unflatten(1, (-1, 1)).expand(-1, -1, 8)
        bias = torch.einsum("bhid,ijd->bhij", q, vectors[0, distance + 149]) * 8**-0.5
        terms = (RelativeKeyBias(vectors, -149),)
    modifiers = AttentionModifiers(terms=terms, sink=SinkLogit(sink))
    leaves, learns = [q, k, v, sink, *([] if kind == "alone" else [table])], backend != "flex"
    with torch.set_grad_enabled(learns):
        out = plan(modifiers, Span.of(keys, queries), mask, q, backend=backend)(q, k, v)
    wanted = by_hand(q, k, v, sink, bias, mask)
    torch.testing.assert_close(out, wanted, rtol=1e-11, atol=1e-11)
    if learns:
        weight = numbers(9, *out.shape)
        for actual, expected in zip(*(torch.autograd.grad(x, leaves, weight) for x in (out, wanted)), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", ["fused", "blocked", "sdpa", "reference"])
@pytest.mark.parametrize("logit", [-math.inf, -1e4, 0.0, 80.0, 1e4])
def test_sinks_far_from_the_logits(backend, logit):
    """Far below they change nothing, and far above nothing remains; in float32."""
    q, k, v = (numbers(n, 1, 2, 200, 16, dtype=torch.float32).requires_grad_() for n in range(3))
    sink = torch.full((2,), logit, requires_grad=True)
    attend_with_sink = plan(AttentionModifiers(sink=SinkLogit(sink)), Span.of(200), Mask(200, 200), q, backend=backend)
    out = attend_with_sink(q, k, v)
    plain = attend(q, k, v, backend=backend)
    gradients = torch.autograd.grad(out.sum(), [q, k, v, sink])
    assert all(x.isfinite().all() for x in (out, *gradients))
    if logit < -1e3:
        torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-5)
    if logit > 1e3:
        assert not out.any()
        assert not any(x.any() for x in gradients)


def test_half_precision_rounds_the_output_only():
    for dtype, close in ((torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
        q, k, v = (numbers(n, 1, 2, 200, 16).to(dtype).requires_grad_() for n in range(3))
        sink = numbers(3, 2, dtype=torch.float32).requires_grad_()
        modifiers = AttentionModifiers(sink=SinkLogit(sink))
        results = []
        for backend in ("fused", "reference"):
            out = plan(modifiers, Span.of(200), Mask(200, 200), q, backend=backend)(q, k, v)
            results.append([out, *torch.autograd.grad(out.float().square().sum(), [q, k, v, sink])])
        for actual, wanted in zip(*results, strict=True):
            torch.testing.assert_close(actual.float(), wanted.float(), rtol=close, atol=close)


@pytest.mark.parametrize("fused", [True, False])
def test_statistics_leave_the_share_of_the_sink_out(fused, monkeypatch):
    """Zeros: query i has i + 2 equal shares, one of them the sink's."""
    if not fused:
        reason = lambda *_: "not asked"  # noqa: E731
        monkeypatch.setattr(type(BACKENDS["fused"]), "statistics_unsupported_reason", reason)
    zeros = torch.zeros(1, 1, 3, 8, dtype=torch.float64)
    measured = statistics(zeros, zeros, encodings.Sinks(num_heads=1), bins=Bins(first=1, last=1))
    shares = [1 / 2, 1 / 3, 1 / 4]
    assert measured.histogram.sum().item() == pytest.approx(1 - sum(shares) / 3)
    assert measured.sink.item() == pytest.approx(sum(shares) / 3)
    assert measured.first.item() == measured.last.item() == pytest.approx(sum(shares) / 3)
    entropies = [-(n + 1) * share * math.log(share) for n, share in enumerate(shares)]
    assert measured.query_entropy[0, 0].tolist() == pytest.approx(entropies)


def test_a_score_mod_cannot_have_sinks():
    span = Span.of(4)
    with pytest.raises(ConfigError, match="score_mod: a SinkLogit is in the softmax's denominator"):
        flex.score_mod(encodings.Sinks(num_heads=2).modifiers(span), span)


def test_a_sink_for_each_head():
    q = torch.zeros(1, 4, 3, 8)
    with pytest.raises(ConfigError, match=r"SinkLogit.logit of Sinks has shape \[2\]; it must be \[1 or 4 heads\]"):
        attend(q, q, q, encodings.Sinks(num_heads=2))


@pytest.mark.parametrize("backend", ["fused", "blocked", "sdpa", "reference"])
def test_with_a_gain(backend):
    """The gain multiplies the product, not the sink."""
    q, k, v = (numbers(n, 1, 2, 9, 8) for n in range(3))
    gain, sink = numbers(4, 1, 2, 9).abs(), numbers(5, 2)
    modifiers = AttentionModifiers(sink=SinkLogit(sink), gain=QueryGain(gain))
    out = plan(modifiers, Span.of(9), Mask(9, 9), q, backend=backend)(q, k, v)
    wanted = by_hand(q * gain[..., None], k, v, sink, torch.zeros(()), Mask(9, 9))
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_a_step_of_a_loop_equals_one_pass():
    rope = encodings.Combined(encoding=encodings.RoPE(head_dim=8), sinks=encodings.Sinks(num_heads=2))
    q, k, v = (numbers(n, 1, 2, 30, 8) for n in range(3))
    cache = attention.EncodingCache()
    with torch.no_grad():
        whole = attend(q, k, v, rope)
        for n in range(20, 30):
            step = attend(q[:, :, n : n + 1], k[:, :, : n + 1], v[:, :, : n + 1], rope, encoding_cache=cache)
            torch.testing.assert_close(step, whole[:, :, n : n + 1], rtol=1e-12, atol=1e-12)
