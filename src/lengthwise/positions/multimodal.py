"""Positions of text with images and videos: time, row and column, as in Qwen2-VL, Qwen2.5-VL, Qwen3-VL and GLM-4V."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.span import token_integers
from lengthwise.values import ConfigError, require_integer

TEXT, IMAGE, VIDEO = 0, 1, 2
_NAMES = {IMAGE: "image", VIDEO: "video"}
VisionModel = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v"]


def multimodal_positions(
    kinds: Int[Tensor, "b t"],
    images: Int[Tensor, "n 3"] | None = None,
    videos: Int[Tensor, "m 3"] | None = None,
    *,
    model: VisionModel = "qwen2_vl",
    documents: Int[Tensor, "#b t"] | None = None,
    merge: int = 2,
    seconds: Sequence[float] | None = None,
    tokens_per_second: float = 2.0,
    text_follows: Literal["highest", "space"] = "highest",
) -> Int[Tensor, "b t 3"]:
    """Return positions on the axes time, row and column, for `MRoPE`.

    A token of text has the same number on all axes, which is the highest of its document so far + 1. A block of image
    or video tokens begins at such a number s, and its token in frame f, row r and column c has the position (s + τ(f),
    s + r, s + c). τ(f) is f in Qwen2-VL, and floor(f · `tokens_per_second` · seconds between frames) in Qwen2.5-VL. In
    Qwen3-VL and GLM-4V, texts with timestamps lie between the frames of a video, so each frame is a block of its own,
    like an image.

    `kinds`: 0 for text, 1 for image and 2 for video tokens (`mm_token_type_ids` in transformers). `images`, `videos`:
    the frames, rows and columns of patches of each (`image_grid_thw`, `video_grid_thw`), in the order of the rows of
    the batch, their documents, and tokens. `merge`: each token stands for `merge` x `merge` patches. `seconds`: the
    seconds from one frame of each video to the next (`second_per_grid_ts`), default 1. `documents`: the document IDs;
    each document starts at 0, and padding is a document of its own. The positions do not depend on other documents.

    For a part of a sequence, such as a chunk of a long prompt or a later turn, compute the positions of the whole
    sequence and take the part. `following_positions` continues them while decoding, as `Decoder` does by itself.

    Raise `ConfigError`, among others if the images and videos do not have as many tokens as `kinds` says.

    Source: Wang et al. 2024, "Qwen2-VL"; Bai et al. 2025, "Qwen2.5-VL Technical Report".
    Code: huggingface/transformers, `get_rope_index` of models/qwen2_vl, qwen2_5_vl, qwen3_vl and glm4v.
    Differs: transformers 5.23 lets the text behind a video follow its rows and columns (`text_follows="space"`). The
    paper lets it follow the highest number, also that of time, which is larger in long videos. Its decoding continues
    from the highest number. It has no documents, so a packed document continues the positions of the one before. A
    later chunk of a prompt gets the positions of text, also where it has images. Two images without a token of text
    between them raise an error there. It multiplies the seconds in float32 and rounds down, so a frame at a whole
    number may get the number below.

    >>> kinds = torch.tensor([[0, 1, 1, 1, 1, 0]])      # an image of 4 x 4 patches between two tokens of text
    >>> multimodal_positions(kinds, torch.tensor([[1, 4, 4]]))[0].T
    tensor([[0, 1, 1, 1, 1, 3],
            [0, 1, 1, 2, 2, 3],
            [0, 1, 2, 1, 2, 3]])
    """
    if model not in get_args(VisionModel):
        raise ConfigError(f"model must be one of {', '.join(get_args(VisionModel))}, got {model!r}")
    if text_follows not in ("highest", "space"):
        raise ConfigError(f"text_follows must be 'highest' or 'space', got {text_follows!r}")
    require_integer("multimodal_positions", 1, merge=merge)
    if not isinstance(kinds, Tensor) or kinds.ndim != 2:
        raise ConfigError("kinds must be a tensor of whole numbers [batch, tokens]: 0 text, 1 image, 2 video")
    ids = token_integers("documents", documents, *kinds.shape)
    ids = torch.zeros_like(kinds) if ids is None else ids.to(kinds.device).expand(kinds.shape)
    steps = _steps(videos, model, seconds, tokens_per_second)
    blocks = {
        IMAGE: _blocks("images", images, [1.0] * (0 if images is None else len(images)), merge, False),
        VIDEO: _blocks("videos", videos, steps, merge, model in ("qwen3_vl", "glm4v")),
    }
    positions = torch.zeros(*kinds.shape, 3, dtype=torch.long)
    for row, (row_kinds, row_ids) in enumerate(zip(kinds.tolist(), ids.tolist(), strict=True)):
        for document in dict.fromkeys(row_ids):
            members = [n for n, other in enumerate(row_ids) if other == document]
            document_positions = _document([row_kinds[n] for n in members], blocks, row, text_follows)
            positions[row, members] = document_positions
    for kind, rest in blocks.items():
        if (left := sum(1 for _ in rest)) > 0:
            raise ConfigError(
                f"{left} of the blocks of {_NAMES[kind]} tokens are not in kinds; pass only those of this batch"
            )
    return positions.to(kinds.device)


def following_positions(
    positions: Int[Tensor, "b t axes"], count: int, documents: Int[Tensor, "#b t"] | None = None
) -> Int[Tensor, "b n axes"]:
    """Return the positions of `count` tokens of text that follow the last token of each row, in its document.

    >>> following_positions(torch.tensor([[[0, 0, 0], [1, 1, 2]]]), 2)[0].tolist()
    [[3, 3, 3], [4, 4, 4]]
    """
    highest = positions.amax(-1)
    if documents is not None:
        highest = highest.masked_fill(documents != documents[:, -1:], -1)
    new = highest.amax(1, keepdim=True) + 1 + torch.arange(count, device=positions.device)
    return new[..., None].expand(-1, -1, positions.shape[-1])


def _steps(videos: Tensor | None, model: str, seconds: Sequence[float] | None, tokens_per_second: float) -> list[float]:
    """Return how much time advances from one frame of each video to the next."""
    count = 0 if videos is None else len(videos)
    if model != "qwen2_5_vl":
        if seconds is not None:
            raise ConfigError(f"seconds are for model='qwen2_5_vl' only, whose frames have times, got model={model!r}")
        return [1.0] * count
    values = [1.0] * count if seconds is None else [float(s) for s in seconds]
    if len(values) != count:
        raise ConfigError(f"seconds must have a number for each of the {count} videos, got {len(values)}")
    steps = [s * tokens_per_second for s in values]
    if not all(0 <= step <= 2**31 for step in steps):
        raise ConfigError(
            "seconds and tokens_per_second must be numbers of at least 0 whose products are at most 2^31, got "
            f"{values} and {tokens_per_second}"
        )
    return steps


def _blocks(
    name: str, grids: Tensor | None, steps: list[float], merge: int, frames_apart: bool
) -> Iterator[Int[Tensor, "n 3"]]:
    """Yield the positions of the tokens of each block, relative to its begin."""
    if grids is None:
        return
    if not isinstance(grids, Tensor) or grids.ndim != 2 or grids.shape[1] != 3 or grids.is_floating_point():
        raise ConfigError(f"{name} must be a tensor of whole numbers [{name}, 3]: frames, rows and columns of patches")
    for (frames, rows, columns), step in zip(grids.tolist(), steps, strict=True):
        if min(frames, rows, columns) < 1 or rows % merge or columns % merge:
            raise ConfigError(
                f"{name} must have at least one frame, and rows and columns that are multiples of merge = {merge}, got "
                f"{[frames, rows, columns]}"
            )
        # Rounded to 1e-6: a third of a second three times is a second.
        time = torch.tensor([int(frame * step + 1e-6) for frame in range(1 if frames_apart else frames)])
        block = torch.cartesian_prod(time, torch.arange(rows // merge), torch.arange(columns // merge))
        yield from [block] * (frames if frames_apart else 1)


def _document(kinds: list[int], blocks: dict[int, Iterator[Tensor]], row: int, text_follows: str) -> Int[Tensor, "t 3"]:
    """Return the positions of the tokens of one document."""
    positions, start = [torch.zeros(0, 3, dtype=torch.long)], 0
    for kind, run in groupby(kinds):
        size = len(list(run))
        if kind == TEXT:
            positions.append((start + torch.arange(size))[:, None].expand(-1, 3))
            start += size
            continue
        if kind not in blocks:
            raise ConfigError(f"kinds must be 0 (text), 1 (image) or 2 (video), got {kind}")
        while size > 0:
            block = next(blocks[kind], None)
            if block is None or len(block) > size:
                there = "there is no further one" if block is None else f"the next one has {len(block)}"
                raise ConfigError(
                    f"row {row} of kinds has {size} {_NAMES[kind]} tokens where {there}; they must be whole "
                    f"{_NAMES[kind]}s, or frames of a video"
                )
            positions.append(block + start)
            start += int((block if text_follows == "highest" else block[:, 1:]).max()) + 1
            size -= len(block)
    return torch.cat(positions)
