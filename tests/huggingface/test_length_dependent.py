"""Encodings that depend on the length of the text: decoding with a cache equals one forward pass, or is refused."""

import copy
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import ENCODINGS, DynamicNTK, DynamicYaRN, LongRoPE

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, unuse, use
from tests.huggingface.models import COMMON, cache_in, tokens, with_cache

TRAINED = 32  # tokens
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0],
    "original_max_position_embeddings": TRAINED, "factor": 4.0,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt_neox": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    "phi3": {"rope_parameters": LONGROPE, "original_max_position_embeddings": TRAINED, "max_position_embeddings": 128},
}
ENCODINGS_BY_LENGTH = [
    "dynamicntk:factor=4",
    "dynamicntk:factor=4,scale_step=8",
    "dynamicyarn:scale_step=8",
    "longrope",
]
CASES = [(kind, encoding) for kind in MODELS for encoding in ENCODINGS_BY_LENGTH]
CASES += [("phi3", None), ("llama, dynamic", None), ("llama, longrope", None)]


def model_with(kind: str, encoding: str | None, **settings: Any) -> Any:
    kind, _, own = kind.partition(", ")
    common = {**COMMON, "max_position_embeddings": TRAINED, **MODELS[kind], **settings}
    if own == "dynamic":
        common["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 4.0}
    if own == "longrope":
        common |= {"rope_parameters": LONGROPE, "max_position_embeddings": 128}
    torch.manual_seed(0)
    return use(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **common)).eval(), encoding)


def whole(model: Any, x: torch.Tensor, **options: Any) -> torch.Tensor:
    logits: torch.Tensor = model(x, use_cache=False, **options).logits
    return logits


def test_these_are_all_such_encodings() -> None:
    assert {make for make in ENCODINGS if make.depends_on_length()} == {DynamicNTK, DynamicYaRN, LongRoPE}


@pytest.mark.medium
@torch.no_grad()
@pytest.mark.parametrize(("kind", "encoding"), CASES)
def test_steps_and_chunks_equal_one_pass_or_are_refused(kind: str, encoding: str | None) -> None:
    """Each call gives the last rows of one pass over the tokens so far. With another scale it is refused."""
    model, x = model_with(kind, encoding), tokens(2, 60)
    (module,) = model.get_decoder().position_encodings
    for chunks in ([10, 8, 14, 1, 1, 8, 18], [24, *[1] * 36], [40, 1, 1, 1, 5, 8, 4]):
        cache, end, refused = DynamicCache(config=model.config), 0, 0
        for size in chunks:
            before, end = end, end + size
            then, now = (int(module.effective_length(torch.tensor(n))) for n in (before, end))
            if before and then != now:
                with pytest.raises(ConfigError, match=rf"scale at {end} tokens than at {before}, .* use_cache=False"):
                    model(x[:, before:end], use_cache=True, **with_cache(cache))
                cache, refused = cache_in(model(x[:, :end], use_cache=True)), refused + 1
                continue
            found = model(x[:, before:end], use_cache=True, **with_cache(cache)).logits
            torch.testing.assert_close(found, whole(model, x[:, :end])[:, before:], atol=2e-4, rtol=1e-4)
        assert end == 60 and (refused or (chunks[0] == 40 and isinstance(module, LongRoPE)))


GENERATION: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "padding": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 3},
    "sampled": {"do_sample": True, "num_return_sequences": 2},
}


