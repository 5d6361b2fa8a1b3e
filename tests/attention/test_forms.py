"""Every form of the vocabulary, those that no encoding uses yet included: the fused backend against the reference."""

import itertools

import pytest
import torch

from lengthwise.attention import BACKENDS, Mask, plan
from lengthwise.config import ConfigError
from lengthwise.forms import (
    AttentionModifiers,
    KeyBias,
    LogitTransform,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    ToeplitzBias,
)
from lengthwise.span import Span

B, H, G, D = 2, 4, 2, 6


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ["two-sided", "two-sided values", "key global", "gain of a two-sided table"])
def test_both_ways_keys_after_the_query_take_columns_below_zero(name):
    torch.manual_seed(1)
    table, rows = leaf(H, 6), leaf(1, 5, D)
    modifiers = {
        "two-sided": AttentionModifiers(terms=(ToeplitzBias(table, first=-3), RelativeKeyBias(rows, first=-2))),
        "two-sided values": AttentionModifiers(values=(RelativeValues(rows, first=-2),)),
        "key global": AttentionModifiers(terms=(KeyBias(leaf(H, D)), ToeplitzBias(table, first=-3))),
        "gain of a two-sided table": AttentionModifiers(
            gain=QueryGain(leaf(1, 1, 7), bidirectional=True), terms=(ToeplitzBias(table, first=-3),)
        ),
    }[name]
    assert modifiers.bidirectional
    q, k, v = leaf(B, H, 7, D), leaf(B, G, 7, D), leaf(B, G, 7, D)
    span, mask = Span.of(7), Mask(7, 7, causal=False)
    out = plan(modifiers, span, mask, q, backend="reference")(q, k, v)
    if not modifiers.values:
        torch.testing.assert_close(plan(modifiers, span, mask, q, backend="sdpa")(q, k, v), out)
    b, h, i = 1, 2, 3
    logits, seen = [], []
    for j in range(7):
        logit = (q[b, h, i] @ k[b, h // 2, j]) * D**-0.5
        if modifiers.gain:
            logit = logit * modifiers.gain.gain[0, 0, i]
        for term in modifiers.terms:
            if isinstance(term, ToeplitzBias):
                logit = logit + table[h, min(max(i - j + 3, 0), 5)]
            elif isinstance(term, RelativeKeyBias):
                logit = logit + D**-0.5 * (q[b, h, i] @ rows[0, min(max(i - j + 2, 0), 4)])
            else:
                logit = logit + D**-0.5 * (term.vector[h] @ k[b, h // 2, j])
        logits.append(logit)
        seen.append(v[b, h // 2, j] + (rows[0, min(max(i - j + 2, 0), 4)] if modifiers.values else 0))
    by_hand = torch.stack(logits).softmax(0) @ torch.stack(seen)
    torch.testing.assert_close(out[b, h, i], by_hand)


@pytest.mark.parametrize("columns", [5, 400])  # all products with a short table, and only those asked of a long one
@pytest.mark.parametrize("heads", [1, H])
def test_a_vector_joins_the_query_where_it_meets_the_table(columns, heads):
    torch.manual_seed(2)
    q, k, table, vector = leaf(B, H, 3, D), leaf(B, H, 7, D), leaf(heads, columns, D), leaf(H, D)
    span = Span(torch.tensor([[3, 90, 300], [0, 5, 6]]), torch.tensor([[0, 1, 2, 4, 80, 301, 999]] * B), 1000)
    got = RelativeKeyBias(table, -2, vector).dense(q, k, span, 0.3)
    for b, h, i, j in itertools.product(range(B), range(H), range(3), range(7)):
        column = min(max(int(span.distance()[b, i, j]) + 2, 0), columns - 1)
        torch.testing.assert_close(got[b, h, i, j], 0.3 * (q[b, h, i] + vector[h]) @ table[h % heads, column])


def test_values_and_rewrites_mean_what_they_say():
    torch.manual_seed(0)
    q, k, v = leaf(1, 1, 3, D), leaf(1, 1, 3, D), leaf(1, 1, 3, D)
    span, mask = Span.of(3), Mask(3, 3)
    table = leaf(1, 2, D)
    out = plan(AttentionModifiers(values=(RelativeValues(table),)), span, mask, q)(q, k, v)[0, 0]
    weights = (q[0, 0] @ k[0, 0].T * D**-0.5).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf).softmax(-1)
    for i in range(3):
        by_hand = sum(weights[i, j] * (v[0, 0, j] + table[0, min(i - j, 1)]) for j in range(i + 1))
        torch.testing.assert_close(out[i], by_hand)


def test_a_named_backend_never_falls_back():
    modifiers, q = (
        AttentionModifiers(logit_transform=LogitTransform(lambda logits, q, visible, scale, span: logits)),
        torch.zeros(1, 1, 3, 4),
    )
    with pytest.raises(ConfigError, match="whole rows"):
        plan(modifiers, Span.of(3), Mask(3, 3), q, backend="sdpa")
    with pytest.raises(ConfigError, match="did you mean 'sdpa'"):
        plan(AttentionModifiers(), Span.of(3), Mask(3, 3), q, backend="spda")


@pytest.mark.medium
def test_one_sided_tables_are_refused_without_a_causal_mask():
    modifiers = AttentionModifiers(terms=(ToeplitzBias(torch.zeros(2, 3)),))
    with pytest.raises(ConfigError, match="causal"):
        plan(modifiers, Span.of(3), Mask(3, 3, causal=False), torch.zeros(1, 2, 3, 4))
    torch.manual_seed(0)
    q, k, v = leaf(B, H, 5, D), leaf(B, G, 5, D), leaf(B, G, 5, D)
    with torch.no_grad():
        results = [
            plan(AttentionModifiers(), Span.of(5), Mask(5, 5, causal=False), q, backend=b)(q, k, v) for b in BACKENDS
        ]
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_on_a_cpu_computes_in_float32(dtype):
    torch.manual_seed(0)
    span, mask = Span.of(40), Mask(40, 40)
    modifiers = AttentionModifiers(terms=(ToeplitzBias(-torch.arange(40.0, dtype=torch.float64).expand(H, -1)),))
    q, k, v = (torch.randn(B, H, 40, D).to(dtype) for _ in range(3))
    exact = plan(modifiers, span, mask, q, backend="reference")(q.double(), k.double(), v.double())
    for backend in BACKENDS:
        out = plan(modifiers, span, mask, q, backend=backend)(q, k, v)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=0, atol=4 * torch.finfo(dtype).eps)
