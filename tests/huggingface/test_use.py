"""Encodings in models of transformers. With its own encoding, computed by lengthwise, a model gives its own logits."""

import warnings
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import ENCODINGS, FIRE, T5, Learned

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, DynamicCache, StaticCache

from lengthwise.huggingface import unuse, use
from tests.huggingface.models import COMMON, FAMILIES, GEMMA3_LAYERS, answers, cache_in, model_of, tokens, with_cache


def differences(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float((t.double() - other[name].double()).abs().max()) for name, t in one.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_its_own_encoding_gives_its_own_logits(family: str) -> None:
    """Plain, padded, packed and cached input, and generation; then the original is restored bit for bit."""
    model = model_of(family)
    own = answers(model)
    assert use(model) is model
    found = differences(answers(model), own)
    assert max(found.values()) < 3e-5, found
    assert unuse(model) is model
    assert max(differences(answers(model), own).values()) == 0
    assert set(model.state_dict()) == set(model_of(family).state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family: str) -> None:
    model, x = model_of(family), tokens()
    model.train()

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(x, labels=x).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    own = gradients()
    use(model)
    assert max(differences(gradients(), own).values()) < 3e-5


def settings_of(encoding: Any) -> dict[str, Any]:
    return {"max_length": 64} if encoding is Learned else {}


SEEN_QUICKLY = (
    "Learned",
    "RoPE",
    "DynamicNTK",
    "T5",
    "FIRE",
    "TransformerXL",
    "CoPE",
    "FoX",
    "SelectiveRoPE",
    "PoPE",
    "Sinks",
    "DCA",
)


@pytest.mark.parametrize(
    "encoding",
    [make if make.__name__ in SEEN_QUICKLY else pytest.param(make, marks=pytest.mark.slow) for make in ENCODINGS],
    ids=lambda make: make.__name__,
)
def test_every_encoding_sees_the_same_tokens_however_they_are_given(encoding: Any) -> None:
    """Packed documents equal each alone, padding changes nothing, and steps with a cache equal one forward pass."""
    model = use(model_of("llama"), choose(encoding, **settings_of(encoding)))
    (one,) = list({type(e) for e in model.model.position_encodings})
    assert one is encoding
    x = tokens(1, 12)
    module = model.model.position_encodings[0]
    with torch.no_grad():
        alone = [model(x[:, a:b], use_cache=False).logits for a, b in ((0, 7), (7, 12))]
        packed = torch.cat([torch.arange(7), torch.arange(5)])[None]
        together = model(x, position_ids=packed, use_cache=False).logits
        torch.testing.assert_close(together, torch.cat(alone, 1), atol=2e-4, rtol=1e-4)
        padded = torch.cat([torch.full((1, 3), 5), x], 1)
        mask = torch.cat([torch.zeros(1, 3, dtype=torch.long), torch.ones_like(x)], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = model(padded, attention_mask=mask, position_ids=positions, use_cache=False).logits[:, 3:]
        whole = model(x, use_cache=False).logits
        torch.testing.assert_close(logits, whole, atol=2e-4, rtol=1e-4)
        cache = DynamicCache(config=model.config)
        parts = [model(x[:, a:b], use_cache=True, **with_cache(cache)).logits for a, b in ((0, 5), (5, 6), (6, 12))]
        if not module.depends_on_length():
            torch.testing.assert_close(torch.cat(parts, 1), whole, atol=2e-4, rtol=1e-4)


def test_alibi_and_t5_against_a_dense_bias() -> None:
    """By the formula: bias_h(i, j) = -slope_h (i - j) with slopes 2^(-2), 2^(-4), ...; and a table of T5's buckets."""
    model, x = model_of("llama", num_attention_heads=4, num_hidden_layers=1), tokens(1, 9)
    use(model, "alibi")
    logits = model(x, use_cache=False).logits
    unuse(model)
    distance = torch.arange(9)[:, None] - torch.arange(9)
    slopes = 2.0 ** (-2.0 * torch.arange(1, 5))
    bias = torch.where(distance >= 0, -slopes[:, None, None] * distance, -torch.inf)[None]
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq.zero_()  # RoPE without rotation
    torch.testing.assert_close(logits, model(x, attention_mask=bias, use_cache=False).logits, atol=2e-5, rtol=1e-5)
    t5 = use(model_of("llama"), choose(T5))
    with torch.no_grad():
        for parameter in t5.model.position_encodings.parameters():
            parameter.zero_()
        nope = use(model_of("llama"), "nope")
        torch.testing.assert_close(t5(x).logits, nope(x).logits, atol=2e-5, rtol=1e-5)


def test_patterns_and_parameters() -> None:
    model = use(model_of("llama", num_hidden_layers=4), "t5*2+nope+fire:hidden_layers=1")
    decoder = model.model
    names = [type(layer.self_attn._lengthwise.encoding).__name__ for layer in decoder.layers]
    assert names == ["T5", "T5", "NoPE", "FIRE"]
    assert decoder.layers[0].self_attn._lengthwise.encoding is decoder.layers[1].self_attn._lengthwise.encoding
    x = tokens()
    model.train()
    before = {name: p.detach().clone() for name, p in model.named_parameters() if "position_encodings" in name}
    assert before
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        loss = model(x, labels=x).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    changed = {n for n, p in model.named_parameters() if n in before and not torch.equal(p, before[n])}
    assert {name.split(".")[2] for name in changed} == {"0", "2"}, "both learned encodings have learned"


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    model, x = use(model_of("llama"), choose(FIRE)), tokens()
    model.train()

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(x, labels=x, use_cache=False).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    kept = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    recomputed = gradients()
    assert recomputed.keys() == kept.keys()
    assert max(differences(recomputed, kept).values()) < 1e-6


def test_bfloat16() -> None:
    x, model = tokens(), model_of("llama").to(torch.bfloat16)
    own = model(x).logits
    used = use(model)(x).logits
    assert used.dtype == own.dtype == torch.bfloat16
    assert float((used - own).abs().max()) < 0.3
    fire = use(model_of("llama").to(torch.bfloat16), "fire")
    assert fire(x).logits.isfinite().all()


def test_learned_positions_in_gpt2() -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=61, attn_pdrop=0.0, initializer_range=0.25
    )
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    own = answers(model)
    with pytest.raises(ConfigError, match="name an encoding"):
        use(model)
    use(model, choose(Learned, max_length=64))
    with torch.no_grad():
        model.transformer.position_encodings[0].table.copy_(model.transformer.wpe.original.weight)
    found = differences(answers(model), own)
    assert max(found.values()) < 3e-5, found
    unuse(model)
    assert max(differences(answers(model), own).values()) == 0
    use(model, "fire")
    assert model.generate(tokens(), max_new_tokens=4, do_sample=False).shape == (2, 21)


def refused(words: str, call: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigError, match=words) as caught:
            call()
    assert "\n" not in str(caught.value)


def test_what_cannot_be() -> None:
    model, x = model_of("llama"), tokens()
    refused("has no encoding of lengthwise; there is nothing to restore", lambda: unuse(model))
    refused("there is no encoding 'fier'.*did you mean", lambda: use(model, "fier"))
    refused("use takes a loaded model, got 'folder'; load it with AutoModelForCausalLM", lambda: use("folder", "rope"))
    refused("num_layers must be at least 5", lambda: use(model, "rope*4+nope"))
    refused("rotary_fraction", lambda: use(model, "rope:rotary_fraction=1.5"))
    assert model.config._attn_implementation == "sdpa", "nothing has changed"
    use(model)
    refused("already has an encoding of lengthwise", lambda: use(model, "fire"))
    square = torch.zeros(2, 1, 17, 17)
    refused(r"a mask of the shape \[batch, tokens\], or none, got a tensor", lambda: model(x, attention_mask=square))
    cache = StaticCache(config=model.config, max_cache_len=32)
    refused("no static cache; use a DynamicCache", lambda: model(x, **with_cache(cache)))
    windowed = use(model_of("mistral"))
    refused("no static cache", lambda: windowed.generate(x, max_new_tokens=3, cache_implementation="static"))
    positions = torch.tensor([[40]])
    part = cache_in(model(x, use_cache=True))
    refused(
        "with a cache, position_ids must count", lambda: model(x[:, :1], position_ids=positions, **with_cache(part))
    )
    dropping = use(model_of("llama", attention_dropout=0.1)).train()
    refused("attention dropout must be 0 with an encoding of lengthwise, got 0.1", lambda: dropping(x))
    assert dropping.eval()(x).logits.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "words"), [("bert", "no attention layers that call"), ("mamba", "no attention layers")]
)
def test_models_that_are_no_such_decoders(kind: str, words: str) -> None:
    sizes = {name: value for name, value in COMMON.items() if name not in ("initializer_range",)}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes))
    refused(words + "|cannot be switched off", lambda: use(model, "fire"))


