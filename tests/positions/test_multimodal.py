"""Positions of text with images and videos: examples by hand, documents, and errors."""

import inspect

import pytest
import torch

from lengthwise.attention import KVCache
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import MRoPE
from lengthwise.models import Decoder
from lengthwise.positions import following_positions, multimodal_positions

T, I, V = 0, 1, 2  # noqa: E741


def grid(*shapes: tuple[int, int, int]) -> torch.Tensor:
    return torch.tensor(shapes)


def test_a_video_of_qwen2_5_vl_has_times() -> None:
    kinds = torch.tensor([[T, T, *[V] * 6, T]])
    found = multimodal_positions(
        kinds, videos=grid((3, 2, 4)), model="qwen2_5_vl", seconds=[1.5], tokens_per_second=2.0
    )
    assert found[0].T.tolist() == [
        [0, 1, 2, 2, 5, 5, 8, 8, 9],
        [0, 1, 2, 2, 2, 2, 2, 2, 9],
        [0, 1, 2, 3, 2, 3, 2, 3, 9],
    ]
    space = multimodal_positions(
        kinds, videos=grid((3, 2, 4)), model="qwen2_5_vl", seconds=[1.5], tokens_per_second=2.0, text_follows="space"
    )
    assert torch.equal(space[:, :-1], found[:, :-1]) and space[0, -1].tolist() == [4, 4, 4]


@pytest.mark.parametrize("model", ["qwen3_vl", "glm4v"])
def test_frames_are_images_of_their_own(model: str) -> None:
    kinds = torch.tensor([[T, V, V, T, V, V, T]])
    found = multimodal_positions(kinds, videos=grid((2, 2, 4)), model=model)  # type: ignore[arg-type]
    as_images = multimodal_positions(kinds.clamp(max=1), grid((1, 2, 4), (1, 2, 4)))
    assert torch.equal(found, as_images)
    assert found[0].T.tolist() == [[0, 1, 1, 3, 4, 4, 6], [0, 1, 1, 3, 4, 4, 6], [0, 1, 2, 3, 4, 5, 6]]


def test_a_third_of_a_second_three_times_is_a_second() -> None:
    frames = 61
    kinds = torch.full((1, frames), V)
    for fps in (3, 7, 10, 24, 30):
        video = grid((frames, 2, 2))
        found = multimodal_positions(kinds, videos=video, model="qwen2_5_vl", seconds=[2 / fps], tokens_per_second=2.0)
        assert found[0, :, 0].tolist() == [4 * n // fps for n in range(frames)]


def test_documents_are_as_alone() -> None:
    first, second = [T, I, I, T], [I, I, I, I, T, V, V, T]
    images, videos = grid((1, 2, 4), (1, 4, 4)), grid((2, 2, 2))
    padding = [T, T]
    documents = torch.tensor([[-1] * 2 + [0] * len(first) + [5] * len(second)])
    packed = multimodal_positions(torch.tensor([padding + first + second]), images, videos, documents=documents)
    assert torch.equal(packed[:, 2:6], multimodal_positions(torch.tensor([first]), images[:1]))
    assert torch.equal(packed[:, 6:], multimodal_positions(torch.tensor([second]), images[1:], videos))
    assert packed[0, :2, 0].tolist() == [0, 1]


def test_neighbouring_images() -> None:
    found = multimodal_positions(torch.tensor([[I, I, I]]), grid((1, 2, 4), (1, 2, 2)))
    assert found[0].tolist() == [[0, 0, 0], [0, 0, 1], [2, 2, 2]]


@torch.no_grad()
def test_a_prompt_in_chunks_and_decoding_equal_one_forward_pass() -> None:
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, num_layers=2, num_heads=2)
    model = Decoder(config, choose(MRoPE), vocab_size=9, output_size=9, train_length=16).double().eval()
    tokens = torch.randint(9, (2, 12))
    kinds = torch.tensor([[T, I, I, I, I, T, V, V, T], [T, T, T, T, I, I, I, I, T]])
    documents = torch.tensor([[0] * 9, [-1, -1] + [0] * 7])
    all_documents = torch.cat([documents, torch.zeros(2, 3, dtype=torch.long)], 1)
    prompt = multimodal_positions(kinds, grid((1, 4, 4), (1, 4, 4)), grid((1, 2, 4)), documents=documents)
    positions = torch.cat([prompt, following_positions(prompt, 3, documents)], 1)
    full = model(tokens, positions=positions, documents=all_documents)
    for size in (3, 4, 9):  # also in the middle of an image
        cache = KVCache(2)
        parts = [
            model(tokens[:, n:m], positions=prompt[:, n:m], documents=documents[:, n:m], cache=cache)
            for n in range(0, 9, size)
            if (m := min(n + size, 9))
        ]
        parts += [model(tokens[:, n : n + 1], documents=all_documents[:, n : n + 1], cache=cache) for n in (9, 10, 11)]
        torch.testing.assert_close(torch.cat(parts, 1)[:, 4:], full[:, 4:], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("kinds", "options", "message"),
    [
        ([T, I, I], {}, "row 0 of kinds has 2 image tokens where there is no further one"),
        ([T, I, I], {"images": grid((1, 4, 4))}, "row 0 of kinds has 2 image tokens where the next one has 4"),
        ([T], {"images": grid((1, 4, 4))}, "1 of the blocks of image tokens are not in kinds"),
        ([3], {}, r"kinds must be 0 \(text\), 1 \(image\) or 2 \(video\), got 3"),
        ([I], {"images": grid((1, 3, 2))}, r"multiples of merge = 2, got \[1, 3, 2\]"),
        ([I], {"images": torch.tensor([1, 2, 2])}, "images must be a tensor of whole numbers"),
        ([T], {"model": "qwen9"}, "model must be one of qwen2_vl, .*, got 'qwen9'"),
        ([T], {"seconds": [1.0]}, "seconds are for model='qwen2_5_vl' only"),
        ([T], {"seconds": [1.0], "model": "qwen2_5_vl"}, "each of the 0 videos, got 1"),
        ([T], {"merge": 0}, "merge must be"),
        ([T], {"documents": torch.zeros(1, 2, dtype=torch.long)}, "documents must have the shape"),
        ([T], {"text_follows": "time"}, "text_follows must be"),
    ],
)
def test_what_cannot_be(kinds: list[int], options: dict, message: str) -> None:
    unchecked = inspect.unwrap(multimodal_positions)  # without the type checks of the test suite
    with pytest.raises(ConfigError, match=message) as error:
        unchecked(torch.tensor([kinds]), **options)
    assert "\n" not in str(error.value)