@pytest.mark.medium
@torch.no_grad()
@pytest.mark.parametrize("how", GENERATION)
@pytest.mark.parametrize(("kind", "encoding"), CASES)
def test_generation_equals_one_pass_for_each_token(kind: str, encoding: str | None, how: str) -> None:
    model, x = model_with(kind, encoding), tokens(2, 27)
    mask = torch.ones_like(x)
    if how == "padding":
        mask[0, :5] = 0
    options = {**GENERATION[how], "min_new_tokens": 14, "output_logits": True, "return_dict_in_generate": True}
    found = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        found.append(model.generate(x, attention_mask=mask, max_new_tokens=14, use_cache=use_cache, **options))
    assert found[0].sequences.tolist() == found[1].sequences.tolist()
    torch.testing.assert_close(torch.stack(found[0].logits), torch.stack(found[1].logits), atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_only_a_change_of_scale_computes_tokens_again() -> None:
    model, x, sizes = model_with("llama", "dynamicntk:factor=4,scale_step=8"), tokens(1, 27), []
    model.model.register_forward_pre_hook(
        lambda _, __, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    model.generate(x, max_new_tokens=22, min_new_tokens=22, do_sample=False)
    assert sizes == [27, *[1] * 5, 33, *[1] * 7, 41, *[1] * 7]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llama, dynamic", "llama, longrope", "phi3"])
def test_prompt_lookup_goes_on_beyond_the_training_length(kind: str) -> None:
    """Its tokens differ from those of greedy decoding, because the tokens that it tries make the text longer."""
    model, x = model_with(kind, None), tokens(1, 7).repeat(1, 4)
    options: dict[str, Any] = {"max_new_tokens": 14, "min_new_tokens": 14, "do_sample": False}
    assert model.generate(x, prompt_lookup_num_tokens=3, **options).shape == (1, 42)


@torch.no_grad()
def test_a_chunk_of_a_prompt_with_another_scale_is_refused() -> None:
    """`generate` then has only the tokens of the chunk, as it does if the caller passes embeddings."""
    model, x = model_with("llama", "dynamicntk:factor=4"), tokens(1, 40)
    with pytest.raises(ConfigError, match=r"another scale at 40 tokens than at 20, .*without prefill_chunk_size"):
        model.generate(x, max_new_tokens=2, prefill_chunk_size=20)
    embeddings = model.get_input_embeddings()(x)
    with pytest.raises(ConfigError, match="another scale at 41 tokens than at 40"):
        model.generate(inputs_embeds=embeddings, max_new_tokens=3, min_new_tokens=3)
    short = model.generate(inputs_embeds=embeddings[:, :12], max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert short.shape == (1, 3)


@torch.no_grad()
def test_a_cache_that_was_shortened_remembers_its_scale() -> None:
    model, x = model_with("llama, longrope", None), tokens(1, 40)
    cache = cache_in(model(x[:, :36], use_cache=True))
    cache.crop(-8)
    assert cache.get_seq_length() == 28
    with pytest.raises(ConfigError, match="another scale at 29 tokens than at 36"):
        model(x[:, 28:29], use_cache=True, **with_cache(cache))


@torch.no_grad()
def test_one_layer_is_exact_at_every_length() -> None:
    """Keys and values of the first layer do not depend on the scale."""
    model, x = model_with("llama", "dynamicntk:factor=4", num_hidden_layers=1), tokens(2, 60)
    cache = DynamicCache(config=model.config)
    for start in range(0, 60, 6):
        found = model(x[:, start : start + 6], use_cache=True, **with_cache(cache)).logits
        expected = whole(model, x[:, : start + 6])[:, start:]
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_copies_and_restored_models() -> None:
    model, x = model_with("llama", "dynamicntk:factor=4"), tokens(1, 27)
    options: dict[str, Any] = {"max_new_tokens": 14, "do_sample": False, "use_cache": True}
    expected = model.generate(x, **options).tolist()
    other = copy.deepcopy(model)
    unuse(model)
    assert "prepare_inputs_for_generation" not in vars(model)
    assert other.generate(x, **options).tolist() == expected
    assert model.generate(x, **options).tolist() == model.generate(x, **{**options, "use_cache": False}).tolist()


@torch.no_grad()
@pytest.mark.parametrize("make", [DynamicNTK, DynamicYaRN, LongRoPE])
def test_our_own_models_compute_such_tokens_again(make: Any) -> None:
    """Steps and chunks of `LengthwiseForCausalLM` equal one forward pass at every length."""
    torch.manual_seed(0)
    architecture = ModelConfig(d_model=32, num_layers=3, num_heads=2)
    model = LengthwiseForCausalLM(LengthwiseConfig.of(architecture, choose(make), TRAINED, 61)).eval()
    x, cache = tokens(2, 60), None
    for start, end in ((0, 10), (10, 33), *((n, n + 1) for n in range(33, 44)), (44, 60)):
        output = model(x[:, start:end], use_cache=True, **with_cache(cache))
        cache = cache_in(output)
        torch.testing.assert_close(output.logits, whole(model, x[:, :end])[:, start:], atol=2e-4, rtol=1e-4)
