"""The rotations of vision-language models in transformers, with positions on several axes."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers.models.glm4v import modeling_glm4v
from transformers.models.glm4v.configuration_glm4v import Glm4vTextConfig
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig, Qwen2VLVisionConfig
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig

from lengthwise.encodings import AxialRoPE, MRoPE, PositionEncoding
from lengthwise.span import Span

POSITIONS = torch.randint(0, 60, (2, 9, 3), generator=torch.Generator().manual_seed(0))
SIZES = {"hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4}  # heads of 128 dimensions


def ours(encoding: PositionEncoding, positions: Tensor, x: Tensor) -> Tensor:
    highest = positions.amax(-1)
    rotation = encoding.modifiers(Span(highest, highest, 60, axes_q=positions, axes_k=positions)).rotation
    assert rotation is not None
    return rotation.rotate_query(x)


CASES: list[tuple[str, Any, Any, Any, dict[str, Any], PositionEncoding]] = [
    (
        "Qwen2-VL",
        modeling_qwen2_vl,
        modeling_qwen2_vl.Qwen2VLRotaryEmbedding,
        Qwen2VLTextConfig,
        {"rope_theta": 1e6, "rope_type": "default", "mrope_section": [16, 24, 24]},
        MRoPE(head_dim=128, layout="half"),
    ),
    (
        "Qwen2.5-VL",
        modeling_qwen2_5_vl,
        modeling_qwen2_5_vl.Qwen2_5_VLRotaryEmbedding,
        Qwen2_5_VLTextConfig,
        {"rope_theta": 1e6, "rope_type": "default", "mrope_section": [16, 24, 24]},
        MRoPE(head_dim=128, layout="half"),
    ),
    (
        "Qwen3-VL",
        modeling_qwen3_vl,
        modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding,
        Qwen3VLTextConfig,
        {"rope_theta": 5e6, "rope_type": "default", "mrope_section": [24, 20, 20]},
        MRoPE(head_dim=128, order="interleaved", base=5e6, layout="half"),
    ),
    (
        "GLM-4V",
        modeling_glm4v,
        modeling_glm4v.Glm4vTextRotaryEmbedding,
        Glm4vTextConfig,
        {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5},
        MRoPE(head_dim=128, sections=(8, 12, 12), base=1e4, rotary_fraction=0.5),
    ),
]


@pytest.mark.parametrize(
    ("module", "rotary", "config", "rope", "encoding"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_mrope(module: Any, rotary: Any, config: Any, rope: dict[str, Any], encoding: PositionEncoding) -> None:
    x = torch.randn(2, 4, 9, 128, generator=torch.Generator().manual_seed(1))
    cos, sin = rotary(config(**SIZES, head_dim=128, rope_parameters=rope))(x, POSITIONS.permute(2, 0, 1))
    theirs, _ = module.apply_rotary_pos_emb(x, x, cos, sin)
    torch.testing.assert_close(ours(encoding, POSITIONS, x), theirs, atol=2e-5, rtol=0)
    text = POSITIONS[..., :1].expand(-1, -1, 3)  # a wrong order of sections would be right on text
    assert (ours(encoding, POSITIONS, x) - ours(encoding, text, x)).abs().max() > 0.1


def test_axial_rope_of_the_vision_model_of_qwen2_vl() -> None:
    config = Qwen2VLVisionConfig(embed_dim=256, num_heads=4, num_attention_heads=4)
    rotary = modeling_qwen2_vl.Qwen2VLVisionRotaryEmbedding(config)
    x = torch.randn(9, 4, 64, generator=torch.Generator().manual_seed(1))
    axes = POSITIONS[0, :, 1:]
    cos, sin = rotary(x, axes)
    theirs, _ = modeling_qwen2_vl.apply_rotary_pos_emb_vision(x, x, cos, sin)
    encoding = AxialRoPE(head_dim=64, base=1e4, layout="half")
    torch.testing.assert_close(
        ours(encoding, axes[None], x.transpose(0, 1)[None])[0].transpose(0, 1), theirs, atol=2e-5, rtol=0
    )
