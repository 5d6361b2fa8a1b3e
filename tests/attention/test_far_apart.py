"""Positions far apart, timestamps for example: tables hold the distances that occur, and nothing else changes."""

import dataclasses

import pytest
import torch

import lengthwise
from lengthwise import attention, encodings
from lengthwise.attention import (
    BACKENDS,
    Bins,
    EncodingCache,
    Mask,
    TokenInfo,
    gradients_unsupported_reason,
    plan,
    unsupported_reason,
)
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import ENCODINGS, base
from lengthwise.forms import AttentionModifiers, ToeplitzBias
from lengthwise.models import Decoder
from lengthwise.span import Span
from tests.pairwise import pairwise

HEADS, DIM, TOKENS = 4, 8, 12
WIDE = torch.float64
MADE_FOR = {"num_heads": HEADS, "head_dim": DIM, "d_model": HEADS * DIM, "train_length": 64}
# Those with a table that grows with the distances, and others that see positions.
TABLES = [
    "ALiBi", "ALiBi:bidirectional=true,learned=true", "KerpleLog", "KerplePower", "Sandwich", "TransformerXL",
    "TransformerXL:bidirectional=true", "FIRE", "FIRE:activation=gelu", "FIRE:transform=identity,threshold=false",
    "FIRE:activation=gelu,L=1e12", "DAPE:base=alibi",
]  # fmt: skip
OTHERS = ["RoPE", "LogN", "T5", "T5:bidirectional=true", "Shaw", "BandedBias", "DAPE:base=fire", "CoPE", "FoX"]


def made(name):
    torch.manual_seed(1)
    encoding = ENCODINGS.parse(name).build(**MADE_FOR).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            if not parameter.any():
                parameter.uniform_(-0.3, 0.3)
    return encoding


def given(queries=TOKENS, batch=2):
    torch.manual_seed(0)
    q = torch.randn(batch, HEADS, queries, DIM, dtype=WIDE)
    k, v = torch.randn(2, batch, 2, TOKENS, DIM, dtype=WIDE)
    return q, k, v, torch.randn(batch, TOKENS, HEADS * DIM, dtype=WIDE)


def answers(encoding, backend, positions, queries=TOKENS):
    """Output, and every gradient where the backend has any."""
    q, k, v, x = (t.requires_grad_() for t in given(queries))
    learns = gradients_unsupported_reason(backend, "cpu") is None
    with torch.set_grad_enabled(learns):
        x = x if encoding.reads_content() else None
        out = lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(positions, x=x), backend=backend)
    if not learns:
        return [out]
    leaves = [q, k, v, *encoding.parameters()]
    torch.manual_seed(9)
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.randn_like(out), allow_unused=True)]


PLACES = {
    "alike in all rows": torch.tensor([[0, 5, 6, 90, 91, 200, 1000, 1001, 1500, 1700, 1900, 2100]]),
    "other ones in each row": torch.stack([torch.arange(TOKENS).pow(3), 700 + torch.arange(TOKENS) * 11]),
    "going back": torch.tensor([[0, 700, 5, 90, 91, 2, 1000, 1001, 2, 1700, 1900, 3]]),
}


# FlexAttention takes seconds for every kind of effect.
ON_FLEX = [(name, "other ones in each row", "flex") for name in ("ALiBi", "FIRE", "TransformerXL")]
LISTING = ("blocked", "sdpa", "reference")
assert set(BACKENDS) == {"fused", "flex", *LISTING}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "place", "backend"), [ON_FLEX[0], *(pytest.param(*asked, marks=pytest.mark.slow) for asked in ON_FLEX[1:])]
)
def test_distances_that_are_listed_by_flex_attention(name, place, backend, monkeypatch):
    test_distances_that_are_listed_give_what_all_of_them_give(name, place, backend, monkeypatch)


