"""Positions with several axes: what they equal on text, what reads them, and what carries them."""

import pytest
import torch
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import KVCache, Mask, TokenInfo, plan
from lengthwise.config import ConfigError, ModelConfig, alternate, choose
from lengthwise.encodings import (
    ENCODINGS,
    ALiBi,
    AxialRoPE,
    Combined,
    Learned,
    LogN,
    MRoPE,
    NoPE,
    PositionEncoding,
    RoPE,
    RoPEMixed,
    Sinks,
)
from lengthwise.encodings.contract import modifiers_of
from lengthwise.models import Decoder
from lengthwise.span import Span

SIZES = {"num_heads": 2, "head_dim": 16, "d_model": 32, "train_length": 16}
GRID = torch.tensor([[[0, 0, 0], [1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2], [3, 3, 3], [4, 4, 4]]])
TOKENS = GRID.shape[1]
ORDERS = ["chunked", "interleaved"]


def qkv(rows: int = 1) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(3, rows, 2, TOKENS, 16, dtype=torch.float64).unbind(0))


def decoder(*encodings, backend: str = "auto") -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, num_layers=2, num_heads=2)
    sizes = {"vocab_size": 9, "output_size": 9, "train_length": 16}
    return Decoder(config, alternate(*encodings), **sizes, backend=backend).double().eval()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_equal_axes_are_rope_to_the_last_bit(order: str, backend: str) -> None:
    mrope, rope = MRoPE(head_dim=16, order=order), RoPE(head_dim=16, base=1e6)
    ids = torch.tensor([[0, 3, 4, 9, 70, 71, 1000]])
    expected = attend(*qkv(), rope, tokens=TokenInfo(ids), backend=backend)
    for positions in (ids, ids[..., None].expand(-1, -1, 3)):
        assert torch.equal(attend(*qkv(), mrope, tokens=TokenInfo(positions), backend=backend), expected)


def test_a_part_of_axial_rope_is_rope_of_that_part() -> None:
    rotation = AxialRoPE(head_dim=16).modifiers(span(GRID[..., 1:])).rotation
    assert rotation is not None
    for axis in (0, 1):
        positions = GRID[..., 1 + axis]
        of_axis = RoPE(head_dim=8, base=100.0).modifiers(Span(positions, positions, 5)).rotation
        assert torch.equal(rotation.angle_k[..., 4 * axis : 4 * axis + 4], of_axis.angle_k)


def test_a_single_axis_is_none() -> None:
    ids = torch.arange(TOKENS)[None]
    expected = attend(*qkv(), ALiBi(num_heads=2), tokens=TokenInfo(ids))
    assert torch.equal(attend(*qkv(), ALiBi(num_heads=2), tokens=TokenInfo(ids[..., None])), expected)


@pytest.mark.parametrize("make", [make for make in ENCODINGS if make.num_axes is None], ids=lambda m: m.__name__)
def test_encodings_without_axes_read_no_positions(make: type[PositionEncoding]) -> None:
    model = decoder(choose(make))
    tokens = torch.randint(9, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(tokens, positions=GRID), model(tokens))