def test_a_model_that_sees_later_tokens_is_refused() -> None:
    model = use(model_of("llama"), "rope")
    model.config.is_causal = False
    refused("must not show later tokens to a query", lambda: model(tokens()))


def test_a_model_of_images_is_refused() -> None:
    text = {**COMMON, **FAMILIES["gemma3_text"]}
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
    }
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=vision)
    model = AutoModel.from_config(config)
    refused("a gemma3 takes more than text", lambda: use(model, "rope"))


def test_a_soft_cap_is_refused() -> None:
    model = use(model_of("llama"), "fire")
    layer = model.model.layers[0].self_attn
    from lengthwise.huggingface.attention import Tokens, attention

    q = torch.zeros(1, 4, 3, 8)
    for name in ("softcap", "position_bias"):
        refused(
            "which the encodings of lengthwise do not support",
            lambda name=name: attention(layer, q, q, q, Tokens(3, 3, 0, None, False), **{name: 1.0}),
        )


@pytest.mark.medium
@pytest.mark.parametrize("family", ["llama", "mistral", "bloom", "mpt", "gpt_neox"])
def test_content_of_tokens_with_a_cache(family: str) -> None:
    """Parts of a text, padded rows and beams; Mistral has a window of 5 tokens, beyond which its cache drops keys."""
    model = use(model_of(family), "fox")
    with torch.no_grad():
        for parameter in model.get_decoder().position_encodings.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(2))
        one, other = answers(model), {}
        x = tokens()
        cache = DynamicCache(config=model.config)
        for begin, end in ((0, 9), (9, 10), (10, 17)):
            other[str(begin)] = model(x[:, begin:end], use_cache=True, **with_cache(cache)).logits
        whole = model(x, use_cache=False).logits
        torch.testing.assert_close(torch.cat(list(other.values()), 1), whole, atol=3e-5, rtol=1e-4)
        torch.testing.assert_close(one["cached"], whole, atol=3e-5, rtol=1e-4)
        mask = torch.ones_like(x)
        mask[0, :5] = 0
        options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "use_cache": False}
        assert torch.equal(model.generate(x, **options), one["generated, greedy"])
        assert torch.equal(model.generate(x, num_beams=3, **options), one["generated, beams"])
        if family != "mistral":
            cache.crop(-9)
            again = model(x[:, 8:], use_cache=True, **with_cache(cache)).logits
            torch.testing.assert_close(again, whole[:, 8:], atol=3e-5, rtol=1e-4)


