"""Decoding with a cache equals one forward pass, whatever transformers calls the argument for the cache."""

import pytest
import torch

pytest.importorskip("transformers")

from transformers import DynamicCache

from lengthwise.huggingface import use
from lengthwise.reach.model import CHUNK, Reader
from lengthwise.transformers_versions import cache_parameter, own_cache_name
from tests.huggingface.models import model_of, tokens, with_cache

ENCODINGS = [None, "rope", "learned:max_length=64", "sinusoidal", "alibi", "fox"]


@torch.no_grad()
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("family", ["llama", "mpt", "bloom"])
def test_decoding_equals_one_pass(family: str, encoding: str | None) -> None:
    model, x = use(model_of(family), encoding), tokens(2, 20)
    whole = model(x, use_cache=False).logits
    cache = DynamicCache(config=model.config)
    parts = [
        model(x[:, a:b], use_cache=True, **with_cache(cache)).logits for a, b in ((0, 10), (10, 11), (11, 12), (12, 20))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("family", ["llama", "mpt", "bloom"])
def test_generated_tokens_are_those_of_one_pass(family: str, encoding: str | None) -> None:
    model, x = use(model_of(family), encoding), tokens(2, 10)
    generated = model.generate(x, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    expected = x
    for _ in range(8):
        logits = model(expected, use_cache=False).logits[:, -1]
        logits[:, model.config.eos_token_id] = -torch.inf
        expected = torch.cat([expected, logits.argmax(-1, keepdim=True)], 1)
    assert generated.tolist() == expected.tolist()


@pytest.mark.parametrize("family", ["llama", "mpt", "bloom", "gpt_neox", "gemma3_text"])
def test_long_texts_are_read_in_chunks(family: str) -> None:
    model = model_of(family)
    reader = Reader(model)
    assert cache_parameter(model) == own_cache_name()
    assert reader.in_chunks
    assert reader.chunk(4096) == min(CHUNK, reader.chunk(4096)) < 4096
    text = tokens(1, 64)[0].tolist()
    reader.losses(text, [62])
    assert reader.cache_bytes > 0
