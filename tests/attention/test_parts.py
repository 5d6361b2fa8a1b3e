"""Masks, tables and the cache, each against the plain way of writing it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.attention import BACKENDS, KVCache, Mask, gradients_unsupported_reason, plan
from lengthwise.encodings import T5
from lengthwise.forms.tables import (
    along_keys,
    by_distance,
    gather_columns,
    lookup,
    piecewise_linear,
    scatter_columns,
    shear,
    unshear,
)
from lengthwise.positions import consecutive
from lengthwise.span import Span


@given(st.integers(1, 12), st.data())
def test_visible(keys, data):
    queries = data.draw(st.integers(1, keys))
    ids = data.draw(st.lists(st.integers(-1, 2), min_size=keys, max_size=keys))
    seen = Mask(queries, keys, True, torch.tensor([ids])).visible(torch.device("cpu"))[0]
    for i in range(queries):
        own = keys - queries + i
        assert seen[i].tolist() == [j <= own and ids[j] == ids[own] for j in range(keys)]
        assert seen[i, own]  # nobody is left with nothing to see


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=12))
def test_consecutive_positions_count_within_each_document(ids):
    expected = [ids[:n].count(document) for n, document in enumerate(ids)]
    assert consecutive(torch.tensor([ids, ids[::-1]]))[0].tolist() == expected


@given(st.integers(1, 9), st.integers(1, 12), st.data())
def test_tables_over_pairs(queries, entries, data):
    keys = data.draw(st.integers(queries, 12))
    table = torch.randn(3, entries, dtype=torch.float64, requires_grad=True)
    span = Span.of(keys, queries)
    plain = table[:, span.distance().clamp(0, entries - 1)]
    weight = torch.randn_like(plain)
    (expected,) = torch.autograd.grad((plain * weight).sum(), table)
    for variant in (span, Span(span.q, span.k, keys, consecutive=False)):
        out = by_distance(table, variant)
        (grad,) = torch.autograd.grad((out * weight).sum(), table)
        torch.testing.assert_close(out, plain)
        torch.testing.assert_close(grad, expected)


def test_gradients_of_tables_are_summed_with_care():
    """Every pair adds to one of two numbers: in float32, one after the other, that loses digits."""
    torch.manual_seed(0)
    table, size = torch.zeros(1, 2, requires_grad=True), 1000
    span = Span(torch.ones(1, size, dtype=torch.long), torch.zeros(1, size, dtype=torch.long), 2)
    weight = torch.rand(1, 1, size, size)
    (grad,) = torch.autograd.grad((by_distance(table, span) * weight).sum(), table)
    torch.testing.assert_close(grad[0, 1].double(), weight.double().sum(), rtol=1e-7, atol=0)


def test_pieces_pass_gradcheck():
    torch.manual_seed(0)
    knots = torch.tensor([0.2, 0.5], dtype=torch.float64)
    # Away from the knots: the function has no second side there.
    x = torch.tensor([[[0.1, 0.3], [0.45, 0.9]]], dtype=torch.float64, requires_grad=True)
    slope, intercept = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, a, b: piecewise_linear(a, b, knots, x), (x, slope, intercept))


@given(st.integers(1, 6), st.integers(-20, 20), st.integers(0, 20), st.integers(-20, 20))
def test_columns_along_the_keys(entries, furthest, less, first):
    table = torch.randn(2, entries, 3, dtype=torch.float64, requires_grad=True)
    distances = torch.arange(furthest, furthest - less - 1, -1)
    torch.testing.assert_close(
        along_keys(table, furthest, furthest - less, first), table[:, (distances - first).clamp(0, entries - 1)]
    )


@pytest.mark.medium
@given(st.integers(1, 5), st.integers(1, 5))
def test_rows_are_sheared_and_back(queries, keys):
    rows = torch.randn(2, 3, queries, queries + keys - 1, dtype=torch.float64, requires_grad=True)
    pairs = torch.randn(2, 3, queries, keys, dtype=torch.float64, requires_grad=True)
    sheared = shear(rows, keys)
    for i in range(queries):
        start = queries - 1 - i
        torch.testing.assert_close(sheared[..., i, :], rows[..., i, start : start + keys])
        torch.testing.assert_close(unshear(pairs)[..., i, start : start + keys], pairs[..., i, :])
    torch.testing.assert_close((sheared * pairs).sum(), (rows * unshear(pairs)).sum())
    assert torch.autograd.gradcheck(lambda x: shear(x, keys), rows)
    assert torch.autograd.gradcheck(unshear, pairs)


@pytest.fixture(params=["a CPU's way", "a GPU's way"])
def either_way(request, monkeypatch):
    monkeypatch.setattr("lengthwise.forms.tables.scatter_is_deterministic", lambda x: request.param == "a CPU's way")


@pytest.mark.usefixtures("either_way")
def test_entries_looked_up():
    torch.manual_seed(0)
    table, index = torch.randn(2, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 5, (3, 4, 6))
    torch.testing.assert_close(lookup(table, index), table[:, index])
    assert torch.autograd.gradcheck(lambda x: lookup(x, index), table)


@pytest.mark.usefixtures("either_way")
def test_columns_taken_and_spread():
    torch.manual_seed(0)
    rows = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    pairs = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    column = torch.randint(0, 5, (2, 3, 7))
    torch.testing.assert_close(
        (gather_columns(rows, column) * pairs).sum(), (rows * scatter_columns(pairs, column, 5)).sum()
    )
    assert torch.autograd.gradcheck(lambda x: gather_columns(x, column), rows)
    assert torch.autograd.gradcheck(lambda x: scatter_columns(x, column, 5), pairs)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if not gradients_unsupported_reason(name, "cpu")])
def test_a_plan_first_used_without_gradients_has_them_when_asked(backend):
    t5, span = T5(num_heads=1), Span.of(3)
    q, k, v = torch.randn(3, 1, 1, 3, 4)
    attend = plan(t5.modifiers(span), span, Mask(3, 3), q, backend=backend)
    with torch.no_grad():
        attend(q, k, v)
    attend(q, k, v).square().sum().backward()
    assert t5.weight.grad is not None and t5.weight.grad.any()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_the_cache_returns_everything_in_order(chunks):
    cache, given_k = KVCache(1), []
    for size in chunks:
        start = cache.length
        cache.extend(torch.arange(start, start + size)[None], None, first=0, highest=start + size - 1, consecutive=True)
        k = torch.randn(2, 1, size, 3)
        given_k.append(k)
        keys, values = cache.update(0, k, 2 * k)
        torch.testing.assert_close(keys, torch.cat(given_k, 2))
        torch.testing.assert_close(values, 2 * keys)
    assert cache.positions is not None and cache.positions[0].tolist() == list(range(sum(chunks)))


def test_a_cache_has_documents_from_the_start_or_never():
    cache = KVCache(1)
    one = torch.zeros(1, 1, dtype=torch.long)
    cache.extend(one, None, first=0, highest=0, consecutive=True)
    with pytest.raises(ValueError, match="documents"):
        cache.extend(one, one, first=0, highest=0, consecutive=False)
