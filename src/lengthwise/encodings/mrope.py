"""MRoPE: the pairs of one RoPE are divided among the axes of the positions, such as time, row and column."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.config.class_settings import from_context
from lengthwise.encodings.arguments import NOMINAL_SIZES, require_positive_int
from lengthwise.encodings.rope import RoPE
from lengthwise.values import shown


class MRoPE(RoPE):
    """Pair p is rotated by x_a(p) · base^(-2p/r) radians, where x_a(p) is the position on the axis a(p) that the pair belongs to.

    Axis a has `sections`[a] of the r/2 pairs. The axes are time, row and column, positions are [batch, tokens, axes], and
    `lengthwise.positions.multimodal_positions` computes them for text with images and videos. A token with a single position ID,
    such as a word, has this ID on every axis. So text has the angles of RoPE, to the last bit.

    `order="chunked"` (Qwen2-VL) gives the fastest pairs to time, the next ones to the row, and the slowest to the column.
    `"interleaved"` (Qwen3-VL) gives pairs 1, 4, 7, ... to the row and 2, 5, 8, ... to the column, as many as their sections say,
    and all others to time. So every axis has fast and slow pairs.

    `sections=None` has the proportions of these models for every head dim: row and column each get 3/8 of the pairs if chunked
    (16, 24, 24 of 64) and 5/16 if interleaved (24, 20, 20), rounded down but at least 1; time gets the rest.

    Beyond the training length: slow pairs reach angles never seen in training. An image advances the position of the text behind it
    only by its number of rows or columns, so a text with images has lower positions than tokens.

    Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution".
    Code: huggingface/transformers, models/qwen2_vl, models/qwen3_vl (both with `layout="half"`) and models/glm4v (chunked, sections
    8, 12, 12, `rotary_fraction=0.5`, `layout="interleaved"`).
    Differs: transformers computes angles in float32, here they are float64. Sections of Qwen3-VL that do not fit the pairs are cut
    off silently there; here they raise `ConfigError`.

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
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        # The number of pairs depends on the model; it is taken from the sections.
        sections = settings.get("sections")
        if sections is None:
            return super().check(settings)
        size = {"head_dim": 2 * sum(_checked(sections))}
        with torch.device("meta"):
            cls(**from_context(cls, {**NOMINAL_SIZES, **size}), **{**settings, "rotary_fraction": 1.0})
        return {**settings, "sections": tuple(sections)}

    def pair_positions(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Int[Tensor, "b t _"]:
        return positions[..., None] if axes is None else axes[..., list(self.axis_of_pair)]


def _default_sections(order: str, pairs: int) -> tuple[int, ...]:
    if pairs < 3:
        raise ConfigError(
            f"MRoPE: the number of rotated pairs must be at least 3, one for each axis, got {pairs}; take a larger head_dim, or "
            "give sections"
        )
    space = max(1, pairs * 3 // 8 if order == "chunked" else pairs * 5 // 16)
    return pairs - 2 * space, space, space


def _checked(sections: object, pairs: int | None = None) -> tuple[int, ...]:
    """Return the sections. Raise `ConfigError` unless they are numbers of pairs that add up to `pairs`."""
    if not isinstance(sections, (tuple, list)) or not sections:
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
                f"MRoPE: sections {', '.join(map(str, sections))} cannot be interleaved, because axis {axis} has pairs {axis}, "
                f"{axis + count}, ... and there are only {len(axes)} pairs; give the first axis more of them"
            )
        axes[axis : axis + count * size : count] = [axis] * size
    return tuple(axes)