@pytest.mark.parametrize("make", [make for make in ENCODINGS if make.num_axes == 1], ids=lambda m: m.__name__)
def test_other_encodings_read_axes_or_refuse_them(make: type[PositionEncoding]) -> None:
    model = decoder(choose(make))
    axes = max(encoding.num_axes for encoding in model.encoding_modules())
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    if axes == 1:
        with pytest.raises(
            ConfigError, match=f"{make.__name__}.* has one axis of positions, got positions with 3 axes"
        ):
            model(tokens, positions=GRID)
    else:
        model(tokens, positions=GRID[..., :axes])


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (
            RoPE(head_dim=16),
            "RoPE has one axis of positions, got positions with 3 axes; pass positions .batch, tokens.",
        ),
        (
            AxialRoPE(head_dim=16),
            r"AxialRoPE has 2 axes .*, got positions with 3 axes; pass positions .batch, tokens, 2.",
        ),
        (MRoPE(head_dim=16, sections=(5, 3)), "MRoPE has 2 axes of positions, got positions with 3 axes"),
        (
            Combined(encoding=MRoPE(head_dim=16), temperature=LogN(train_length=8)),
            "LogN has one axis of positions, got positions with 3 axes",
        ),
    ],
    ids=["RoPE", "AxialRoPE", "MRoPE", "temperature"],
)
def test_axes_that_do_not_match(encoding: PositionEncoding, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attend(*qkv(), encoding, tokens=TokenInfo(GRID))


def test_axes_of_a_combination() -> None:
    q, k, v = qkv()
    encoding = Combined(encoding=MRoPE(head_dim=16), sinks=Sinks(num_heads=2))
    assert not torch.equal(
        attend(q, k, v, encoding, tokens=TokenInfo(GRID)), attend(q, k, v, encoding, tokens=TokenInfo(GRID[..., 0]))
    )


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (
            MRoPE,
            {"sections": (16, 24, 23)},
            r"must add up to the 64 pairs of 128 rotated dim.*, got 16 \+ 24 \+ 23 = 63;",
        ),
        (MRoPE, {"sections": ()}, "MRoPE: sections must be a list of numbers of pairs, one for each axis, got "),
        (MRoPE, {"sections": (64, 0)}, "at least 1"),
        (MRoPE, {"head_dim": 4}, "must be at least 3, one for each axis, got 2"),
        (MRoPE, {"sections": (2, 2, 60), "order": "interleaved"}, "2, 2, 60 cannot be interleaved, because axis 2"),
        (MRoPE, {"order": "blocked"}, "order must be one of 'chunked', 'interleaved', got 'blocked'"),
        (AxialRoPE, {"axes": 3}, "the 128 rotated dimensions must be a multiple of 6"),
        (AxialRoPE, {"axes": 0}, "axes must be a whole number of at least 1"),
        (RoPEMixed, {"num_heads": 2, "axes": 3}, "RoPEMixed: head_dim must be a multiple of 6, .*got 128;"),
        (RoPEMixed, {"num_heads": 2, "axes": 0}, "axes must be a whole number of at least 1"),
    ],
)
def test_settings_that_cannot_be(make: type, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make(**{"head_dim": 128, **settings})
    assert "\n" not in str(error.value)


def test_settings_that_fit_other_heads_than_the_nominal_ones() -> None:
    assert choose(MRoPE, sections=(1, 1, 2)).label
    assert choose(AxialRoPE, axes=3).label
    assert choose(RoPEMixed, axes=3).label
    with pytest.raises(ConfigError, match="cannot be interleaved"):
        choose(MRoPE, sections=(1, 1, 9), order="interleaved")


@pytest.mark.parametrize("shape", [(1, TOKENS - 1, 3), (2, TOKENS, 3), (1, TOKENS, 0)])
def test_shapes_that_positions_cannot_have(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="positions must have the shape"):
        attend(*qkv(), MRoPE(head_dim=16), tokens=TokenInfo(torch.zeros(shape, dtype=torch.long)))


def span(axes: Tensor) -> Span:
    highest = axes.amax(-1)
    return Span(highest, highest, int(highest.max()) + 1, axes_q=axes, axes_k=axes)


def test_blocks_of_queries_keep_their_axes() -> None:
    whole, mask, encoding = span(GRID), Mask(TOKENS, TOKENS), MRoPE(head_dim=16)
    modifiers, q, k, v = modifiers_of(encoding, whole), *qkv()
    rows = []
    for block in mask.query_blocks(3):
        (_, queries, keys), part = block, whole.select(block)
        assert torch.equal(part.axes_q, GRID[:, queries]) and torch.equal(part.axes_k, GRID[:, keys])
        part_mask = Mask(queries.stop - queries.start, keys.stop - keys.start)
        attend_part = plan(modifiers_of(encoding, part), part, part_mask, q, backend="reference")
        rows.append(attend_part(q[:, :, queries], k[:, :, keys], v[:, :, keys]))
    expected = plan(modifiers, whole, mask, q, backend="reference")(q, k, v)
    torch.testing.assert_close(torch.cat(rows, 2), expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_decoding_keeps_the_axes_of_cached_tokens(window: int | None) -> None:
    model = decoder(choose(MRoPE, window=window), choose(NoPE))
    tokens = torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([GRID, GRID + torch.tensor([0, 2, 1])])
    follow = positions.amax((1, 2))[:, None, None] + 1 + torch.arange(5)[None, :, None].expand(-1, -1, 3)
    full = model(tokens, positions=torch.cat([positions, follow], 1))
    cache = KVCache(2)
    parts = [model(tokens[:, n : n + 1], positions=positions[:, n : n + 1], cache=cache) for n in range(4)]
    before = cache.state()
    model(tokens[:, 4:7], positions=positions[:, 4:], cache=cache)
    cache.restore(before)
    parts.append(model(tokens[:, 4:7], positions=positions[:, 4:], cache=cache))
    parts += [
        model(tokens[:, n : n + 1], cache=cache) for n in range(7, 12)
    ]  # tokens of text follow the highest position
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-12, rtol=0)
    cache.select_rows(torch.tensor([1]))
    assert torch.equal(cache.axes, torch.cat([positions, follow], 1)[1:])


@torch.no_grad()
def test_text_before_an_image_gets_axes_in_the_cache() -> None:
    model, cache = decoder(choose(MRoPE)), KVCache(2)
    tokens = torch.randint(9, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    full = model(tokens, positions=GRID)
    parts = [model(tokens[:, :2], cache=cache), model(tokens[:, 2:], positions=GRID[:, 2:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-12, rtol=0)
    with pytest.raises(ConfigError, match="positions must have the 3 axes of the cached tokens, got 2"):
        model(tokens[:, :1], positions=torch.full((1, 1, 2), 9), cache=cache)


def test_absolute_encodings_refuse_axes() -> None:
    with pytest.raises(ConfigError, match="Learned has one axis of positions"):
        decoder(choose(Learned))(torch.zeros(1, TOKENS, dtype=torch.long), positions=GRID)


def mixed(axes: int = 2) -> RoPEMixed:
    torch.manual_seed(1)
    return RoPEMixed(num_heads=2, head_dim=16, axes=axes).double()


@torch.no_grad()
def test_mixed_rope_without_a_second_axis_is_rope_of_the_first() -> None:
    encoding, rope = mixed(), RoPE(head_dim=16)
    encoding.f.copy_(torch.stack([rope.frequencies(torch.tensor(1)).expand(2, -1), torch.zeros(2, 8)]))
    rows = GRID[..., 1]
    angle = rope.modifiers(Span(rows, rows, 5)).rotation.angle_k
    assert torch.equal(encoding.modifiers(span(GRID[..., 1:])).rotation.angle_k, angle.expand(-1, 2, -1, -1))


@torch.no_grad()
def test_mixed_rope_depends_on_the_differences_of_both_axes() -> None:
    encoding, axes = mixed(), GRID[..., 1:]
    logits = [encoding.modifiers(span(at)).rotation for at in (axes, axes + torch.tensor([3, 40]))]
    q, k, _ = qkv()
    here, moved = (rotation.rotate_query(q) @ rotation.rotate_key(k).mT for rotation in logits)
    torch.testing.assert_close(moved, here, atol=1e-12, rtol=0)
    text = TokenInfo(GRID[..., 0])
    assert torch.equal(
        attend(*qkv(), encoding, tokens=text),
        attend(*qkv(), encoding, tokens=TokenInfo(GRID[..., :1].expand(-1, -1, 2))),
    )


@pytest.mark.parametrize("axes", [1, 2, 4])
def test_mixed_rope_begins_as_a_rotation_of_axial_rope(axes: int) -> None:
    f = mixed(axes).f.detach().unflatten(-1, (axes, -1)).permute(1, 3, 2, 0)  # [head, pair, direction, axis]
    magnitude = 10.0 ** -(2 * torch.arange(8 // axes) * axes / 16)
    directions = f / magnitude[:, None, None]
    torch.testing.assert_close(directions @ directions.mT, torch.eye(axes).double().expand_as(f), atol=1e-6, rtol=0)
    torch.testing.assert_close(directions.det(), torch.ones_like(directions.det()), atol=1e-6, rtol=0)
