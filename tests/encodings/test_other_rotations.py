"""Rotations that are computed from content, learned, or polar: where another encoding says the same."""

import math

import pytest
import torch
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import Mask, TokenInfo, plan
from lengthwise.config import ConfigError
from lengthwise.encodings import ENCODINGS, LeRoPE, PoPE, PositionEncoding, RePo, RoPE, SelectiveRoPE
from lengthwise.encodings.documents import shifted
from lengthwise.forms import AttentionModifiers, Rotation
from lengthwise.span import Span

DOCUMENTS = torch.tensor([[1, 2, 1, 1, 2, 2, 1, 2, 1]])


def inputs(kv_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return tuple(torch.randn(1, heads, 9, 8, dtype=torch.float64) for heads in (2, kv_heads, kv_heads))


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_repo_whose_positions_are_those_of_the_tokens_is_rope(layout: str, documents: Tensor | None) -> None:
    repo = RePo(num_heads=2, head_dim=8, d_model=1, rank=1, layout=layout).double()
    for weight in (repo.U, repo.V, repo.w):
        torch.nn.init.ones_(weight)
    position = torch.arange(9, dtype=torch.float64)
    x = position.sqrt()  # silu(x) x grows with x; its inverse is found by Newton's method
    for _ in range(60):
        error = torch.nn.functional.silu(x) * x - position
        s = x.sigmoid()
        x = (x - error / (2 * x * s + x * x * s * (1 - s) + 1e-30)).clamp(min=0.0)
    tokens = TokenInfo(documents=documents, x=x[None, :, None])
    got = attend(*inputs(), repo, tokens=tokens)
    rope = RoPE(head_dim=8, base=500_000.0, layout=layout)
    wanted = attend(*inputs(), rope, tokens=TokenInfo(position[None].long(), documents))
    torch.testing.assert_close(got, wanted, atol=1e-9, rtol=0)


@pytest.mark.parametrize("documents", [None, DOCUMENTS])
def test_selective_rope_whose_phases_are_1_is_rope(documents: Tensor | None) -> None:
    selective = SelectiveRoPE(num_heads=2, head_dim=8, d_model=2, rank=1, width=1).double()
    for weight in (selective.A, selective.c):
        torch.nn.init.ones_(weight)
    selective.B.data.copy_(torch.tensor([[1.0, 0.0]]))
    tokens = TokenInfo(documents=documents, x=torch.full((1, 9, 2), 1e9, dtype=torch.float64))
    got = attend(*inputs(), selective, tokens=tokens)
    wanted = attend(*inputs(), RoPE(head_dim=8, base=500_000.0), tokens=TokenInfo(documents=documents))
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)


def test_the_length_of_the_vectors_of_a_full_rank_projection_makes_no_difference() -> None:
    published = ENCODINGS.parse("selectiverope(rank=none,gate=true,activation=silu)")
    selective = published.build(num_heads=2, head_dim=8, d_model=6).double()
    assert {name: tuple(p.shape) for name, p in selective.named_parameters()} == {
        "v": (2, 4, 3), "s": (2,), "c": (2, 4, 4), "G": (2, 6), "b": (2,),
    }  # fmt: skip
    x = torch.randn(1, 9, 6, dtype=torch.float64)
    before = selective.features(x)
    with torch.no_grad():
        selective.v.mul_(torch.tensor([0.01, 100.0])[:, None, None])
    torch.testing.assert_close(selective.features(x), before, atol=1e-14, rtol=0)
    selective.features(x)[..., :8].sum().backward()
    assert float((selective.v.grad * selective.v.detach()).sum(-1).abs().max()) < 1e-12  # the gradient turns a vector


@pytest.mark.parametrize(("bias", "share"), [(0.0, 0.5), (-40.0, 0.0), (40.0, 1.0)])
def test_a_gate_takes_its_share_of_every_step(bias: float, share: float) -> None:
    torch.manual_seed(2)
    open_, gated = (
        SelectiveRoPE(num_heads=2, head_dim=8, d_model=6, rank=3, gate=gate).double() for gate in (False, True)
    )
    gated.load_state_dict(open_.state_dict() | {"G": torch.zeros(2, 6), "b": torch.full((2,), bias)})
    x = torch.randn(1, 9, 6, dtype=torch.float64)
    (wanted,), (got,) = (e.content(e.features(x), Span.of(9), None) for e in (open_, gated))
    torch.testing.assert_close(got.angle_k, share * wanted.angle_k, atol=1e-15, rtol=1e-12)


