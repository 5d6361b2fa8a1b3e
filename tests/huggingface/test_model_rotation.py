"""The model's own layers rotate few tokens by our angles: the results are those of our attention's rotation."""

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from lengthwise.huggingface import model_rotation, unuse, use
from tests.huggingface.models import answers, model_of, tokens

CASES = [
    ("llama", "rope"),
    ("llama", "pi:factor=4"),
    ("llama", "yarn:factor=4"),
    ("llama", "prope"),
    ("mistral", "rope:base=50"),
]
CASES += [("gpt_neox", None), ("qwen3", "llama3"), ("gemma", None)]


def rotations(model: Any) -> list[Any]:
    """What each attention layer has."""
    return [module._lengthwise.model_rotation for module in model.modules() if hasattr(module, "_lengthwise")]


@pytest.mark.medium
@pytest.mark.parametrize(("family", "encoding"), CASES)
def test_it_is_the_rotation_of_our_attention(
    family: str, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For plain, padded, packed and cached input, and generation; also after longer parts of a text."""
    if encoding is not None:
        encoding += f"{',' if ':' in encoding else ':'}layout=half"
    model = use(model_of(family), encoding)
    assert all(rotation is not None and rotation.applies(1) for rotation in rotations(model))
    found = {}
    for few in (0, 9, 64):
        monkeypatch.setattr(model_rotation, "FEW_TOKENS", few)
        found[few] = answers(model)
    for few in (9, 64):
        for name, value in found[few].items():
            torch.testing.assert_close(
                value, found[0][name], atol=3e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


OTHERS = [("llama", f"{name}:layout=half") for name in ("xpos", "dynamicntk")] + [("llama", "fire"), ("smollm3", None)]
OTHERS += [
    ("llama", f"rope:{settings}") for settings in ("layout=interleaved", "rotary_fraction=0.5", "layout=half*2+nope")
]


@pytest.mark.parametrize(("family", "encoding"), [*OTHERS, ("gemma3_text", None)])
def test_other_encodings_and_models_stay_with_our_attention(family: str, encoding: str | None) -> None:
    assert set(rotations(use(model_of(family), encoding))) == {None}


@torch.no_grad()
def test_sixteen_bits_are_rotated_by_our_attention_which_is_more_precise() -> None:
    model, x = use(model_of("llama")), tokens()
    rotation = rotations(model)[0]
    exact = model(x).logits
    rounded = model.to(torch.bfloat16)
    assert not rotation.applies(1)
    ours = float((rounded(x).logits - exact).abs().max())
    theirs = float((unuse(rounded)(x).logits - exact).abs().max())
    assert ours < 1.5 * theirs
