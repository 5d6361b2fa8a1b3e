"""What public bug reports of other programs describe is right here. Each test names the thread: repository#number."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.encodings import YaRN
from lengthwise.huggingface import description, folder, use
from tests.huggingface.configurations import GEMMA_3, SHAPE, Settings, written
from tests.huggingface.models import answers, model_of, tokens

YARN_SIZES = [  # original length, factor, base, dimensions of a head, truncate
    (131_072, 4.0, 1e4, 128, True),
    (4096, 32.0, 150_000.0, 64, False),
    (64, 4.0, 1e4, 64, True),  # the ramp ends after the last pair of dimensions
]


@pytest.mark.parametrize(("length", "factor", "base", "head_dim", "truncate"), YARN_SIZES)
def test_the_ramp_of_yarn_ends_where_it_does_in_transformers(
    length: int, factor: float, base: float, head_dim: int, truncate: bool
) -> None:
    """keras-team/keras-hub#2981 and vllm-project/vllm#27722: another end of the ramp, and `truncate` was ignored."""
    rope = {"rope_type": "yarn", "rope_theta": base, "factor": factor, "truncate": truncate}
    rope["original_max_position_embeddings"] = length
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=int(factor * length),
        rope_parameters=rope,
    )
    expected, gain = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    ours = YaRN(head_dim=head_dim, train_length=length, factor=factor, base=base, truncate=truncate)
    torch.testing.assert_close(ours.frequencies(torch.tensor(1)).float(), expected, rtol=1e-6, atol=0)
    assert ours.gain(torch.tensor(1)) == pytest.approx(gain)


def test_the_factor_of_yarn_multiplies_rotated_dimensions_only() -> None:
    """guoqingbao/xinfer#329: the factor was part of the softmax scale, which scales all dimensions."""
    rope = {
        "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "partial_rotary_factor": 0.5,
    }  # fmt: skip
    model = model_of("gpt_neox", rope_parameters=rope)
    own = answers(model)
    for name, found in answers(use(model)).items():
        torch.testing.assert_close(found, own[name], atol=3e-5, rtol=1e-4)


def labels(path: Path, settings: Settings) -> list[tuple[str, int]]:
    """The encodings of layers with attention, and the number of layers that have each."""
    groups = description.layer_groups(folder.read_folder(written(path, settings)))
    return [(group.encoding.label, len(group.layers)) for group in groups if group.encoding]


def test_only_global_layers_of_gemma_3_are_interpolated(tmp_path: Path) -> None:
    """Blaizzy/mlx-vlm#1709, lablup/mlxcel#1340, antonellof/ferrox#39: no layer, or all, had the factor."""
    settings = {name: value for name, value in GEMMA_3.items() if name not in ("rope_parameters", "layer_types")}
    old = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert labels(tmp_path, {**settings, **old, "sliding_window_pattern": 6}) == [
        ("RoPE(layout=half)", 5),
        ("PI(base=1000000.0, layout=half, factor=8.0)", 1),
    ]


SMALL = {
    **SHAPE,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "pad_token_id": 0,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
}
PARTIAL = {
    # ml-explore/mlx-lm#1698: the default of GLM, which the file does not contain, was missing.
    "glm": ({}, 0.5),
    # vllm-project/vllm#30384: the fraction was applied twice.
    "minimax_m2": ({"rotary_dim": 32}, 0.5),
    # AI-Hypercomputer/maxtext#4616: the fraction was ignored beside sections.
    "qwen3_5_text": (
        {
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25, "mrope_section": [4, 2, 2],
            }
        },
        0.25,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTIAL)
def test_a_part_of_each_head_is_rotated_once(tmp_path: Path, kind: str) -> None:
    settings, fraction = PARTIAL[kind]
    if kind == "minimax_m2" and "partial_rotary_factor" not in AutoConfig.for_model(kind, rotary_dim=8).rope_parameters:
        pytest.skip("this version of transformers ignores rotary_dim itself")
    ((label, _),) = labels(tmp_path, {"model_type": kind, **SMALL, **settings})
    assert f"rotary_fraction={fraction}" in label


@torch.no_grad()
@pytest.mark.parametrize("length", [20, 80])
def test_factors_of_longrope_follow_the_length_of_the_text(length: int) -> None:
    """ggml-org/llama.cpp#24823: the long factors were chosen by the allocated context, also for a short text."""
    rope = {
        "rope_type": "longrope", "rope_theta": 1e3, "factor": 8.0, "original_max_position_embeddings": 32,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.5, 5.0, 8.0],
    }  # fmt: skip
    model, x = model_of("llama", rope_parameters=rope, max_position_embeddings=256), tokens(1, length)
    own = model(x, use_cache=False).logits
    torch.testing.assert_close(use(model)(x, use_cache=False).logits, own, atol=5e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("encoding", [None, "rope", "alibi", "fire"])
def test_rows_of_padding_change_no_other_row(encoding: str | None, dtype: torch.dtype) -> None:
    """huggingface/transformers#47651: with some numbers of pads, rows without any key corrupted others."""
    model, x = use(model_of("llama"), encoding).to(dtype), tokens(1, 12)
    alone = model(x).logits
    for pads in (1, 7, 8, 9):
        padded = torch.cat([torch.zeros(1, pads, dtype=torch.long), x], 1)
        mask = (torch.arange(12 + pads) >= pads).long()[None]
        logits = model(padded, attention_mask=mask).logits
        assert logits.isfinite().all()
        tolerance = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
        assert float((logits[:, pads:] - alone).abs().max() / alone.abs().max()) < tolerance, pads


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["rope", "dynamicntk:factor=4", "fox", "bandedbias:band=8"])
def test_rejected_drafts_leave_the_cache(encoding: str) -> None:
    """ml-explore/mlx-lm#1109: tokens that were guessed and rejected stayed in the cache."""
    model: Any = use(model_of("llama"), encoding)
    x = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 9, 5, 6]])
    options = {"max_new_tokens": 20, "do_sample": False, "attention_mask": torch.ones_like(x)}
    assert torch.equal(model.generate(x, prompt_lookup_num_tokens=4, **options), model.generate(x, **options))
