"""The positions of text with images and videos are those of `get_rope_index` in transformers, where it is right."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

import transformers
from packaging.version import parse
from transformers.models.glm4v.modeling_glm4v import Glm4vModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from lengthwise.positions import following_positions, multimodal_positions

MODELS: dict[str, Any] = {
    "qwen2_vl": Qwen2VLModel,
    "qwen2_5_vl": Qwen2_5_VLModel,
    "qwen3_vl": Qwen3VLModel,
    "glm4v": Glm4vModel,
}


def theirs(name: str, kinds: Tensor, images: Tensor, videos: Tensor, mask: Tensor | None = None, **more: Any) -> Any:
    """Call `get_rope_index` without a model, of which it reads two settings and its own method."""
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    make = MODELS[name]
    model = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
    model.get_vision_position_ids = make.get_vision_position_ids.__get__(model)
    positions, delta = make.get_rope_index(
        model, torch.zeros_like(kinds), kinds, images, videos, attention_mask=mask, **more
    )
    return positions.permute(1, 2, 0), delta


def rows(frames_apart: bool, longest: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return random rows with left padding: kinds, mask, images and videos."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high + 1, (), generator=generator))  # noqa: E731
    images, videos, sequences = [], [], []
    for _ in range(4):
        kinds: list[int] = []
        for _ in range(draw(1, 4)):
            kinds += [0] * draw(1, 5)
            h, w = 2 * draw(1, 4), 2 * draw(1, 4)
            if draw(0, 1):
                images.append((1, h, w))
                kinds += [1] * (h * w // 4)
                continue
            frames = draw(1, min(longest, max(h, w) // 2))
            videos.append((frames, h, w))
            block = [2] * (h * w // 4)
            kinds += [*block, 0, 0] * frames if frames_apart else block * frames
        sequences.append([*kinds, *[0] * draw(0, 3)])
    width = max(map(len, sequences))
    kinds = torch.tensor([[0] * (width - len(s)) + s for s in sequences])  # type: ignore[assignment]
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences])
    return kinds, mask, *(torch.tensor(grids).view(-1, 3) for grids in (images, videos))  # type: ignore[return-value]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_prompts_with_left_padding(name: str, seed: int) -> None:
    if name == "qwen2_5_vl" and parse(transformers.__version__) < parse("5.23"):
        pytest.skip("older versions take whole seconds only")
    apart = name in ("qwen3_vl", "glm4v")
    kinds, mask, images, videos = rows(apart, 9, seed)
    options: dict[str, Any] = {}
    if name == "qwen2_5_vl":
        options["seconds"] = [0.25 * (1 + n % 2) for n in range(len(videos))]  # time stays below the rows and columns
    more = {"second_per_grid_ts": torch.tensor(options["seconds"])} if options else {}
    expected, delta = theirs(name, kinds, images, videos.clone(), mask, **more)
    found = multimodal_positions(kinds, images, videos, model=name, documents=mask, **options)  # type: ignore[arg-type]
    assert torch.equal(found[mask.bool()], expected[mask.bool()])
    following = following_positions(found, 1, mask)[:, 0, 0]
    assert torch.equal(following, mask.sum(1) + delta[:, 0])


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_the_text_behind_a_long_video(name: str) -> None:
    """transformers continues from the rows and columns, so a token of text has the time of a frame before it."""
    kinds, videos, none = torch.tensor([[0, *[2] * 9, 0, 0]]), torch.tensor([[9, 2, 2]]), torch.zeros(0, 3).long()
    expected, delta = theirs(name, kinds, none, videos)
    options: Any = {"model": name, "tokens_per_second": 2.0, **({"seconds": [1.0]} if name == "qwen2_5_vl" else {})}
    space = multimodal_positions(kinds, videos=videos, text_follows="space", **options)
    assert torch.equal(space, expected)
    found = multimodal_positions(kinds, videos=videos, **options)
    assert expected[0, -1, 0] < expected[0, 9, 0] < found[0, -2, 0]
    # Its decoding does follow the highest number of the prompt.
    assert int(kinds.shape[1] + delta) == int(expected.max()) + 1


def test_packed_documents_go_on_in_transformers() -> None:
    document, images, none = [0, 1, 1, 0], torch.tensor([[1, 2, 4]] * 2), torch.zeros(0, 3).long()
    kinds, documents = torch.tensor([document * 2]), torch.tensor([[0] * 4 + [1] * 4])
    expected, _ = theirs("qwen2_vl", kinds, images, none)
    found = multimodal_positions(kinds, images, documents=documents)
    assert torch.equal(found[:, :4], expected[:, :4]) and torch.equal(found[:, 4:], found[:, :4])
    assert int(expected[0, 4, 0]) == 4


def test_neighbouring_images_fail_in_transformers() -> None:
    kinds, images, none = torch.tensor([[1, 1, 1]]), torch.tensor([[1, 2, 4], [1, 2, 2]]), torch.zeros(0, 3).long()
    with pytest.raises(RuntimeError):
        theirs("qwen2_vl", kinds, images, none)
    assert multimodal_positions(kinds, images).shape == (1, 3, 3)


def test_seconds_in_float32_round_down_in_transformers() -> None:
    differ = 0
    for fps in range(1, 61):
        kinds, videos = torch.full((1, 200), 2), torch.tensor([[200, 2, 2]])
        seconds = torch.tensor([2 / fps])
        expected, _ = theirs("qwen2_5_vl", kinds, torch.zeros(0, 3).long(), videos, second_per_grid_ts=seconds)
        found = multimodal_positions(kinds, videos=videos, model="qwen2_5_vl", seconds=[2 / fps])
        assert found[0, :, 0].tolist() == [4 * n // fps for n in range(200)]
        differ += int((expected != found).any())
    assert differ > 0
