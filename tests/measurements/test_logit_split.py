"""The split of logits: the parts add up to the model's own logits, and each is what its name says."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from lengthwise.config import ModelConfig, choose
from lengthwise.encodings import ENCODINGS, ALiBi, Learned, PositionEncoding, Sinusoidal
from lengthwise.measurements.inside import attention as rows
from lengthwise.measurements.inside.attention import attention_calls
from lengthwise.measurements.inside.logit_split import split_logits, split_unsupported_reason
from lengthwise.models import Decoder

TOKENS = torch.randint(0, 11, (3, 13), generator=torch.Generator().manual_seed(1))


def decoder(encoding=Sinusoidal, **config) -> Decoder:
    torch.manual_seed(0)
    choice = encoding if not isinstance(encoding, type) else choose(encoding)
    config = ModelConfig(**{"d_model": 16, "num_layers": 3, "num_heads": 2} | config)
    model = Decoder(config, choice, vocab_size=11, output_size=11, train_length=8).double().eval()
    for p in model.parameters():  # biases are zero at first
        torch.nn.init.normal_(p, 0.1, 0.4)
    return model


def parts_of(model, positions=None):
    """[layer][part, b, h, i, j], NaN where a block has no key."""
    found = [torch.full((4, 3, model.config.num_heads, 13, 13), torch.nan).double() for _ in model.blocks]

    def add(layer, queries, parts):
        found[layer][..., queries, : parts.shape[-1]] = parts

    return found, split_logits(model, TOKENS, positions, add)


MODELS = [
    {},
    {"mlp": "relu", "num_kv_heads": 1},
    {"mlp": "swiglu", "norm": "rms", "bias": False},
    {"tie_embeddings": True},
    {"qk_norm": True, "num_kv_heads": 1},
    {"tie_embeddings": True, "t5_scaling": True, "norm": "rms"},
]


@pytest.mark.parametrize("config", MODELS, ids=str)
@pytest.mark.parametrize("encoding", [Sinusoidal, Learned])
def test_the_parts_add_up_to_the_logits_of_the_model(encoding, config, monkeypatch):
    model = decoder(encoding, **config)
    monkeypatch.setitem(rows.MAX_NUMBERS, "cpu", 3 * 2 * 13 * 8 * 4)  # in blocks of four queries
    positions = torch.arange(13)[None] + 5
    parts, last = parts_of(model, positions)
    for layer, call in enumerate(attention_calls(model, TOKENS, positions)):
        ((_, _, logits),) = call.blocks(10_000)
        visible = logits.isfinite()
        torch.testing.assert_close(parts[layer].sum(0)[visible], logits[visible], atol=1e-9, rtol=0)
    output = model.norm(last.total)
    scale = 16**-0.5 if config.get("t5_scaling") else 1.0
    torch.testing.assert_close(F.linear(output * scale, model.lm_head.weight), model(TOKENS, positions=positions))


def test_the_first_layer_against_the_formula():
    """<W_q LN'(w_i), W_k LN'(p_j)> and so on, with LN' the norm with the variance of w + p, written out."""
    model = decoder(Sinusoidal)
    (parts, *_), _ = parts_of(model)
    block = model.blocks[0]
    word, position = model.token_embedding(TOKENS), model.encodings[0].table(torch.arange(13))[None].expand(3, -1, -1)
    total = word + position
    spread = ((total - total.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + block.attention_norm.eps
    vectors = {
        name: (x - x.mean(-1, keepdim=True)) / spread.sqrt() * block.attention_norm.weight
        for name, x in (("word", word), ("position", position))
    }
    vectors["word"] = vectors["word"] + block.attention_norm.bias
    q, k = {}, {}
    for name, x in vectors.items():
        out = x @ block.qkv.weight.T + (block.qkv.bias if name == "word" else 0)
        q[name], k[name] = (out[..., n : n + 16].unflatten(-1, (2, 8)).transpose(1, 2) for n in (0, 16))
    seen = torch.ones(13, 13, dtype=torch.bool).tril()
    for n, (query, key) in enumerate(itertools.product(("word", "position"), repeat=2)):
        expected = q[query] @ k[key].mT * 8**-0.5
        torch.testing.assert_close(parts[n][..., seen], expected[..., seen], atol=1e-10, rtol=0)


def test_without_vectors_of_positions_everything_is_words():
    model = decoder(Learned)
    torch.nn.init.zeros_(model.encodings[0].table)
    for layer in parts_of(model)[0]:
        assert bool((layer[1:][layer[1:].isfinite()] == 0).all())


def test_with_equal_words_only_positions_differ():
    """All tokens are the same, so the word-word part does not change with the key."""
    model = decoder(Learned, norm="rms", num_layers=1)
    torch.nn.init.zeros_(model.token_embedding.weight)
    torch.nn.init.zeros_(model.blocks[0].qkv.bias)
    ((layer,), _) = parts_of(model)
    assert bool((layer[:3][layer[:3].isfinite()] == 0).all())
    assert layer[3].nan_to_num().abs().max() > 0


class Scaled(PositionEncoding):
    def embed(self, x, positions):
        return x * (2 + positions[..., None])


class Biased(Learned):
    def modifiers(self, span):
        return ALiBi(num_heads=2).modifiers(span)


def test_what_cannot_be_split():
    sizes = {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 8}
    for make in ENCODINGS:
        reason = split_unsupported_reason(choose(make).build(**sizes), 16)
        assert (reason is None) == (make in (Sinusoidal, Learned))
        assert reason is None or make.__name__ in reason
    assert split_unsupported_reason(Biased(d_model=16), 16) == "Biased also changes the attention of each layer"
    assert split_unsupported_reason(Scaled(), 16) == "what Scaled does to an embedding is more than adding a vector"
