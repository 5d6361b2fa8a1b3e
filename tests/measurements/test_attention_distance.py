"""The distance between two models' attention: published test vectors, an independent plain computation, and bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import FIRE, T5, ALiBi, CoPE, FoX, NoPE, RoPE, Shaw
from lengthwise.measurements.inside import attention as rows
from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.measurements.inside.attention_distance import (
    DIVERGENCES,
    attention_distance,
    jensen_shannon,
    pair_distances,
    published_divergence,
)
from lengthwise.models import Decoder

LN2 = math.log(2)


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ---- divergences ------------------------------------------------------------------------------------------------

VECTORS = [  # P, Q, true, as published
    ((0.9, 0.1), (0.1, 0.9), 0.36806421, 0.51082562),
    ((0.7, 0.2, 0.1), (0.1, 0.2, 0.7), 0.25310162, 0.33067143),
    ((0.999, 0.001), (0.001, 0.999), 0.68523993, 2.76123071),
]


@pytest.mark.parametrize(("p", "q", "true", "published"), VECTORS)
def test_divergences_equal_the_vectors(p, q, true, published):
    assert jensen_shannon(doubles(*p), doubles(*q)).item() == pytest.approx(true, abs=5e-9)
    assert published_divergence(doubles(*p), doubles(*q)).item() == pytest.approx(published, abs=5e-9)
    assert jensen_shannon(doubles(*VECTORS[0][0]), doubles(*VECTORS[0][1])).item() / LN2 == pytest.approx(
        0.53100441, abs=5e-9
    )


def test_zeros():
    one, other = doubles(1, 0, 0), doubles(0, 0.5, 0.5)
    assert jensen_shannon(one, other).item() == pytest.approx(LN2, abs=1e-15)
    assert published_divergence(one, other).item() == math.inf
    assert published_divergence(one, one).item() == 0, "keys that neither looks at say nothing"


@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
def test_rounding_makes_no_divergence_negative(divergence):
    p = torch.randn(2000, 40, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert 0 <= divergence(p, p).min() <= divergence(p, p).max() < 1e-6


rows_of = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(0, 30), min_size=n, max_size=n) for _ in range(2)])
)


@given(rows_of)
@settings(max_examples=200, deadline=None)
def test_jensen_shannon_is_symmetric_and_bounded(drawn):
    p, q = (doubles(*logits).softmax(-1) for logits in drawn)
    found = jensen_shannon(p, q).item()
    assert 0 <= found <= LN2 + 1e-15
    assert jensen_shannon(q, p).item() == found
    assert jensen_shannon(p, p).item() == 0
    by_definition = sum(
        x / 2 * math.log(2 * x / (x + y)) + y / 2 * math.log(2 * y / (x + y))
        for x, y in zip(p.tolist(), q.tolist(), strict=True)
    )
    assert found == pytest.approx(by_definition, abs=1e-14)


# ---- pairs of heads ---------------------------------------------------------------------------------------------


def matrix(*lines: tuple[float, ...]) -> torch.Tensor:
    """Rows of causal weights as one head of one example."""
    made = torch.zeros(1, 1, len(lines), len(lines), dtype=torch.float64)
    for n, line in enumerate(lines):
        made[0, 0, n, : n + 1] = doubles(*line)
    return made


A = matrix((1,), (0.5, 0.5), (0.2, 0.3, 0.5))
B = matrix((1,), (0.9, 0.1), (1 / 3, 1 / 3, 1 / 3))
ALL = torch.ones(1, 3, dtype=torch.bool)


def test_the_mean_over_rows_equals_the_vector():
    found = pair_distances(A, B, ALL, "jensen-shannon") / 3
    assert found.item() == pytest.approx(0.03966673541, abs=5e-12)


def test_every_pair_of_heads():
    p, q = torch.cat([A, B], 1), torch.cat([B, A, B], 1)
    one = pair_distances(A, B, ALL, "jensen-shannon").item()
    found = pair_distances(p, q, ALL, "jensen-shannon")
    torch.testing.assert_close(found, doubles(one, 0, one, 0, one, 0).view(1, 2, 3))
    published = pair_distances(p, q, ALL, "published")
    assert published.isinf().tolist() == [[[True, False, False], [True, True, False]]], "m < n alone"


def test_rows_that_do_not_count():
    first = torch.tensor([[True, True, False]])
    expected = jensen_shannon(doubles(0.5, 0.5), doubles(0.9, 0.1)).item()
    assert pair_distances(A, B, first, "jensen-shannon").item() == pytest.approx(expected, abs=1e-15)


# ---- models -----------------------------------------------------------------------------------------------------


def decoder(encoding, seed: int, **change) -> Decoder:
    torch.manual_seed(seed)
    config = ModelConfig(**{"d_model": 16, "num_layers": 2, "num_heads": 4, **change})
    model = Decoder(config, choose(encoding), vocab_size=11, output_size=11, train_length=8).double().eval()
    for block in model.blocks:  # far from even weights
        block.qkv.weight.data *= 3
    return model


def whole_weights(model: Decoder, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The weights of every layer as whole matrices, from what the blocks themselves compute."""
    found = []
    for call in attention_calls(model, tokens):
        ((_, _, logits),) = call.blocks(10_000)
        found.append(logits.softmax(-1))
    return found