@pairwise(name=TABLES, place=PLACES, backend=LISTING)
def test_distances_that_are_listed_give_what_all_of_them_give(name, place, backend, monkeypatch):
    """Output and every gradient, of a whole text and of a step."""
    positions = PLACES[place]
    encoding, span = made(name), Span(positions, positions, int(positions.max()) + 1)
    for queries in (TOKENS, 1):
        with monkeypatch.context() as patch:
            patch.setattr(base, "SMALL_SPAN", 0)
            patch.setattr(base, "SMALL_TABLE", 0)
            modifiers = encoding.modifiers(span)
            assert modifiers.logit_transform or any(getattr(t, "distances", None) is not None for t in modifiers.terms)
            if unsupported_reason(backend, modifiers, span):
                pytest.skip("a rewrite")
            listed = answers(encoding, backend, positions, queries)
        everything = answers(encoding, backend, positions, queries)
        torch.testing.assert_close(listed, everything, rtol=1e-11, atol=1e-11)


def test_the_kernel_says_why_it_refuses(monkeypatch):
    far = torch.arange(TOKENS)[None] * 10_000_000
    with pytest.raises(
        ConfigError,
        match="'fused' does not support this call: positions lie so far apart that distances are listed",
    ):
        lengthwise.attend(*given()[:3], made("ALiBi"), tokens=TokenInfo(positions=far), backend="fused")


# ---- as far apart as timestamps are


def by_formula(encoding, positions):
    """The bias of every pair: [b, h, i, j]."""
    distance = (positions[:, :, None] - positions[:, None]).clamp(min=0)
    if isinstance(encoding, encodings.DistanceBias):
        return encoding.bias(distance.flatten()).unflatten(1, distance.shape).transpose(0, 1)
    query = positions[:, :, None].expand_as(distance)
    return encoding.f(encoding.coordinate(query, query - distance)[..., None]).movedim(-1, 1)


@pytest.mark.parametrize("name", [n for n in TABLES if not n.startswith(("TransformerXL", "DAPE", "ALiBi:"))])
@pytest.mark.parametrize("spacing", [1_000_000, 16_000_000, 1 << 40])
def test_the_bias_is_that_of_the_formula(name, spacing):
    if name == "KerplePower" and spacing == 1 << 40:
        pytest.skip("distances to a power: every weight but the nearest is 0")
    encoding = made(name)
    positions = torch.arange(TOKENS)[None] * spacing + torch.tensor([[0, 1, 5]]).repeat(1, TOKENS // 3)
    q, k, v, _ = given(batch=1)
    logits = q @ k.repeat_interleave(2, 1).mT * DIM**-0.5 + by_formula(encoding, positions)
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    wanted = logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v.repeat_interleave(2, 1)
    for backend in ("auto", "reference"):
        got = lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(positions=positions), backend=backend)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6 if "gelu" in name and backend == "auto" else 1e-11)


@pytest.mark.parametrize("name", TABLES + OTHERS)
def test_nothing_large_is_made(name):
    """No tensor of more than 4 MB: of all distances there would be 50 GB and more."""
    encoding, positions = made(name), torch.arange(TOKENS)[None] * 1_700_000_000
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(x, torch.Tensor):
                    largest = max(largest, x.untyped_storage().nbytes())
            return out

    q, k, v, x = given()
    x = x if encoding.reads_content() else None
    with Watch():
        lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(positions=positions, x=x))
        lengthwise.attend(
            q[:, :, -1:], k, v, encoding, tokens=TokenInfo(positions=positions, x=x), encoding_cache=EncodingCache()
        )
        if not encoding.bidirectional if hasattr(encoding, "bidirectional") else True:
            attention.statistics(q, k, encoding, tokens=TokenInfo(positions=positions, x=x))
    assert 0 < largest < 1 << 22


