"""Rotations by positions with several axes, such as row and column.

AxialRoPE: each axis of the positions rotates its own part of queries and keys.
MRoPE: the pairs of one RoPE are divided among the axes of the positions, such as time, row and column.
RoPEMixed: each pair of each head rotates by a learned mixture of the positions on all axes.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.rope import RoPE, pair_frequencies, require_rotary
from lengthwise.forms import AttentionModifiers, Rotation, table_dtype
from lengthwise.span import Span, all_axes
from lengthwise.values import shown


class AxialRoPE(RoPE):
    """Pair p of axis a is rotated by x_a · base^(-2p/m) radians, where x_a is the position on axis a, and m = r / axes.

    The r rotated dimensions are divided into one part for each axis, in the order of the axes, and each part is a RoPE
    of its own. For an image, the axes are row and column. The product <R_i q, R_j k> depends only on the differences on
    each axis. Positions are [batch, tokens, axes]. A token with a single position ID, such as a word, has this ID on
    every axis.

    Beyond the training length: slow pairs of an axis reach angles never seen in training. More rows add only angles of
    rows.

    Source: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", which has the base 100, as DINOv3 does.
    Code: naver-ai/rope-vit (column first, `layout="interleaved"`); huggingface/transformers, models/qwen2_vl, the
    vision model (row first, base 10,000, `layout="half"`).
    Differs: DINOv3 measures positions from -1 to 1 over the image and multiplies them by 2π. Pixtral has the
    frequencies of one RoPE of all r dimensions and gives them to row and column in turn.

    >>> axial = AxialRoPE(head_dim=8)
    >>> row_and_column = torch.tensor([[[2, 1]]])
    >>> axial.pair_positions(torch.tensor([[2]]), row_and_column) * axial.frequencies(torch.tensor(3))
    tensor([[[2.0000, 0.2000, 1.0000, 0.1000]]], dtype=torch.float64)
    """

    def __init__(
        self,
        *,
        head_dim: int,
        axes: int = 2,
        base: float = 100.0,
        rotary_fraction: float = 1.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__(head_dim=head_dim, base=base, rotary_fraction=rotary_fraction, layout=layout)
        require_positive_int("AxialRoPE", axes=axes)
        if self.rotary_dims % (2 * axes):
            raise ConfigError(
                f"AxialRoPE: the {self.rotary_dims} rotated dimensions must be a multiple of {2 * axes}, because each "
                f"of the {axes} axes rotates as many pairs; change head_dim, rotary_fraction or axes"
            )
        self.num_axes = axes

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # Whether a number of axes is valid depends on the model's head_dim.
        sizes, settings = super().nominal(settings)
        return {**sizes, "head_dim": 2 * max(1, settings.get("axes", 2))}, settings

    def pair_positions(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Int[Tensor, "b t _"]:
        if axes is None:
            return positions[..., None]
        return axes.repeat_interleave(self.rotary_dims // (2 * axes.shape[-1]), -1)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        assert self.num_axes is not None
        return pair_frequencies(self.rotary_dims // self.num_axes, self.base, length.device).repeat(self.num_axes)


class MRoPE(RoPE):
    """Pair p is rotated by x_a(p) · base^(-2p/r) radians, where x_a(p) is the position on the axis a(p) that the pair
    belongs to.

    Axis a has `sections`[a] of the r/2 pairs. The axes are time, row and column, positions are [batch, tokens, axes],
    and `lengthwise.positions.multimodal_positions` computes them for text with images and videos. A token with a single
    position ID, such as a word, has this ID on every axis. So text has the angles of RoPE, to the last bit.

    `order="chunked"` (Qwen2-VL) gives the fastest pairs to time, the next ones to the row, and the slowest to the
    column. `"interleaved"` (Qwen3-VL) gives pairs 1, 4, 7, ... to the row and 2, 5, 8, ... to the column, as many as
    their sections say, and all others to time. So every axis has fast and slow pairs.

    `sections=None` has the proportions of these models for every head dim: row and column each get 3/8 of the pairs if
    chunked (16, 24, 24 of 64) and 5/16 if interleaved (24, 20, 20), rounded down but at least 1; time gets the rest.

    Beyond the training length: slow pairs reach angles never seen in training. An image advances the position of the
    text behind it only by its number of rows or columns, so a text with images has lower positions than tokens.

    Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution".
    Code: huggingface/transformers, models/qwen2_vl, models/qwen3_vl (both with `layout="half"`) and models/glm4v
    (chunked, sections 8, 12, 12, `rotary_fraction=0.5`, `layout="interleaved"`).
    Differs: transformers computes angles in float32, here they are float64. Sections of Qwen3-VL that do not fit the
    pairs are cut off silently there; here they raise `ConfigError`.

    >>> mrope = MRoPE(head_dim=16, base=10_000.0)
    >>> mrope.sections, mrope.axis_of_pair
    ((2, 3, 3), (0, 0, 1, 1, 1, 2, 2, 2))
    >>> MRoPE(head_dim=16, order="interleaved").axis_of_pair
    (0, 1, 2, 0, 1, 2, 0, 0)
    """

    # values for the conformance suite
    alternatives: ClassVar[dict[str, Any]] = {"sections": ((4, 2, 2), (2, 2, 4))}

    def __init__(
        self,
        *,
        head_dim: int,
        sections: tuple[int, ...] | None = None,
        order: Literal["chunked", "interleaved"] = "chunked",
        base: float = 1_000_000.0,
        rotary_fraction: float = 1.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__(head_dim=head_dim, base=base, rotary_fraction=rotary_fraction, layout=layout)
        pairs = self.rotary_dims // 2
        self.sections = _default_sections(order, pairs) if sections is None else _checked(sections, pairs)
        self.order, self.num_axes = order, len(self.sections)
        self.axis_of_pair = (_chunked if order == "chunked" else _interleaved)(self.sections)

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # The number of pairs depends on the model; it is taken from the sections.
        sizes, settings = super().nominal(settings)
        if settings.get("sections") is None:
            return sizes, settings
        return {**sizes, "head_dim": 2 * sum(_checked(settings["sections"]))}, {**settings, "rotary_fraction": 1.0}

    def pair_positions(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Int[Tensor, "b t _"]:
        return positions[..., None] if axes is None else axes[..., list(self.axis_of_pair)]


def _default_sections(order: str, pairs: int) -> tuple[int, ...]:
    if pairs < 3:
        raise ConfigError(
            f"MRoPE: the number of rotated pairs must be at least 3, one for each axis, got {pairs}; take a larger "
            "head_dim, or give sections"
        )
    space = max(1, pairs * 3 // 8 if order == "chunked" else pairs * 5 // 16)
    return pairs - 2 * space, space, space


def _checked(sections: tuple[int, ...], pairs: int | None = None) -> tuple[int, ...]:
    """Return the sections. Raise `ConfigError` unless they are numbers of pairs that add up to `pairs`."""
    if not sections:
        raise ConfigError(
            f"MRoPE: sections must be a list of numbers of pairs, one for each axis, got {shown(sections)}"
        )
    require_positive_int("MRoPE", **{f"sections[{n}]": size for n, size in enumerate(sections)})
    if pairs is not None and sum(sections) != pairs:
        raise ConfigError(
            f"MRoPE: sections must add up to the {pairs} pairs of {2 * pairs} rotated dimensions, got "
            f"{' + '.join(map(str, sections))} = {sum(sections)}; change sections, or leave them out"
        )
    return tuple(sections)


def _chunked(sections: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(sections) for _ in range(size))


def _interleaved(sections: tuple[int, ...]) -> tuple[int, ...]:
    axes, count = [0] * sum(sections), len(sections)
    for axis, size in enumerate(sections[1:], start=1):
        if axis + count * (size - 1) >= len(axes):
            raise ConfigError(
                f"MRoPE: sections {', '.join(map(str, sections))} cannot be interleaved, because axis {axis} has pairs "
                f"{axis}, {axis + count}, ... and there are only {len(axes)} pairs; give the first axis more of them"
            )
        axes[axis : axis + count * size : count] = [axis] * size
    return tuple(axes)


class RoPEMixed(PositionEncoding):
    """Pair p of q and k in head h is rotated by x_0 f_0hp + x_1 f_1hp + ... radians, where x_a is the position on axis
    a.

    All f are learned, [axes, heads, d/2], in each layer. For each head, they begin as one random rotation of the axes
    of `AxialRoPE`: in part n of the pairs, pair p has f_a = base^(-2p/m) · u_na, m = d / axes, and the vectors u_0,
    u_1, ... of a head are orthonormal. So diagonal directions have frequencies of their own too. With two axes, u_0 =
    (cos α, sin α) and u_1 = (-sin α, cos α), with α uniform between 0 and 2π. With one axis, this is RoPE with
    frequencies learned for each head.

    The product of rotated q and k depends only on the differences on each axis. Positions are [batch, tokens, axes]. A
    token with a single position ID, such as a word, has this ID on every axis.

    Beyond the training length: slow pairs reach angles never seen in training, unless training has made them slower.

    Source: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer" (RoPE-Mixed).
    Code: naver-ai/rope-vit, deit/models_v2_rope.py (column first, `layout="interleaved"`).
    Differs: the code's function has the base 10 by default and its model class 100, but all mixed models of that file
    pass 10, as here. The code is for two axes, and has angles in float32; here they are float64. It does not rotate the
    class token, which is position 0 on every axis.

    >>> mixed = RoPEMixed(num_heads=1, head_dim=4)
    >>> _ = mixed.f.data.copy_(torch.tensor([[[1.0, 0.5]], [[0.0, 2.0]]]))
    >>> row_and_column = torch.tensor([[[3, 1]]])
    >>> mixed.angle(torch.tensor([[3]]), row_and_column).flatten().detach()      # 3 · 1 + 1 · 0 and 3 · 0.5 + 1 · 2
    tensor([3.0000, 3.5000], dtype=torch.float64)
    """

    shared_across_layers: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        axes: int = 2,
        base: float = 10.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__()
        require_rotary("RoPEMixed", head_dim, base)
        require_positive_int("RoPEMixed", axes=axes)
        if head_dim % (2 * axes):
            raise ConfigError(
                f"RoPEMixed: head_dim must be a multiple of {2 * axes}, because each of {axes} directions begins with "
                f"as many pairs, got {head_dim}; change head_dim or axes"
            )
        self.num_axes, self.base, self.layout = axes, base, layout
        magnitudes = pair_frequencies(head_dim // axes, base, torch.get_default_device()).float()
        directions = _random_directions(num_heads, axes).permute(2, 0, 1)  # [axis, head, direction]
        self.f = nn.Parameter((directions[..., None] * magnitudes).flatten(-2))

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # Whether a number of axes is valid depends on the model's head_dim.
        sizes, settings = super().nominal(settings)
        return {**sizes, "head_dim": 2 * max(1, settings.get("axes", 2))}, settings

    def angle(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Float[Tensor, "b h t pairs"]:
        """Return every head's and pair's angle in radians. `axes`: None if all axes of a token are its position ID."""
        axes = all_axes(positions, len(self.f)) if axes is None else axes
        x = axes.to(table_dtype(positions.device))[:, None]
        f = self.f.to(x.dtype)[:, :, None]
        angle = x[..., :1] * f[0]
        for axis in range(1, len(f)):
            angle = angle + x[..., axis : axis + 1] * f[axis]
        return angle

    def modifiers(self, span: Span) -> AttentionModifiers:
        angle_k = self.angle(span.k, span.axes_k)
        same = span.consecutive and span.q.shape == span.k.shape
        angle_q = angle_k if same else self.angle(span.q, span.axes_q)
        return AttentionModifiers(rotation=Rotation(angle_q, angle_k, layout=self.layout))

    def tracked(self) -> Mapping[str, Tensor]:
        return {f"f of axis {axis}": f for axis, f in enumerate(self.f)}


def _random_directions(heads: int, axes: int) -> Float[Tensor, "h n axes"]:
    """Return for each head a random rotation of `axes` dimensions: orthonormal rows with determinant 1."""
    if axes == 2:
        alpha = 2 * math.pi * torch.rand(heads)
        cos, sin = alpha.cos(), alpha.sin()
        return torch.stack([cos, sin, -sin, cos], -1).unflatten(-1, (2, 2))
    rows, scale = torch.linalg.qr(torch.randn(heads, axes, axes))
    rows = rows * scale.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # otherwise some rotations are more frequent
    return torch.cat([rows[:, :1] * rows.det()[:, None, None], rows[:, 1:]], 1)