def plain(p: torch.Tensor, q: torch.Tensor, example: int, last: int, published: bool) -> float:
    """One example's distance of one layer in plain Python."""
    best = math.inf
    for m in range(p.shape[1]):
        for n in range(q.shape[1]):
            if published and m >= n:
                continue
            total = 0.0
            for row in range(last):
                for x, y in zip(p[example, m, row].tolist(), q[example, n, row].tolist(), strict=True):
                    middle = (x + y) / 2
                    if middle == 0:
                        continue
                    if published:
                        total += middle / 2 * (math.log(middle / x) + math.log(middle / y))
                    else:
                        total += sum(z / 2 * math.log(z / middle) for z in (x, y) if z)
            best = min(best, total / last)
    return best


@pytest.mark.parametrize("variant", ["jensen-shannon", "published"])
@pytest.mark.parametrize(("one", "other"), [(NoPE, RoPE), (FIRE, ALiBi), (CoPE, FoX), (Shaw, T5)])
def test_it_is_what_the_formula_says(one, other, variant):
    a, b = decoder(one, 0), decoder(other, 1, num_kv_heads=2)
    tokens = torch.randint(0, 11, (2, 7), generator=torch.Generator().manual_seed(3))
    counts = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    found = attention_distance(a, b, tokens, queries=counts, variant=variant)
    assert found.shape == (2, 2)
    for layer, (p, q) in enumerate(zip(whole_weights(a, tokens), whole_weights(b, tokens), strict=True)):
        for example, last in enumerate((7, 5)):
            expected = plain(p, q, example, last, variant == "published")
            assert found[example, layer].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("encoding", [NoPE, FIRE, CoPE])
def test_a_model_is_at_no_distance_from_itself(encoding):
    model, tokens = decoder(encoding, 0), torch.randint(0, 11, (3, 9))
    assert attention_distance(model, model, tokens).tolist() == [[0.0, 0.0]] * 3


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([NoPE, RoPE, FIRE]))
@settings(max_examples=15, deadline=None)
def test_it_is_symmetric_and_bounded(seed, length, encoding):
    a, b = decoder(NoPE, seed), decoder(encoding, seed + 1, num_heads=2)
    tokens = torch.randint(0, 11, (2, length), generator=torch.Generator().manual_seed(seed))
    found = attention_distance(a, b, tokens)
    assert bool((found >= 0).all()) and bool((found <= LN2).all())
    torch.testing.assert_close(found, attention_distance(b, a, tokens), atol=1e-14, rtol=0)


def test_blocks_of_queries_change_nothing_and_bound_what_is_there(monkeypatch):
    a, b = decoder(FIRE, 0), decoder(RoPE, 1)
    tokens = torch.randint(0, 11, (2, 60))
    whole = attention_distance(a, b, tokens)
    seen = []
    real = rows.AttentionCall.blocks

    def watched(self, size):
        for queries, keys, logits in real(self, size):
            seen.append(logits.numel())
            yield queries, keys, logits

    monkeypatch.setattr(rows.AttentionCall, "blocks", watched)
    monkeypatch.setitem(rows.MAX_NUMBERS, "cpu", 2 * 4 * 60 * 3 * 7)  # seven queries of all heads of both models
    torch.testing.assert_close(attention_distance(a, b, tokens), whole, atol=1e-14, rtol=0)
    assert max(seen) <= 2 * 4 * 7 * 60
    assert len(seen) == 2 * 2 * math.ceil(60 / 7)


def test_positions_of_each_model():
    a, b = decoder(RoPE, 0), decoder(RoPE, 1)
    tokens = torch.randint(0, 11, (1, 6))
    far = torch.arange(6)[None] * 50
    moved = attention_distance(a, b, tokens, positions=(None, far))
    assert not torch.allclose(moved, attention_distance(a, b, tokens))
    torch.testing.assert_close(moved, attention_distance(b, a, tokens, positions=(far, None)), atol=1e-14, rtol=0)


def test_bad_input():
    model, tokens = decoder(NoPE, 0), torch.zeros(1, 4, dtype=torch.long)
    for call, words in (
        (lambda: attention_distance(model, decoder(NoPE, 0).train(), tokens), "evaluation mode"),
        (
            lambda: attention_distance(model, decoder(NoPE, 0, num_heads=1), tokens, variant="published"),
            "at least 2 heads, got 1",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            call()
