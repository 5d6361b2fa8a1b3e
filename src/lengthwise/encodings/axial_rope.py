"""AxialRoPE: each axis of the positions rotates its own part of queries and keys."""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.config.class_settings import from_context
from lengthwise.encodings.arguments import NOMINAL_SIZES, require_positive_int
from lengthwise.encodings.rope import RoPE, pair_frequencies


class AxialRoPE(RoPE):
    """Pair p of axis a is rotated by x_a · base^(-2p/m) radians, where x_a is the position on axis a, and m = r / axes.

    The r rotated dimensions are divided into one part for each axis, in the order of the axes, and each part is a RoPE of its own.
    For an image, the axes are row and column. The product <R_i q, R_j k> depends only on the differences on each axis. Positions
    are [batch, tokens, axes]. A token with a single position ID, such as a word, has this ID on every axis.

    Beyond the training length: slow pairs of an axis reach angles never seen in training. More rows add only angles of rows.

    Source: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", which has the base 100, as DINOv3 does.
    Code: naver-ai/rope-vit (column first, `layout="interleaved"`); huggingface/transformers, models/qwen2_vl, the vision model (row
    first, base 10,000, `layout="half"`).
    Differs: DINOv3 measures positions from -1 to 1 over the image and multiplies them by 2π. Pixtral has the frequencies of one
    RoPE of all r dimensions and gives them to row and column in turn.

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
                f"AxialRoPE: the {self.rotary_dims} rotated dimensions must be a multiple of {2 * axes}, because each of the "
                f"{axes} axes rotates as many pairs; change head_dim, rotary_fraction or axes"
            )
        self.num_axes = axes

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        # Whether a fraction and a number of axes are valid depends on the model's head_dim.
        axes = settings.get("axes", 2)
        require_positive_int("AxialRoPE", axes=axes)
        fraction = settings.get("rotary_fraction", 1.0)
        whole = {**settings, "rotary_fraction": 1.0} if 0 < fraction < 1 else settings
        with torch.device("meta"):
            cls(**from_context(cls, {**NOMINAL_SIZES, "head_dim": 2 * axes}), **whole)
        return settings

    def pair_positions(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Int[Tensor, "b t _"]:
        if axes is None:
            return positions[..., None]
        return axes.repeat_interleave(self.rotary_dims // (2 * axes.shape[-1]), -1)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        assert self.num_axes is not None
        return pair_frequencies(self.rotary_dims // self.num_axes, self.base, length.device).repeat(self.num_axes)