def test_statistics_of_far_positions():
    """With no content every weight follows from the bias: the mass by distance by hand."""
    alibi = encodings.ALiBi(num_heads=1)
    positions = torch.tensor([[0, 10**8, 10**8 + 256]])
    zeros = torch.zeros(1, 1, 3, 4, dtype=WIDE)
    queries = torch.tensor([[False, False, True]])
    found = attention.statistics(
        zeros, zeros, alibi, tokens=TokenInfo(positions=positions), bins=Bins(edges=[1, 1000]), queries=queries
    )
    near = torch.tensor([1.0, torch.tensor(-1.0, dtype=WIDE).exp()], dtype=WIDE)  # the slope is 1/256
    wanted = torch.cat([near / near.sum(), torch.zeros(1, dtype=WIDE)])
    torch.testing.assert_close(found.histogram[0, 0], wanted, rtol=1e-12, atol=1e-12)


def test_a_decoder_reads_timestamps():
    config = ModelConfig(d_model=16, num_layers=2, num_heads=2, d_ff=16)
    torch.manual_seed(0)
    model = Decoder(config, choose(encodings.FIRE), vocab_size=5, output_size=5, train_length=16)
    positions = torch.tensor([[0, 3_600, 1_700_000_000, 1_700_086_400]])
    tokens = torch.tensor([[0, 1, 2, 3]])
    whole = model(tokens, positions=positions)
    cache = attention.KVCache(2)
    steps = [model(tokens[:, [n]], positions=positions[:, [n]], cache=cache) for n in range(4)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-5, atol=1e-5)


# ---- what no table holds


def test_a_table_that_would_be_too_large_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(base, "MAX_TABLE_NUMBERS", 200)
    monkeypatch.setattr(base, "SMALL_SPAN", 0)
    monkeypatch.setattr(base, "SMALL_TABLE", 0)
    q, k, v, _ = given()
    positions = torch.arange(TOKENS)[None].pow(5)
    words = (
        r"positions reach over 161,052 distances, and a table for these tokens would have 26\d numbers, more than "
        r"the 200"
    )
    with pytest.raises(ConfigError, match=words):
        lengthwise.attend(q, k, v, encodings.ALiBi(num_heads=HEADS), tokens=TokenInfo(positions=positions))


def test_many_tokens_far_apart_are_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(base, "MAX_SORTED_PAIRS", 100)
    q, k, v, _ = given()
    with pytest.raises(ConfigError, match="use fewer tokens at a time, or choose an encoding without a table"):
        lengthwise.attend(
            q, k, v, encodings.Sandwich(num_heads=HEADS), tokens=TokenInfo(positions=torch.arange(TOKENS)[None] * 10**9)
        )


def test_ordinary_positions_have_tables_over_all_distances():
    """So they take the kernel, with the same bits as before: few distances, all in use, or consecutive ones."""
    alibi = encodings.ALiBi(num_heads=8)
    far = torch.tensor([[0, 70_000]])
    assert alibi.modifiers(Span(far, far, 70_001)).terms[0].distances is None
    many = torch.arange(0, 1_200_000, 1_000)[None]
    assert alibi.modifiers(Span(many, many, int(many.max()) + 1)).terms[0].distances is None
    consecutive = alibi.modifiers(dataclasses.replace(Span.of(4, 1), length=1_000_000)).terms[0]
    assert consecutive.distances is None


@pytest.mark.parametrize("backend", ["blocked", "sdpa"])
def test_the_sum_of_two_tables_far_apart_is_not_written_out(backend: str) -> None:
    tables = torch.randn(2, 2, 3, dtype=torch.float64)
    modifiers = AttentionModifiers(terms=(ToeplitzBias(tables[0]), ToeplitzBias(tables[1], first=2**40)))
    q, span, mask = torch.randn(1, 2, 5, 4, dtype=torch.float64), Span.of(5), Mask(5, 5)
    with pytest.raises(
        ConfigError,
        match=r"tables of 6 distances lie so far apart that one over all of them would have 1,099,511,627,779",
    ):
        plan(modifiers, span, mask, q, backend="fused")
    near = AttentionModifiers(terms=(ToeplitzBias(tables[0]), ToeplitzBias(tables[1, :, :1])))  # its nearest column
    expected = plan(near, span, mask, q, backend="reference")(q, q, q, scale=0.5)
    for name in (backend, "auto"):
        result = plan(modifiers, span, mask, q, backend=name)(q, q, q, scale=0.5)
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
