"""How far back heads look: against counting by hand, and on weights that are known in advance."""

import pytest
import torch

from lengthwise.config import ModelConfig, choose
from lengthwise.encodings import FIRE, ALiBi, CoPE, NoPE, RoPE
from lengthwise.measurements.inside import attention as rows
from lengthwise.measurements.inside.attended_distance import BINS, attended_distance
from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.models import Decoder


def decoder(encoding, heads: int = 2) -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, num_layers=2, num_heads=heads)
    return Decoder(config, choose(encoding), vocab_size=11, output_size=11, train_length=8).double().eval()


@pytest.mark.parametrize("encoding", [NoPE, RoPE, FIRE, CoPE])
def test_against_counting_by_hand(encoding, monkeypatch):
    model = decoder(encoding)
    tokens = torch.randint(0, 11, (3, 23), generator=torch.Generator().manual_seed(1))
    queries = torch.rand(3, 23, generator=torch.Generator().manual_seed(2)) < 0.6
    calls = attention_calls(model, tokens)
    monkeypatch.setitem(rows.MAX_NUMBERS, "cpu", 3 * 2 * 23 * 3 * 4)  # in blocks of four queries
    found = attended_distance(model, tokens, queries=queries)
    assert found.queries == int(queries.sum())
    most = torch.zeros(2, 2, BINS, dtype=torch.long)
    mass = torch.zeros(2, 2, BINS, dtype=torch.float64)
    for layer, call in enumerate(calls):
        ((_, _, logits),) = call.blocks(10_000)
        for b, i in queries.nonzero().tolist():
            for head in range(2):
                row = logits[b, head, i].tolist()
                highest = next(j for j, logit in enumerate(row) if logit >= max(row) - 1e-4)
                most[layer, head, (i - highest) * 100 // (i + 1) // 5] += 1
                for j, weight in enumerate(logits[b, head, i].softmax(-1).tolist()[: i + 1]):
                    mass[layer, head, (i - j) * 100 // (i + 1) // 5] += weight
    assert torch.equal(found.most, most)
    torch.testing.assert_close(found.mass, mass, atol=1e-12, rtol=0)


def test_heads_that_look_at_themselves_only():
    """With q and k of zero, ALiBi's highest logit is the query's own token: distance 0."""
    model = decoder(ALiBi)
    for block in model.blocks:
        block.qkv.weight.data.zero_()
    found = attended_distance(model, torch.zeros(2, 9, dtype=torch.long), queries=torch.ones(1, 9, dtype=torch.bool))
    assert found.most[..., 0].tolist() == [[18, 18], [18, 18]]
    assert found.most.sum() == 4 * 18
    torch.testing.assert_close(found.mass.sum(-1), torch.full((2, 2), 18.0).double())


def test_equal_logits_count_for_the_first_key():
    """Without an encoding and with q and k of zero, all keys are equal: (i - 0) / (i + 1)."""
    model = decoder(NoPE)
    for block in model.blocks:
        block.qkv.weight.data.zero_()
    only = torch.zeros(1, 20, dtype=torch.bool)
    only[0, [0, 1, 19]] = True
    found = attended_distance(model, torch.zeros(1, 20, dtype=torch.long), queries=only)
    expected = [0] * BINS
    expected[0] = expected[10] = expected[19] = 1  # 0/1, 1/2, 19/20: each at the lower edge of its bin
    assert found.most[0, 0].tolist() == expected


def test_sums_of_portions():
    model, tokens = decoder(RoPE), torch.randint(0, 11, (4, 9))
    queries = torch.ones(4, 9, dtype=torch.bool)
    whole = attended_distance(model, tokens, queries=queries)
    parts = attended_distance(model, tokens[:1], queries=queries[:1]) + attended_distance(
        model, tokens[1:], queries=queries[1:]
    )
    assert parts.queries == whole.queries
    assert torch.equal(parts.most, whole.most)
    torch.testing.assert_close(parts.mass, whole.mass, atol=1e-12, rtol=0)
