"""Ways in which transformers computes something else than its user thinks, without an error. Here they are errors, or work."""

from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import FIRE, NoPE, RoPE

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'lengthwise[hf]'")

from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.huggingface import unuse, use
from lengthwise.huggingface.attention import NAME
from lengthwise.huggingface.replacement import own_encoding
from tests.huggingface.models import model_of, tokens


def test_a_model_without_our_mask_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers passes no mask to an attention function whose mask function is missing: padding and causality are lost."""
    model = use(model_of("llama"), "fire")
    assert NAME in ALL_ATTENTION_FUNCTIONS and NAME in ALL_MASK_ATTENTION_FUNCTIONS
    monkeypatch.delitem(AttentionMaskInterface._global_mapping, NAME)
    with pytest.raises(ConfigError, match="needs a mask of the shape"):
        model(tokens())


def test_our_name_is_not_taken_for_flash_attention() -> None:
    """transformers treats every name with "flash" in it as flash attention."""
    assert "flash" not in NAME


def test_packed_documents_with_a_cache_are_refused() -> None:
    """use_cache is on by default. transformers then ignores that positions begin anew, and documents see each other."""
    packed = torch.cat([torch.arange(6), torch.arange(11)])[None]
    model, x = model_of("llama"), tokens(1)
    with torch.no_grad():
        alone = model(x[:, 6:], use_cache=False).logits
        contaminated = model(x, position_ids=packed).logits[:, 6:]
        assert (contaminated - alone).abs().max() > 0.1, "transformers packs them now; compute them too"
        use(model)
        with pytest.raises(ConfigError, match="packed documents, which need use_cache=False and no attention_mask"):
            model(x, position_ids=packed)
        torch.testing.assert_close(model(x, position_ids=packed, use_cache=False).logits[:, 6:], alone)


def test_rope_parameters_that_were_changed_after_loading() -> None:
    """In transformers they change nothing, because the frequencies were computed before. `use(model)` computes what they say."""
    model, x = model_of("llama"), tokens()
    with torch.no_grad():
        before = model(x).logits
        model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
        assert torch.equal(model(x).logits, before), "transformers reads them now"
        scaled = model_of("llama", rope_parameters=model.config.rope_parameters)
        torch.testing.assert_close(use(model)(x).logits, scaled(x).logits, atol=3e-5, rtol=1e-4)
        assert torch.equal(unuse(model)(x).logits, before)


def test_parameters_get_a_gradient() -> None:
    """A rotary embedding of transformers runs under no_grad, so frequencies that are parameters would not be trained."""
    model = use(model_of("llama"), choose(FIRE)).train()
    model(tokens(), labels=tokens()).loss.backward()
    for parameter in model.model.position_encodings.parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("layers", [["sliding_attention", "full_attention"], ["full_attention", "sliding_attention"]])
def test_layers_without_rope_parameters_have_no_positions(layers: list[str]) -> None:
    """Nested rope_parameters with None for a type of layers."""
    parameters: dict[str, Any] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
    model = model_of("gemma3_text", num_hidden_layers=2, layer_types=layers, rope_parameters=parameters)
    model.config.rope_parameters["full_attention"] = None
    found = [choice.cls for choice in own_encoding(model.config).layers]
    assert found == [RoPE if kind == "sliding_attention" else NoPE for kind in layers]
