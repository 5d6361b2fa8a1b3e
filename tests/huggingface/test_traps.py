"""Where transformers computes something else than its user thinks, and says nothing. Here it works, or is an error."""

from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import FIRE

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.huggingface import unuse, use
from lengthwise.huggingface.attention import NAME
from tests.huggingface.models import model_of, tokens


def test_a_model_without_our_mask_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mask function, transformers passes no mask: padding and causality are lost."""
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


def test_packed_documents_with_a_mask_are_refused() -> None:
    """Also with a mask that shows all, which transformers takes for one document. Padding has no position."""
    packed = torch.cat([torch.arange(6), torch.arange(11)])[None]
    model, x = use(model_of("llama")), tokens(1)
    mask = torch.ones_like(x)
    for shown in (mask, mask.index_fill(1, torch.arange(3), 0)):
        with pytest.raises(ConfigError, match="packed documents, which need use_cache=False and no attention_mask"):
            model(x, position_ids=packed, attention_mask=shown, use_cache=False)
    padded = mask.index_fill(1, torch.arange(6), 0)
    expected = model(x[:, 6:], use_cache=False).logits
    found = model(x, position_ids=packed.masked_fill(padded == 0, 1), attention_mask=padded, use_cache=False).logits
    torch.testing.assert_close(found[:, 6:], expected, atol=2e-5, rtol=1e-4)


def test_attention_weights_are_refused() -> None:
    """transformers returns an empty tuple where the attention function computes no weights."""
    for family in ("llama", "bloom"):
        with pytest.raises(ConfigError, match="compute no attention weights; omit output_attentions"):
            use(model_of(family))(tokens(), output_attentions=True)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["sinusoidal", "nope(temperature=ssmax)"])
@pytest.mark.parametrize("family", ["llama", "bloom", "mpt"])
def test_padding_is_not_counted_in_generation(family: str, encoding: str) -> None:
    """BLOOM and MPT take no position IDs. Absolute positions count the tokens that are no padding."""
    model, x = use(model_of(family), encoding), tokens(1, 12)
    alone = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    padded = {**alone, "attention_mask": torch.ones_like(x).index_fill(1, torch.arange(5), 0)}
    found, expected = model.generate(x, **padded), model.generate(x[:, 5:], **alone)
    torch.testing.assert_close(torch.stack(found.logits), torch.stack(expected.logits), atol=1e-5, rtol=1e-4)


def test_right_padding_works_except_in_generation() -> None:
    """With a cache, generated tokens get other position IDs than tokens that follow their text directly."""
    model, x = use(model_of("llama")), tokens(1, 12)
    mask = torch.ones_like(x).index_fill(1, torch.arange(8, 12), 0)
    with torch.no_grad():
        expected = model(x[:, :8]).logits
        torch.testing.assert_close(model(x, attention_mask=mask).logits[:, :8], expected, atol=1e-5, rtol=1e-4)
        with pytest.raises(ConfigError, match="pad on the left"):
            model.generate(x, attention_mask=mask, max_new_tokens=2)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gemma", "mpt"])
def test_absolute_positions_are_added_to_embeddings_of_the_caller_too(family: str) -> None:
    """With and without a cache, by position, with padding, and after the embeddings have been replaced."""
    model, x = use(model_of(family), "sinusoidal"), tokens()
    embeddings = model.get_input_embeddings()(x)
    logits = model(x).logits
    assert torch.equal(model(inputs_embeds=embeddings).logits, logits)
    mask = torch.ones_like(x).index_fill(1, torch.arange(4), 0)
    options = {"attention_mask": mask, "max_new_tokens": 3, "output_logits": True, "return_dict_in_generate": True}
    one, other = (
        model.generate(**given, **options, do_sample=False)
        for given in ({"input_ids": x}, {"inputs_embeds": embeddings})
    )
    torch.testing.assert_close(torch.stack(one.logits), torch.stack(other.logits))
    if family == "llama":
        positions = torch.arange(5, 22)[None]
        by_name = model.model(x, position_ids=positions).last_hidden_state
        assert torch.equal(model.model(x, None, positions).last_hidden_state, by_name)
    model.resize_token_embeddings(64)
    torch.testing.assert_close(model(x).logits[..., :61], logits)
    with pytest.raises(ValueError, match="input_ids"):
        model()


def test_rope_parameters_that_were_changed_after_loading() -> None:
    """In transformers the frequencies were computed before. `use(model)` computes what the settings say."""
    model, x = model_of("llama"), tokens()
    with torch.no_grad():
        before = model(x).logits
        model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
        assert torch.equal(model(x).logits, before), "transformers reads them now"
        scaled = model_of("llama", rope_parameters=model.config.rope_parameters)
        torch.testing.assert_close(use(model)(x).logits, scaled(x).logits, atol=3e-5, rtol=1e-4)
        assert torch.equal(unuse(model)(x).logits, before)


def test_a_rope_type_of_somebody_else_is_refused() -> None:
    """transformers takes any type that is in a dictionary of the process, and saves its name."""
    model, x = model_of("llama"), tokens()
    model.config.rope_parameters = {"rope_type": "mine", "rope_theta": 500.0}
    with pytest.raises(ConfigError, match="mine"):
        use(model)
    assert use(model, "rope:base=500,rotary_fraction=1,layout=half")(x).logits.isfinite().all()


@torch.no_grad()
def test_angles_are_not_rounded_to_the_type_of_a_model() -> None:
    """transformers rounds cosines and sines to bfloat16, and a model that was cast has rounded frequencies."""
    x, first = tokens(), 20_000
    own = {"max_position_embeddings": 40_000, "num_hidden_layers": 1}
    positions = torch.arange(first, first + x.shape[1])[None]

    def change(model: Any) -> float:
        """The change of the logits if all positions are shifted, relative to the largest logit."""
        near, far = (model(x, position_ids=ids, use_cache=False).logits for ids in (positions - first, positions))
        return float((near - far).abs().max() / near.abs().max())

    eps = torch.finfo(torch.bfloat16).eps
    assert change(model_of("llama", **own).bfloat16()) > 2 * eps, "transformers computes exact angles now"
    assert change(use(model_of("llama", **own).bfloat16())) <= eps


def test_parameters_get_a_gradient() -> None:
    """A rotary embedding of transformers runs under no_grad, so frequencies would not be trained."""
    model = use(model_of("llama"), choose(FIRE)).train()
    model(tokens(), labels=tokens()).loss.backward()
    for parameter in model.model.position_encodings.parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0
