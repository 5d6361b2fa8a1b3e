"""LieRE: its matrices are rotations at any position, and what their products depend on."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import KVCache, Mask, TokenInfo, plan
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import LieRE, RoPEMixed
from lengthwise.forms import AttentionModifiers, MatrixRotation
from lengthwise.models import Decoder
from lengthwise.span import Span

GRID = torch.tensor([[[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [7, 3]]])
EXACT = {"atol": 1e-12, "rtol": 0.0}


def liere(**settings: Any) -> LieRE:
    torch.manual_seed(1)
    return LieRE(**{"num_heads": 2, "head_dim": 16, **settings}).double()


def span(positions: Tensor) -> Span:
    """Return the span of positions with several axes, or of position IDs."""
    axes = positions if positions.ndim == 3 else None
    highest = positions if axes is None else axes.amax(-1)
    return Span(highest, highest, int(highest.max()) + 1, axes_q=axes, axes_k=axes)


def products(encoding: LieRE, positions: Tensor) -> Tensor:
    """Return the products of rotated queries and keys. All tokens have the same q and k before rotation."""
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 2, 1, 16, dtype=torch.float64, generator=generator).expand(
        -1, -1, -1, positions.shape[1], -1
    )
    rotation = encoding.modifiers(span(positions)).rotation
    assert rotation is not None
    return rotation.rotate_query(q) @ rotation.rotate_key(k).mT


@pytest.mark.parametrize("block", [2, 4, 16])
@torch.no_grad()
def test_matrices_of_far_positions_are_rotations(block: int) -> None:
    encoding = LieRE(num_heads=2, head_dim=16, block=block, axes=2)
    far = torch.tensor([[[0, 0], [1_000_000, 3], [999_999, 1_000_000]]])
    for matrices in (encoding.matrices(far[..., 0], far), encoding.matrices(far[..., 0], None)):
        assert matrices.dtype == torch.float64
        matrices = matrices.float()
        torch.testing.assert_close(matrices @ matrices.mT, torch.eye(block).expand_as(matrices), atol=1e-5, rtol=0)
        assert (torch.linalg.det(matrices) > 0).all()


@pytest.mark.parametrize(
    "positions", [torch.arange(3)[None], torch.tensor([[9]]), GRID[:, 4:6]], ids=["text", "far", "grid"]
)
def test_gradients_of_the_generators(positions: Tensor) -> None:
    encoding = LieRE(num_heads=1, head_dim=3, block=3, axes=positions.ndim - 1).double()
    generators = encoding.generators.detach().requires_grad_()
    del encoding.generators

    def matrices(generators: Tensor) -> Tensor:
        encoding.generators = generators  # type: ignore[assignment]
        rotation = encoding.modifiers(span(positions)).rotation
        assert isinstance(rotation, MatrixRotation) and rotation.matrix_k is not None
        return rotation.matrix_k

    assert torch.autograd.gradcheck(matrices, (generators,))


@torch.no_grad()
def test_products_equal_exponentials() -> None:
    encoding, positions = liere(axes=2), torch.tensor([[0, 1, 2, 3, 31, 32, 33], [66, 65, 0, 1, 64, 3, 3]])
    alone = encoding.matrices(positions, None)
    assert alone.shape == (2, 2, 7, 2, 8, 8)
    torch.testing.assert_close(encoding.matrices(positions, None, encoding.table(67)), alone, **EXACT)
    axes = positions[..., None].expand(-1, -1, 2)
    torch.testing.assert_close(encoding.matrices(positions, axes), alone, **EXACT)


@torch.no_grad()
def test_blocks_of_two_are_mixed_rope() -> None:
    encoding, mixed = liere(block=2, unit=4.0, axes=2), RoPEMixed(num_heads=2, head_dim=16).double()
    mixed.f.copy_(-encoding.generators[..., 0] / 4)
    q, k, v = torch.randn(3, 1, 2, GRID.shape[1], 16, dtype=torch.float64)
    expected = attend(q, k, v, mixed, tokens=TokenInfo(GRID))
    torch.testing.assert_close(attend(q, k, v, encoding, tokens=TokenInfo(GRID)), expected, **EXACT)


@pytest.mark.parametrize(
    ("settings", "positions", "invariant"),
    [
        ({}, GRID[..., 0], True),
        ({"axes": 2}, GRID[..., 0], True),
        ({"axes": 2, "block": 2}, GRID, True),
        ({"axes": 2}, GRID, False),
    ],
    ids=["one axis", "equal axes", "blocks of two", "two axes"],
)
@torch.no_grad()
def test_when_products_depend_on_distances_alone(settings: dict[str, Any], positions: Tensor, invariant: bool) -> None:
    encoding = liere(**settings)
    here, moved = products(encoding, positions), products(encoding, positions + 5)
    assert encoding.shift_invariant == (settings != {"axes": 2})
    assert float((moved - here).abs().max()) < 1e-11 if invariant else float((moved - here).abs().max()) > 1
    # A token's product with itself, and with tokens at the same position, is that without rotation.
    torch.testing.assert_close(moved.diagonal(dim1=2, dim2=3), here.diagonal(dim1=2, dim2=3), **EXACT)


@pytest.mark.parametrize("heads", [1, 2])
@torch.no_grad()
def test_steps_with_a_cache_equal_one_forward_pass_over_a_grid(heads: int) -> None:
    """The cache has rotated keys of a single head, and unrotated ones of several."""
    config = ModelConfig(d_model=16, num_layers=2, num_heads=heads)
    torch.manual_seed(1)
    model = Decoder(config, choose(LieRE, axes=2), vocab_size=9, output_size=9, train_length=8).double().eval()
    assert model.encodings[0].modifiers(Span.of(2)).caches_rotated_keys == (heads == 1)
    tokens, cache = torch.randint(9, (2, GRID.shape[1])), KVCache(2)
    steps = [model(tokens[:, n : n + 2], positions=GRID[:, n : n + 2], cache=cache) for n in range(0, GRID.shape[1], 2)]
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens, positions=GRID), **EXACT)


@torch.no_grad()
def test_autocast_does_not_round_the_rotation() -> None:
    encoding, q = liere().float(), torch.randn(1, 2, 7, 16)
    rotation = encoding.modifiers(Span.of(7)).rotation
    assert rotation is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rotation.rotate_query(q), rotation.rotate_query(q.clone()))
        rotated = rotation.rotate_query(q)
    assert torch.equal(rotated, rotation.rotate_query(q)) and rotated.dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block": 6}, "LieRE: block must be at least 2 and divide head_dim, 16, got 6"),
        ({"block": 1}, "LieRE: block must be at least 2 and divide head_dim, 16, got 1"),
        ({"block": 0}, "LieRE: block must be a whole number of at least 1"),
        ({"axes": 0}, "LieRE: axes must be a whole number of at least 1"),
        ({"unit": 3.5}, "LieRE: unit must be at least 4 positions, got 3.5"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        liere(**settings)
    assert "\n" not in str(error.value)


def test_positions_with_more_axes_than_it_has() -> None:
    q, k, v = torch.randn(3, 1, 2, GRID.shape[1], 16, dtype=torch.float64)
    with pytest.raises(ConfigError, match=r"pass positions \[batch, tokens\], or use LieRE\(axes=2\)$"):
        attend(q, k, v, liere(), tokens=TokenInfo(GRID))


def test_settings_that_fit_other_heads_than_the_nominal_ones() -> None:
    assert choose(LieRE, block=6).label == "LieRE(block=6)"
    with pytest.raises(ConfigError, match="block must be at least 2"):
        choose(LieRE, block=1)
    with pytest.raises(ConfigError, match="cannot be created"):
        choose(LieRE, block=2**31, axes=2**31)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 3, 5, 2, 4, 4),
            "MatrixRotation.matrix_q of Mine has shape .*; it must be .1 or 2 batch, 1 or 4 heads, 5 ",
        ),
        ((1, 4, 5, 3, 4, 4), "MatrixRotation of Mine rotates 12 dims; it must be at most 8, the head dim"),
        ((1, 4, 5, 2, 4, 3), "MatrixRotation.matrix_q of Mine has shape"),
    ],
    ids=["heads", "dims", "not square"],
)
def test_matrices_that_do_not_fit(shape: tuple[int, ...], message: str) -> None:
    modifiers = AttentionModifiers(rotation=MatrixRotation(torch.zeros(shape), None), encoding="Mine")
    with pytest.raises(ConfigError, match=message):
        plan(modifiers, Span.of(5), Mask(5, 5), torch.zeros(2, 4, 5, 8))


@torch.no_grad()
def test_dims_after_the_last_block_stay() -> None:
    q = torch.randn(2, 2, 5, 7)
    rotation = MatrixRotation(torch.eye(3).mul(2).expand(1, 1, 5, 2, 3, 3), None)
    assert torch.equal(rotation.rotate_query(q), torch.cat([2 * q[..., :6], q[..., 6:]], -1))
    assert torch.equal(rotation.rotate_key(q), q)


@pytest.mark.parametrize("axes", [1, 2])
def test_exponentials_in_chunks_are_those_of_all_tokens(axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients, memory is bounded by a chunk. With them, everything is computed at once."""
    encoding = liere(axes=axes)
    positions = torch.randint(0, 1000, (2, 70, axes))
    sizes = []
    exponential = torch.linalg.matrix_exp
    monkeypatch.setattr(torch.linalg, "matrix_exp", lambda x: sizes.append(x.shape[2]) or exponential(x))
    whole = encoding.matrices(positions.amax(-1), positions)
    monkeypatch.setattr("lengthwise.encodings.liere._CHUNK_SIZE", 32)
    with torch.no_grad():
        chunked = encoding.matrices(positions.amax(-1), positions)
    assert torch.equal(whole, chunked)
    assert encoding.matrices(positions.amax(-1), positions).requires_grad
    assert sizes == [70, 32, 32, 6, 70]
