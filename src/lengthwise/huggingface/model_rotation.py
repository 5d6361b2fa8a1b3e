"""What takes the place of a model's rotary embedding: an angle of 0, or our angles in steps of few tokens.

There, layers rotate by an angle of 0 in the same time as by ours, and our attention need not rotate again.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, Rotation
from lengthwise.huggingface.rotated_keys import example_modifiers
from lengthwise.span import Span, lowest_and_highest

ROTATING_TYPES = ("gemma", "gpt_neox", "llama", "mistral", "qwen2", "qwen3")
"""Types of models whose layers all rotate queries and keys by their rotary embedding, in the layout "half"."""
NOTHING = AttentionModifiers()
FEW_TOKENS = 64  # more are rotated by our attention
MAX_TABLE = 1 << 17  # positions, beyond which the angles of a step are computed and not stored


class NoRotation(nn.Module):
    """Takes the place of a model's rotary embedding. Its cos and sin rotate by an angle of 0, which changes nothing."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.original = original
        self._dims: dict[Any, tuple[int, torch.dtype]] = {}  # of cos and sin, by the type of layer

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original that the model reads, such as LFM 3's `layer_types`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("original"), name)

    def forward(self, x: Tensor, position_ids: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        key = x.dtype, arguments, *options.values()
        if key not in self._dims:
            cos, _ = self.original(x, position_ids, *arguments, **options)
            self._dims[key] = cos.shape[-1], cos.dtype
        dim, dtype = self._dims[key]
        sizes = *position_ids.shape, dim
        ones = torch.ones((), dtype=dtype, device=x.device).expand(sizes)
        return ones, torch.zeros((), dtype=dtype, device=x.device).expand(sizes)


@dataclass
class ModelRotation:
    """The rotation of a model. Whether it applies depends only on what its rotary embedding and its layers see alike.

    `state`: what a layer has in addition (`LayerState`). `embeddings`: those of tokens, with the data type.
    """

    state: Any
    embeddings: Any

    def applies(self, tokens: int) -> bool:
        """Whether the layers rotate by our angles. In 16-bit types they would be less precise than our attention."""
        return tokens < FEW_TOKENS and self.embeddings.weight.dtype == torch.float32

    def cos_sin(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [b|1, t, 2 · pairs] in the layout "half"."""
        if position_ids.numel() == 1 and (last := int(position_ids)) < MAX_TABLE:
            by_index = torch.arange(last + 1, device=position_ids.device)[None]
            span = Span(by_index[:, -1:], by_index, last + 1, consecutive=True)
        else:
            first, last = lowest_and_highest(position_ids)
            span = Span(position_ids, position_ids, last + 1, False, None, None, first)
        rotation = self.state.forms.modifiers(self.state.encoding, span).rotation
        cos, sin = rotation.cos_sin("q", torch.float32)[:, 0].unbind(2)
        return torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)


class RotationOfFewTokens(NoRotation):
    """Takes the place of a model's rotary embedding: our angles for few tokens, and an angle of 0 for more."""

    def __init__(self, original: nn.Module, rotation: ModelRotation):
        super().__init__(original)
        self.rotation = rotation

    def forward(self, x: Tensor, position_ids: Tensor, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        if self.rotation.applies(x.shape[1]):
            cos, sin = self.rotation.cos_sin(position_ids)
            return cos.to(x.dtype), sin.to(x.dtype)
        return super().forward(x, position_ids, *arguments, **options)


def can_rotate(model_type: str, original: nn.Module, encoding: PositionEncoding) -> bool:
    """Whether a model's layers can compute an encoding: one rotation of all pairs, the same for q and k."""
    frequencies = getattr(original, "inv_freq", None)
    if model_type not in ROTATING_TYPES or not isinstance(frequencies, Tensor):
        return False
    if encoding.depends_on_length() or encoding.reads_content():
        return False
    modifiers = example_modifiers(encoding, frequencies.device)
    rotation = modifiers.rotation
    if not isinstance(rotation, Rotation) or rotation.angle_q is None:
        return False
    if replace(modifiers, rotation=None, encoding=None) != NOTHING:
        return False
    same = rotation.layout == "half" and rotation.same_for_keys and not rotation.angle_q.requires_grad
    in_pairs = not rotation.polar and rotation.angle_q.shape[1] == 1
    return same and in_pairs and rotation.angle_q.shape[-1] == frequencies.numel()
