"""`lengthwise.attend`: three lines in a user's own code, and plain words when they cannot be."""

import inspect

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import lengthwise
from lengthwise import encodings
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.span import Span
from tests.unchecked import with_fields

Q, KV = (2, 4, 9, 8), (2, 2, 9, 8)


def qkv(q=Q, kv=KV, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(q, dtype=dtype), torch.randn(kv, dtype=dtype), torch.randn(kv, dtype=dtype)


def test_three_lines():
    q, k, v = qkv()
    fire = encodings.FIRE(num_heads=4)
    out = lengthwise.attend(q, k, v, fire)
    assert out.shape == q.shape
    rope = encodings.RoPE(head_dim=8)
    assert not torch.allclose(out, lengthwise.attend(q, k, v, rope))


def test_without_an_encoding_it_is_causal_attention():
    q, k, v = qkv(kv=Q)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(lengthwise.attend(q, k, v), expected)


def test_fewer_queries_are_the_last_tokens():
    q, k, v = qkv(dtype=torch.float64)
    alibi = encodings.ALiBi(num_heads=4)
    whole = lengthwise.attend(q, k, v, alibi)
    torch.testing.assert_close(lengthwise.attend(q[:, :, -3:], k, v, alibi), whole[:, :, -3:])


def test_documents_restart_positions():
    q, k, v = qkv(dtype=torch.float64)
    fire = encodings.FIRE(num_heads=4, L=2.0).double()
    for ids in ([0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0, 1, 0, 0], [2, 2, 1, 1, 1, 2, 2, 2, 2]):
        packed = lengthwise.attend(q, k, v, fire, tokens=TokenInfo(documents=torch.tensor([ids])))
        for document in set(ids):
            part = [n for n, id in enumerate(ids) if id == document]
            torch.testing.assert_close(
                packed[:, :, part], lengthwise.attend(q[:, :, part], k[:, :, part], v[:, :, part], fire)
            )


def test_positions_are_what_tokens_claim():
    q, k, v = qkv(dtype=torch.float64)
    alibi = encodings.ALiBi(num_heads=4)
    plain = lengthwise.attend(q, k, v, alibi)
    torch.testing.assert_close(
        lengthwise.attend(q, k, v, alibi, tokens=TokenInfo(positions=torch.arange(9)[None] + 1000)), plain
    )
    assert not torch.allclose(
        lengthwise.attend(q, k, v, alibi, tokens=TokenInfo(positions=torch.arange(9)[None] * 2)), plain
    )


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
@pytest.mark.parametrize("encoding", [None, encodings.ALiBi(num_heads=4), encodings.T5(num_heads=4)])
def test_autocast_leaves_precision_to_attention(encoding, backend):
    q, k, v = qkv()
    expected = lengthwise.attend(q, k, v, encoding, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lengthwise.attend(q, k, v, encoding, backend=backend), expected)


NO_TOKEN_INFO = r"^tokens must be a lengthwise.TokenInfo\(positions=..., documents=..., x=...\) or None, got a Tensor$"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": torch.zeros(2, 9, 8)}, "must be"),
        ({"q": torch.zeros(2, 3, 9, 8)}, "multiple"),
        ({"q": torch.zeros(2, 4, 10, 8)}, "1 to 9 tokens"),
        ({"q": torch.zeros(2, 4, 0, 8)}, "at least one head, token and dim"),
        ({"q": torch.zeros(2, 4, 9, 8, dtype=torch.float64)}, "same dtype"),
        ({"k": torch.zeros(2, 2, 8, 8)}, "both"),
        ({"tokens": with_fields(TokenInfo(), positions=torch.zeros(1, 8, dtype=torch.long))}, "one per token"),
        ({"tokens": with_fields(TokenInfo(), positions=torch.zeros(9, dtype=torch.long))}, "one per token"),
        ({"tokens": with_fields(TokenInfo(), positions=torch.zeros(1, 9))}, "whole numbers"),
        ({"tokens": with_fields(TokenInfo(), positions=torch.full((1, 9), -1))}, "at least 0, got -1"),
        ({"tokens": with_fields(TokenInfo(), documents=torch.zeros(3, 9, dtype=torch.long))}, "one per token"),
        ({"encoding": encodings.Sinusoidal(d_model=8)}, "embed"),
        ({"encoding": encodings.ALiBi(num_heads=4), "causal": False}, "causal"),
        (
            {"encoding": encodings.LogN(train_length=4), "causal": False},
            "LogN is not defined for keys after",
        ),
        ({"encoding": encodings.XPos(head_dim=8), "causal": False}, "XPos is not defined for keys after the query"),
        ({"encoding": encodings.ALiBi(num_heads=3)}, "heads"),
        ({"encoding": encodings.ALiBi(num_heads=1)}, r"made for 1 heads, and q has 4 .*; use ALiBi\(num_heads=4\)"),
        (
            {"encoding": encodings.T5(num_heads=4).to("meta")},
            r"T5 must be on the device of q, cpu, got meta; call encoding.to\('cpu'\)",
        ),
        (
            {"tokens": with_fields(TokenInfo(), positions=torch.zeros(1, 9, dtype=torch.long, device="meta"))},
            "positions must be on the device of q, cpu, got meta",
        ),
        (
            {"tokens": with_fields(TokenInfo(), documents=torch.zeros(1, 9, dtype=torch.long, device="meta"))},
            "documents must be on the device of q, cpu, got meta",
        ),
        ({"encoding": encodings.RoPE(head_dim=16)}, "dims"),
        ({"encoding": encodings.RoPE(head_dim=4)}, r"made for heads of 4 dims, and q has 8; use RoPE\(head_dim=8\)"),
        (
            {"encoding_cache": {}},
            r"encoding_cache must be a lengthwise.attention.EncodingCache\(\) or None, got a dict",
        ),
        (
            {"encoding": "rope"},
            r"must be an instance of an encoding, got 'rope'; write for example encodings.RoPE\(head_dim=8\)",
        ),
        ({"encoding": encodings.RoPE}, "must be an instance of an encoding, got RoPE;"),
        ({"backend": "flash"}, "there is no backend"),
        ({"tokens": torch.zeros(1, 9, dtype=torch.long)}, NO_TOKEN_INFO),
        ({"tokens": {"positions": torch.arange(9)[None]}}, NO_TOKEN_INFO.replace("Tensor", "dict")),
    ],
)
def test_what_cannot_be(change, words):
    q, k, v = qkv()
    with pytest.raises(ConfigError, match=words) as error:
        # Tests check shapes before the call; users do not have that, so this goes past it.
        inspect.unwrap(lengthwise.attend)(**{"q": q, "k": k, "v": v, "encoding": None, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [encodings.KerpleLog, encodings.ALiBi, encodings.Sandwich, encodings.FIRE])
def test_tables_are_as_long_as_distances_are_not_as_positions(make):
    """Nine tokens that claim positions around 2^40 need nine distances."""
    q, k, v = qkv(dtype=torch.float64)
    encoding = make(num_heads=4).double()
    near, far = torch.arange(9)[None], torch.arange(9)[None] + 2**40
    out = lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(positions=far))
    if encoding.shift_invariant:
        torch.testing.assert_close(out, lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(positions=near)))
    else:
        assert torch.isfinite(out).all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize(
    "encoding",
    [
        encodings.ALiBi(num_heads=4),
        encodings.LogN(train_length=16),
        encodings.DynamicYaRN(head_dim=8, train_length=64),
        encodings.LongRoPE(head_dim=8, train_length=64),
    ],
)
def test_narrow_whole_numbers_do_not_wrap_around(encoding, dtype):
    q, k, v = qkv(dtype=torch.float64)
    positions = torch.tensor([[5, 6, 7, 8, 9, 10, 100, 126, 127]])
    wanted = lengthwise.attend(
        q, k, v, encoding, tokens=TokenInfo(positions=positions, documents=torch.zeros_like(positions))
    )
    attend = inspect.unwrap(lengthwise.attend)  # tests check that positions are signed before the call
    narrow = attend(
        q,
        k,
        v,
        encoding,
        tokens=with_fields(TokenInfo(), positions=positions.to(dtype), documents=positions.to(dtype) * 0),
    )
    assert torch.equal(narrow, wanted)
    assert torch.isfinite(wanted).all()