def content() -> dict[str, PositionEncoding]:
    torch.manual_seed(1)
    made = {
        "RePo": RePo(num_heads=2, head_dim=8, d_model=6, rank=3).double(),
        "SelectiveRoPE": SelectiveRoPE(num_heads=2, head_dim=8, d_model=6, rank=3).double(),
        "SelectiveRoPE as published": SelectiveRoPE(
            num_heads=2, head_dim=8, d_model=6, rank=None, gate=True, activation="silu"
        ).double(),
    }
    for encoding in made.values():
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("name", content())
@pytest.mark.parametrize("backend", ["reference", "fused", "blocked", "sdpa"])
def test_heads_that_share_a_key_rotate_it_each_by_their_own_angle(name: str, backend: str) -> None:
    encoding, (q, k, v) = content()[name], inputs(kv_heads=1)
    tokens = TokenInfo(x=torch.randn(1, 9, 6, dtype=torch.float64))
    got = attend(q, k, v, encoding, tokens=tokens, backend=backend)
    repeated = (x.expand(-1, 2, -1, -1) for x in (k, v))
    torch.testing.assert_close(got, attend(q, *repeated, encoding, tokens=tokens, backend="reference"))


def test_every_third_token_before_in_its_document() -> None:
    x = torch.arange(1.0, 10.0)[None, None]
    assert shifted(x, 3, None)[0, 0].tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert shifted(x, 30, None).sum() == 0
    #                                           1  2  1  1  2  2  1  2  1
    assert shifted(x, 2, DOCUMENTS)[0, 0].tolist() == [0, 0, 0, 1, 0, 2, 3, 5, 4]
    other = torch.where(DOCUMENTS[:, None] == 1, x, math.nan)
    at = DOCUMENTS[0] == 1
    assert torch.equal(shifted(other, 2, DOCUMENTS)[..., at], shifted(x, 2, DOCUMENTS)[..., at])


def test_learned_frequencies_learn() -> None:
    lerope = LeRoPE(head_dim=8)
    q, k, v = inputs()
    wanted = attend(q, k, v, RoPE(head_dim=8))
    torch.testing.assert_close(attend(q, k, v, lerope), wanted, atol=1e-14, rtol=0)
    attend(q, k, v, lerope).sum().backward()
    assert bool((lerope.alpha.grad != 0).all())


@pytest.mark.parametrize(("clamp", "moves"), [(True, False), (False, True)])
def test_a_phase_past_its_bound_is_stuck_if_it_is_clamped(clamp: bool, moves: bool) -> None:
    pope = PoPE(num_heads=2, head_dim=8, clamp=clamp)
    with torch.no_grad():
        pope.delta.fill_(0.1)
    attend(*inputs(), pope).sum().backward()
    assert bool((pope.delta.grad != 0).all()) == moves


def test_phases_repeat_after_a_turn() -> None:
    results = []
    for shift in (0.0, 2 * math.pi):
        pope = PoPE(num_heads=2, head_dim=8, clamp=False).double()
        with torch.no_grad():
            pope.delta.copy_(torch.linspace(-3, 3, 16).double().view(2, 8) + shift)
        results.append(attend(*inputs(), pope))
    torch.testing.assert_close(*results, atol=1e-12, rtol=0)


def test_what_cannot_be() -> None:
    with pytest.raises(
        ConfigError, match="RePo: head_dim must be even, because dimensions are rotated in pairs, got 7"
    ):
        RePo(num_heads=2, head_dim=7, d_model=14)
    with pytest.raises(ConfigError, match=r"SelectiveRoPE: d_model must be a multiple of num_heads.*, got 15 and 2"):
        SelectiveRoPE(num_heads=2, head_dim=8, d_model=15)

    q, k, v = inputs()
    with pytest.raises(ConfigError, match=r"RePo was made for 3 heads, and q has 2 .*; use RePo\(num_heads=2\)"):
        repo = RePo(num_heads=3, head_dim=8, d_model=4).double()
        attend(q, k, v, repo, tokens=TokenInfo(x=torch.zeros(1, 9, 4).double()))
    rotation = Rotation(torch.zeros(1, 3, 9, 4), torch.zeros(1, 3, 9, 4))  # of no encoding whose heads could be named
    with pytest.raises(
        ConfigError, match=r"has shape \[1, 3, 9, 4\]; it must be \[1 or 1 batch, a divisor of the 2 heads"
    ):
        plan(AttentionModifiers(rotation=rotation), Span.of(9), Mask(9, 9), q)(q, k, v, scale=1.0)
