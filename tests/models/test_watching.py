"""What a model's attention looks at: the same as of each layer's q and k on their own, and nothing else changes."""

import math

import pytest
import torch

from lengthwise import attention
from lengthwise.attention import Bins, KVCache, TokenInfo, measure
from lengthwise.config import ConfigError, ModelConfig, alternate, choose
from lengthwise.encodings import FIRE, ALiBi, FoX, NoPE, RoPE, TransformerXL
from lengthwise.models import Decoder, statistics

LLAMA = ModelConfig.llama(d_model=32, num_layers=3, num_heads=4, num_kv_heads=2)
NAMES = ("histogram", "entropy", "most_entropy", "first", "last", "query_entropy", "query_keys")


def decoder(*encodings) -> Decoder:
    torch.manual_seed(0)
    choices = [choose(encoding) for encoding in encodings]
    encoding = alternate(*choices) if len(choices) > 1 else choices[0]
    return Decoder(LLAMA, encoding, vocab_size=11, output_size=11, train_length=8).eval()


@pytest.mark.parametrize("encodings", [(NoPE,), (FIRE, RoPE, NoPE), (FoX,), (TransformerXL,)])
def test_every_layer_in_its_order(encodings):
    """Against `attention.statistics` of what each layer's attention is given."""
    model, tokens = decoder(*encodings).double(), torch.randint(0, 11, (2, 20))
    documents = torch.tensor([[-1] * 5 + [0] * 15, [0] * 20])
    queries, bins = documents >= 0, {"edges": (1, 4), "first": 2, "last": 3}
    inputs = []
    for block in model.blocks:
        block.attention_norm.register_forward_hook(lambda module, given, made: inputs.append(made))
    found = statistics(model, tokens, documents=documents, queries=queries, **bins)
    assert len(found) == len(inputs) == 3
    for layer, (got, x) in enumerate(zip(found, inputs, strict=True)):
        q, k, _ = model.blocks[layer].qkv_heads(x)
        encoding, info = model.encodings[model.encoding_of_layer[layer]], TokenInfo(documents=documents, x=x)
        wanted = attention.statistics(q, k, encoding, tokens=info, queries=queries, bins=Bins(**bins))
        for name in NAMES:
            torch.testing.assert_close(getattr(got, name), getattr(wanted, name), atol=1e-12, rtol=0)
        assert got.bins == [(None, 0), (1, 3), (4, None)]


def test_watching_changes_nothing():
    model, tokens, calls = decoder(RoPE), torch.randint(0, 11, (2, 20)), []
    assert torch.equal(model(tokens), model(tokens, watch=lambda *call: calls.append(call)))
    assert [layer for layer, *_ in calls] == [0, 1, 2]


def test_a_bias_that_is_known():
    """Without content, in every layer: ALiBi's weights are a geometric series."""
    model = decoder(ALiBi)
    for block in model.blocks:
        block.qkv.weight.data.zero_()
    found = statistics(model, torch.zeros(1, 30, dtype=torch.long), edges=range(1, 30))
    for layer in found:
        for head in range(4):
            r = math.exp(-(2.0 ** (-2 * (head + 1))))
            mass = [sum(r**d * (1 - r) / (1 - r ** (i + 1)) for i in range(d, 30)) / 30 for d in range(30)]
            torch.testing.assert_close(layer.histogram[0, head], torch.tensor(mass).double(), atol=1e-6, rtol=0)


def test_steps_with_a_cache_are_rows_of_one_forward():
    model, tokens = decoder(RoPE).double(), torch.randint(0, 11, (1, 9))
    whole, cache, steps = statistics(model, tokens), KVCache(3), []

    def watch(layer, modifiers, span, mask, q, k, scale):
        steps.append(measure(modifiers, span, mask, q, k, scale=scale).query_entropy)

    for n in range(9):
        model(tokens[:, n : n + 1], cache=cache, watch=watch)
    for layer in range(3):
        got = torch.cat(steps[layer::3], -1)
        torch.testing.assert_close(got, whole[layer].query_entropy, atol=1e-12, rtol=0)


def test_a_model_in_training_is_refused():
    with pytest.raises(ConfigError, match="evaluation mode"):
        statistics(decoder(NoPE).train(), torch.zeros(1, 4, dtype=torch.long))
