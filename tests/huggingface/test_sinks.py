"""Models with learned sinks in the softmax (gpt-oss, Granite SWA): the layers keep them, whatever their encoding is."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import T5

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, DynamicCache

from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.extend.apply import write_start
from lengthwise.huggingface import unuse, use
from lengthwise.reach.methods import applied
from lengthwise.reach.model import Reader
from tests.huggingface.models import COMMON, model_of, tokens, with_cache

GRANITE = "granite_swa"  # from transformers 5.23 on
needs_granite = pytest.mark.skipif(GRANITE not in CONFIG_MAPPING, reason="transformers has no granite_swa before 5.23")
KINDS = ["gpt_oss", pytest.param(GRANITE, marks=needs_granite)]


def model_with_sinks(kind: str) -> Any:
    if kind == "gpt_oss":
        return model_of(kind)
    torch.manual_seed(0)
    layers = ["full_attention", "sliding_attention", "sliding_attention"]
    config = AutoConfig.for_model(
        kind, **{**COMMON, "sliding_window": 6, "layer_types": layers, "initializer_range": 0.1}
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


def gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(tokens(), labels=tokens(), use_cache=False).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_own_encoding_gives_the_own_logits_and_gradients(kind: str) -> None:
    model = model_with_sinks(kind)
    own, own_gradients = model(tokens(), use_cache=False).logits, gradients(model)
    use(model)
    torch.testing.assert_close(model(tokens(), use_cache=False).logits, own, atol=1e-5, rtol=1e-5)
    found = gradients(model)
    assert set(found) == set(own_gradients) and sum(".sinks" in name for name in found) == 3
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, own_gradients[name], atol=1e-5, rtol=1e-4, msg=name)


def without_rotation(model: Any) -> Any:
    """Let transformers rotate by an angle of 0, which is exact in every type."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq.zero_()
            module.attention_scaling = 1.0
    return model


def dense_masks(model: Any, slopes: torch.Tensor | None, length: int) -> dict[str, torch.Tensor]:
    """Additive masks of both kinds of layers, with the biases -slope (i - j) of ALiBi."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    bias = torch.zeros(1, 1, 1, 1) if slopes is None else -slopes[:, None, None] * distance.clamp(min=0)
    masks = {}
    for kind, window in (("full_attention", length), ("sliding_attention", model.config.sliding_window)):
        shown = (distance >= 0) & (distance < window)
        masks[kind] = torch.where(shown, bias.double(), -torch.inf).expand(1, 4, length, length)
    return masks


@pytest.mark.parametrize("encoding", ["nope", "alibi"])
def test_another_encoding_in_float64_against_transformers(encoding: str) -> None:
    """Logits and all gradients, with sliding windows and grouped-query attention."""
    model, x = without_rotation(model_of("gpt_oss").double()), tokens()
    model.set_experts_implementation("eager")  # the default has no float64
    slopes = 2.0 ** (-2.0 * torch.arange(1, 5)) if encoding == "alibi" else None
    masks = dense_masks(model, slopes, x.shape[1])
    targets = torch.nn.functional.one_hot(x, 61).double()

    def results(**options: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        model.zero_grad()
        logits = model(x, use_cache=False, **options).logits
        (logits * targets).sum().backward()
        return logits, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected, expected_gradients = results(attention_mask=masks)
    use(model, encoding)
    logits, found = results()
    torch.testing.assert_close(logits, expected, atol=1e-10, rtol=1e-10)
    assert set(found) == set(expected_gradients) and sum(".sinks" in name for name in found) == 3
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected_gradients[name], atol=1e-8, rtol=1e-8, msg=name)


ENCODINGS = ["yarn:factor=8", "rope*2+nope", "alibi", "fire", "t5", "fox", "cope", "pope", "sinusoidal", "selfextend"]
ENCODINGS += ["nope(temperature=ssmax)"]


@torch.no_grad()
@pytest.mark.parametrize("encoding", [None, *ENCODINGS])
@pytest.mark.parametrize("kind", KINDS)
def test_cached_decoding_equals_one_pass(kind: str, encoding: str | None) -> None:
    model, x = use(model_with_sinks(kind), encoding), tokens(2, 20)
    whole = model(x, use_cache=False).logits
    cache = DynamicCache(config=model.config)
    parts = [
        model(x[:, a:b], use_cache=True, **with_cache(cache)).logits for a, b in ((0, 9), (9, 10), (10, 11), (11, 20))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)
    for layer in model.model.layers:
        layer.self_attn.sinks.add_(1)
    assert (model(x, use_cache=False).logits - whole).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_restored_models_keep_their_sinks(kind: str, tmp_path: Path) -> None:
    model, x = model_with_sinks(kind), tokens()
    own, names = model(x).logits, set(model.state_dict())
    use(model, choose(T5))
    assert {name for name in model.state_dict() if "position_encodings" not in name} == names
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(x).logits, model(x).logits)
    assert torch.equal(unuse(model)(x).logits, own)
    torch.testing.assert_close(loaded.model.layers[1].self_attn.sinks, model.model.layers[1].self_attn.sinks)


def test_packed_documents_are_refused() -> None:
    """transformers' class of gpt-oss lets them see each other."""
    model, packed = model_of("gpt_oss"), torch.cat([torch.arange(6), torch.arange(11)])[None]
    with torch.no_grad():
        contaminated = model(tokens(1), position_ids=packed, use_cache=False).logits[:, 6:]
        alone = model(tokens(1)[:, 6:], use_cache=False).logits
    assert (contaminated - alone).abs().max() > 0.1, "transformers packs them now; compute them too"
    with pytest.raises(ConfigError, match="in a model whose class hides them from each other"):
        use(model)(tokens(1), position_ids=packed, use_cache=False)