def test_gains_that_float16_cannot_hold_are_refused_where_it_rounds():
    rotation = encodings.XPos(head_dim=8).modifiers(Span.of(4)).rotation
    with pytest.raises(ConfigError, match="in float16, got"):
        rotation.rotate_query(torch.ones(1, 1, 4, 8, dtype=torch.float16))
    near = encodings.XPos(head_dim=8, max_length=1024).modifiers(Span.of(4)).rotation
    assert torch.isfinite(near.rotate_query(torch.ones(1, 1, 4, 8, dtype=torch.float16))).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 3, 9, 50])
def test_a_window_hides_what_is_further_away(window, causal):
    q, k, v = qkv()
    queries, keys = q.shape[2], k.shape[2]
    out = lengthwise.attend(q, k, v, window=window, causal=causal)
    for i in range(queries):
        at = keys - queries + i
        seen = slice(max(0, at - window + 1), at + 1 if causal else at + window)
        alone = lengthwise.attend(q[:, :, i : i + 1], k[:, :, seen], v[:, :, seen], causal=False)
        torch.testing.assert_close(out[:, :, i : i + 1], alone)


@pytest.mark.parametrize("window", [0, -1, True])
def test_a_window_has_to_hold_the_query_itself(window):
    with pytest.raises(ConfigError, match=r"window must be a whole number of keys, at least 1 .*got"):
        lengthwise.attend(*qkv(), window=window)


def test_the_dtypes_that_attention_computes_with():
    q, k, v = (x.to(torch.float8_e4m3fn) for x in qkv())
    with pytest.raises(ConfigError, match=r"one of float32, bfloat16, float16, float64, got torch.float8_e4m3fn"):
        lengthwise.attend(q, k, v)


ON_LOGITS = [name for name in encodings.ENCODINGS.names() if name not in ("Sinusoidal", "Learned")]


@pytest.mark.parametrize("backend", ["auto", "blocked"])
@pytest.mark.parametrize("name", ON_LOGITS)
def test_what_is_made_again_in_the_backward_pass_is_the_same(name, backend):
    """Activation checkpointing keeps nothing of attention but its input."""
    q, k, v = (x.requires_grad_() for x in qkv())
    x = torch.randn(2, 9, 32)
    encoding = encodings.ENCODINGS.parse(name).build(num_heads=4, head_dim=8, d_model=32, train_length=9)
    learned = [q, k, v, *encoding.parameters()]

    def attend():
        return lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(x=x), backend=backend)

    plain, again = attend(), checkpoint(attend, use_reentrant=False)
    for a, b in zip(*(torch.autograd.grad(out.sum(), learned) for out in (plain, again)), strict=True):
        torch.testing.assert_close(a, b)
