"""The cache of a model with a rotation holds rotated keys, unless their angles can still change."""

import copy
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import DynamicCache

from lengthwise.huggingface import unuse, use
from tests.huggingface.models import model_of, tokens, with_cache

UNCHANGING = ["rope", "rope:layout=half", "yarn:factor=4", "prope", "xpos", "rope+nope+yarn:factor=4", "rope+fire"]
CHANGING = ["dynamicntk:factor=4", "dynamicyarn", "longrope"]


def filled(model: Any, x: torch.Tensor) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    model(x, use_cache=True, **with_cache(cache))
    return cache


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3_text"])
def test_a_cache_continues_where_the_model_itself_has_begun_and_the_other_way_round(family: str) -> None:
    model, x = model_of(family), tokens()
    own = model(x, use_cache=False).logits[:, 9:]
    cache = filled(model, x[:, :9])
    use(model)
    torch.testing.assert_close(model(x[:, 9:], **with_cache(cache)).logits, own, atol=3e-5, rtol=1e-4)
    cache = filled(model, x[:, :9])
    unuse(model)
    torch.testing.assert_close(model(x[:, 9:], **with_cache(cache)).logits, own, atol=3e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("encoding", UNCHANGING)
def test_rotated_keys_stay_right_when_a_cache_changes(encoding: str) -> None:
    """Cropped, with other rows, and after a call without a cache; in a copy of the model, too."""
    model, x = use(model_of("llama"), encoding), tokens(3)
    whole = model(x, use_cache=False).logits
    for used in (model, copy.deepcopy(model)):
        cache = filled(used, x)
        cache.crop(-9)
        cache.reorder_cache(torch.tensor([2, 0, 0]))
        rows = torch.tensor([2, 0, 0])
        step = used(x[rows, 8:9], **with_cache(cache)).logits
        torch.testing.assert_close(used(x, use_cache=False).logits, whole, atol=0, rtol=0)
        rest = used(x[rows, 9:], **with_cache(cache)).logits
        torch.testing.assert_close(torch.cat([step, rest], 1), whole[rows, 8:], atol=3e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("encoding", CHANGING)
def test_keys_whose_angles_can_change_are_stored_as_they_are(encoding: str) -> None:
    """The first layer's keys do not depend on positions then; with RoPE they do."""
    model, x = model_of("llama"), tokens().fill_(7)  # the same token everywhere

    def differ(name: str) -> bool:
        keys = filled(use(model, name), x).layers[0].keys
        unuse(model)
        return not torch.allclose(keys, keys[:, :, :1].expand_as(keys), atol=1e-5)

    assert differ("rope")
    assert not differ(encoding)


@torch.no_grad()
def test_gradients_flow_through_cached_keys() -> None:
    model, x = use(model_of("llama")), tokens()
    with torch.enable_grad():
        model(x, labels=x).loss.backward()  # transformers makes a cache
    with_cache = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with torch.enable_grad():
        model(x, labels=x, use_cache=False).loss.backward()
    without = [p.grad for p in model.parameters() if p.grad is not None]
    assert with_cache and len(with_cache) == len(without)
    for one, other in zip(with_cache, without, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
