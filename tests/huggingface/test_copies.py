"""Copies of a model with an encoding, whole models in files, and threads: none influences another one."""

import copy
import io
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from lengthwise.huggingface import unuse, use
from tests.huggingface.models import cache_in, model_of, tokens, with_cache

ENCODINGS = ["fox", "bandedbias", "learned:max_length=64", "sinusoidal", "rope+fox", "fire"]


def model_with(encoding: str, family: str = "llama") -> Any:
    model = use(model_of(family), encoding)
    for parameter in model.get_decoder().position_encodings.parameters():
        parameter.data.normal_(std=0.5, generator=torch.Generator().manual_seed(2))
    return model


def logits_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x, use_cache=False).logits


@torch.no_grad()
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_deep_copy_has_an_encoding_of_its_own(encoding: str) -> None:
    model, x = model_with(encoding), tokens()
    own = logits_of(model, x)
    other = copy.deepcopy(model)
    assert torch.equal(logits_of(other, x), own)
    parameters = list(other.get_decoder().position_encodings.parameters())
    for parameter in parameters:
        parameter.normal_(std=2.0, generator=torch.Generator().manual_seed(3))
    assert torch.equal(logits_of(other, x), own) is not bool(parameters)
    assert torch.equal(logits_of(model, x), own)
    unuse(other)
    assert torch.equal(logits_of(other, x), logits_of(model_of("llama"), x))
    assert torch.equal(logits_of(model, x), own)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_whole_model_in_a_file(encoding: str) -> None:
    model, x, file = model_with(encoding), tokens(), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(logits_of(loaded, x), logits_of(model, x))
    assert torch.equal(logits_of(unuse(loaded), x), logits_of(model_of("llama"), x))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_threads_that_use_one_model(encoding: str) -> None:
    """With a cache and without one, and with different position IDs."""
    model, x, failures = model_with(encoding), tokens(4, 12), []
    with torch.no_grad():
        whole = logits_of(model, x)
        late = model(x, position_ids=torch.arange(5, 17)[None], use_cache=False).logits

    @torch.no_grad()
    def work(row: int) -> None:
        try:
            for _ in range(8):
                if row == 3:
                    found = model(x[3:], position_ids=torch.arange(5, 17)[None], use_cache=False).logits
                else:
                    cache = cache_in(model(x[row : row + 1, :7], use_cache=True))
                    rest = model(x[row : row + 1, 7:], **with_cache(cache)).logits if row else None
                    found = logits_of(model, x[:1]) if rest is None else rest
                expected = late[3:] if row == 3 else whole[row : row + 1, -found.shape[1] :]
                torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-4)
        except BaseException as error:
            failures.append(repr(error)[:300])

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