def test_a_cache_of_another_encoding_is_refused() -> None:
    model, x, cache = model_of("llama"), tokens(), DynamicCache()
    model(x[:, :5], **with_cache(cache))
    use(model, "fox")
    refused(
        "computed without this encoding of lengthwise; use a new cache", lambda: model(x[:, 5:], **with_cache(cache))
    )


@pytest.mark.parametrize("kind", ["cohere", "cohere2", "glm", "ernie4_5", "exaone4"])
def test_the_own_encoding_of_models_with_another_layout(kind: str) -> None:
    """They rotate neighbouring dimensions, or only in the layers with a window."""
    config = AutoConfig.for_model(kind, **COMMON, head_dim=8, sliding_window=5)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        before = model(tokens(), use_cache=False).logits
        after = use(model)(tokens(), use_cache=False).logits
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_chunks_are_refused() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama4_text", **COMMON))
    refused("layers of a llama4_text have chunked_attention; .* windows only", lambda: use(model, "alibi"))


def test_layers_that_compute_with_the_mask_are_refused() -> None:
    model = use(AutoModelForCausalLM.from_config(AutoConfig.for_model("doge", **COMMON)), "alibi")
    refused("read the mask themselves \\(its dtype\\)", lambda: model(tokens()))


@pytest.mark.medium
@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "settings"),
    [("qwen2_moe", {"layer_types": GEMMA3_LAYERS, "use_sliding_window": True, "num_experts": 4}), ("phimoe", {})],
)
def test_windows_of_classes_that_tell_only_their_mask(kind: str, settings: dict[str, Any]) -> None:
    """Among the packed rows is one with short documents, and one with a document that is longer than the window."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**COMMON, **settings, "sliding_window": 5})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    short = torch.cat([torch.arange(4), torch.arange(5), torch.arange(5), torch.arange(3)])
    positions = torch.stack([short, torch.cat([torch.arange(3), torch.arange(14)])])

    def found() -> dict[str, torch.Tensor]:
        packed = model(tokens(), position_ids=positions, use_cache=False).logits
        return {"packed rows": packed, **answers(model)}

    own = found()
    use(model)
    changes = differences(found(), own)
    assert max(changes.values()) < 3e-5, changes


def test_a_rotation_in_the_other_direction_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("nanochat", **COMMON), attn_implementation="sdpa")
    with pytest.raises(ConfigError, match="NanoChatAttention rotates in a way that lengthwise does not have"):
        use(model)


def test_an_untested_version_of_transformers_has_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [
        model_of("llama") for _ in range(2)
    ]  # transformers replaces its own module when it imports the first model
    monkeypatch.setattr("transformers.__version__", "6.1.0")
    monkeypatch.setattr("lengthwise.transformers_versions._issued", set())
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for model in models:
            use(model, "alibi")
    words = "transformers 6.1.0 is not one of the tested versions, 5.14 to 5.24"
    assert [(words in str(warning.message), warning.filename) for warning in given] == [(True, __file__)]