def test_encodings_that_cannot_be_combined_with_sinks() -> None:
    model = model_of("gpt_oss")
    for encoding in ("sinks", "rope(sinks=true)*2+nope"):
        with pytest.raises(ConfigError, match="the layers of this model keep learned sinks of their own; omit ours"):
            use(model, encoding)
    with pytest.raises(ConfigError, match="StickBreaking has no softmax, to which the learned sinks of this model"):
        use(model, "stickbreaking")


@torch.no_grad()
def test_reach_reads_them_with_other_methods() -> None:
    model, ids = model_of("gpt_oss"), tokens(1, 60)[0].tolist()
    own = Reader(model).losses(ids, range(59))
    with applied(model, "yarn"):
        torch.testing.assert_close(Reader(model).losses(ids, range(59)), own, atol=1e-5, rtol=1e-5)
    with applied(model, "alibi"):
        assert (Reader(model).losses(ids, range(59)) - own).abs().max() > 1e-2
    assert torch.equal(Reader(model).losses(ids, range(59)), own)


@pytest.mark.medium
@torch.no_grad()
@pytest.mark.parametrize(
    ("method", "form"),
    [("yarn:factor=8", "native"), ("rope", "native"), ("alibi", "lengthwise"), ("fire", "lengthwise")],
)
def test_extend_writes_folders_with_sinks(method: str, form: str, tmp_path: Path) -> None:
    """A native folder has the settings of gpt-oss that the method does not name, such as `truncate: false`."""
    model, x = model_of("gpt_oss"), tokens(2, 60)
    source = tmp_path / "source"
    source.mkdir()
    found = write_start(Pretrained(source, model, None, type(model).__name__, 64), method, 3, 64, tmp_path / "out")
    assert found == form
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.manual_seed(3)
    with applied(model, method, seed=3):
        expected = model(x, use_cache=False).logits
    torch.testing.assert_close(loaded(x, use_cache=False).logits, expected, atol=1e-4, rtol=1e-4)
    if method == "yarn:factor=8":
        parameters = loaded.config.rope_parameters
        assert loaded.config.model_type == "gpt_oss" and loaded.config.max_position_embeddings == 8 * 16
        assert (parameters["truncate"], parameters["rope_theta"], parameters["factor"]) == (False, 500.0, 8.0)
