"""Odd, empty, spoiled or impossible input, on every backend: the right numbers, or one line that says what to do."""

import inspect
import math
import re

import numpy as np
import pytest
import torch

import lengthwise
from lengthwise import encodings
from lengthwise.attention import BACKENDS, KVCache, Mask, TokenInfo, check_backend, gradients_unsupported_reason, plan
from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.forms import AttentionModifiers, DenseBias, ToeplitzBias
from lengthwise.models import Decoder
from lengthwise.span import Span
from tests.pairwise import pairwise
from tests.unchecked import with_fields

WIDE = torch.float64
LEARNING = [name for name in BACKENDS if not gradients_unsupported_reason(name, "cpu")]


def attend(*args, **settings):
    """Tests check shapes before a call; users do not have that, so this goes past it."""
    return inspect.unwrap(lengthwise.attend)(*args, **settings)


def qkv(b=2, h=4, g=2, i=7, j=9, d=8, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(b, heads, t, d, dtype=WIDE).to(dtype) for heads, t in ((h, i), (g, j), (g, j))]


def require_backend(name, modifiers, span, mask, q):
    if reason := BACKENDS[name].unsupported_reason(modifiers, span, mask, q):
        pytest.skip(f"{name}: {reason}")


# ---- where numbers lie in memory


def _every_second(x):
    return torch.stack([x, torch.full_like(x, math.nan)], -1).flatten(-2)[..., ::2]


LAYOUTS = {
    "dims before tokens": lambda x: x.mT.contiguous().mT,
    "heads after tokens": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "batch last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "every second number": _every_second,
    "a part of more": lambda x: torch.nn.functional.pad(x, (3, 2, 1, 1), value=math.nan)[..., 1:-1, 3:-2],
    "one row for all": lambda x: x[:1].expand(x.shape),
    "one head for all": lambda x: x[:, :1].expand(x.shape),
    "one token for all": lambda x: x[:, :, :1].expand(x.shape),
    "one number for all": lambda x: x[:1, :1, :1, :1].expand(x.shape),
}


@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_may_lie_in_any_way(layout, backend):
    t5 = encodings.T5(num_heads=4).double()
    require_backend(backend, t5.modifiers(Span.of(9, 7)), Span.of(9, 7), Mask(7, 9), qkv(dtype=WIDE)[0])
    weight = torch.randn(2, 4, 7, 8, dtype=WIDE)
    answers = []
    for odd in (True, False):
        given = [x.requires_grad_() for x in qkv(dtype=WIDE)]
        laid = [LAYOUTS[layout](x) for x in given]
        out = lengthwise.attend(*(x if odd else x.contiguous() for x in laid), t5, backend=backend)
        back = LAYOUTS[layout](weight) if odd else LAYOUTS[layout](weight).contiguous()
        answers.append([out, *torch.autograd.grad(out, [*given, *t5.parameters()], back)])
    torch.testing.assert_close(*answers, rtol=1e-12, atol=1e-12)


@pytest.mark.medium
@pairwise(
    shape=[(1, 1, 1, 3), (1, 1, 4, 3), (2, 2, 1, 5), (0, 2, 3, 5)],
    make=[encodings.RoPE, encodings.XPos, encodings.PI],
    backend=BACKENDS,
)
def test_numbers_may_begin_at_odd_places(shape, make, backend):
    """`x[..., 1:]`: of one token its axes count as contiguous, whatever their strides."""
    torch.manual_seed(0)
    wide = [torch.randn(shape, dtype=WIDE).requires_grad_() for _ in range(3)]
    q, k, v = (x[..., 1:] for x in wide)
    encoding = make(head_dim=q.shape[-1])
    learns = backend in LEARNING
    with torch.set_grad_enabled(learns):
        out = attend(q, k, v, encoding, backend=backend)
        wanted = attend(*(x.clone() for x in (q, k, v)), encoding, backend="reference")
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)
    if learns:
        weight = torch.randn(out.shape, dtype=WIDE)
        torch.testing.assert_close(
            *(torch.autograd.grad(x, wide, weight) for x in (out, wanted)), rtol=1e-12, atol=1e-12
        )


# ---- nothing at all


@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize(
    "make",
    [None, encodings.ALiBi, encodings.T5, encodings.FIRE, encodings.RoPE, encodings.XPos, encodings.Shaw],
    ids=lambda m: getattr(m, "__name__", "none"),
)
def test_an_empty_batch_has_an_empty_answer_and_no_gradient(make, backend):
    told = {"num_heads": 4, "head_dim": 8}
    encoding = make(**{n: told[n] for n in told if n in inspect.signature(make).parameters}) if make else None
    given = [x.requires_grad_() for x in qkv(b=0)]
    modifiers = encoding.modifiers(Span.of(9, 7)) if encoding else AttentionModifiers()
    require_backend(backend, modifiers, Span.of(9, 7), Mask(7, 9), given[0])
    out = lengthwise.attend(*given, encoding, backend=backend)
    assert out.shape == (0, 4, 7, 8)
    out.sum().backward()
    assert [x.grad.shape for x in given] == [x.shape for x in given]
    for parameter in encoding.parameters() if encoding else ():
        assert not parameter.grad.any()


# ---- numbers that are not finite


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["q", "k", "v", "table", "dense"])
def test_what_is_not_finite_stays_with_the_queries_that_meet_it(which, bad, backend):
    """Token 40 of 60, distance 45, or what query 40 has for key 3: other queries are as they were."""
    span, mask = Span.of(60), Mask(60, 60)
    back = span.distance()[0]
    met = {
        "q": torch.arange(60) == 40,
        "k": torch.arange(60) >= 40,
        "v": torch.arange(60) >= 40,
        "table": ((back == 45) & (back >= 0)).any(1),
        "dense": torch.arange(60) == 40,
    }[which]
    if (which == "v" and backend != "fused") or (which == "k" and backend == "sdpa"):
        pytest.skip("torch's products multiply hidden keys by 0, or add -inf to their logits, and NaN stays NaN")
    outs = []
    for value in (0.5, bad):
        q, k, v = qkv(h=4, g=4, i=60, j=60)
        table, dense = torch.randn(4, 60), torch.randn(1, 4, 60, 60, generator=torch.Generator().manual_seed(1))
        table = torch.linspace(-1, 1, 60).expand(4, -1).clone()
        target = {"q": q[..., 40, 3], "k": k[..., 40, 3], "v": v[..., 40, 3], "table": table[:, 45]}
        target.get(which, dense[..., 40, 3])[:] = value
        modifiers = AttentionModifiers(terms=(ToeplitzBias(table), *((DenseBias(dense),) if which == "dense" else ())))
        require_backend(backend, modifiers, span, mask, q)
        outs.append(plan(modifiers, span, mask, q, backend=backend)(q, k, v, scale=0.3))
    plain, spoiled = outs
    assert plain.isfinite().all()
    torch.testing.assert_close(spoiled[:, :, ~met], plain[:, :, ~met], rtol=1e-6, atol=1e-6)
    if math.isnan(bad):
        rows = spoiled[:, :, met]
        assert not (rows[..., 3] if which == "v" else rows).isfinite().any()
    if which in ("table", "dense") and bad == -math.inf:  # hides pairs, no more
        assert spoiled.isfinite().all() and (spoiled[:, :, met] != plain[:, :, met]).any()


# ---- what cannot be


FLOAT8 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("change", "settings", "words"),
    [
        ({"dtype": FLOAT8}, {}, "one of float32, bfloat16, float16, float64, got torch.float8_e4m3fn; convert"),
        ({"dtype": torch.int64}, {}, "got torch.int64; convert"),
        ({"dtype": torch.bool}, {}, "got torch.bool; convert"),
        ({"dtype": torch.complex64}, {}, "got torch.complex64; convert"),
        ({"d": 0}, {}, "at least one head, token and dim"),
        ({"h": 0}, {}, "at least one head, token and dim"),
        ({"h": 3}, {}, "must be a multiple of that of k and v, got 3 and 2"),
        ({"i": 0}, {}, "at least one head, token and dim"),
        ({"i": 10}, {}, "q must have 1 to 9 tokens"),
        ({}, {"window": 0}, "window must be a whole number of keys, at least 1 .*got 0"),
        ({}, {"window": -3}, "window must be a whole number.*got -3"),
        ({}, {"window": 2.0}, "window must be a whole number.*got 2.0"),
        ({}, {"window": True}, "window must be a whole number.*got True"),
        ({}, {"window": "4"}, "window must be a whole number.*got '4'"),
        ({}, {"window": 2**62}, "window must be a whole number.*or None for all keys, got 4611686018427387904"),
        ({}, {"causal": None}, "causal must be True or False, got None"),
        ({}, {"causal": "yes"}, "causal must be True or False, got 'yes'"),
        ({}, {"scale": math.nan}, "scale must be a finite number.*got nan"),
        ({}, {"scale": math.inf}, "scale must be a finite number.*got inf"),
        ({}, {"scale": "0.5"}, "scale must be a finite number.*got '0.5'"),
        ({}, {"scale": torch.tensor(0.5)},
         r"scale must be a finite number.*got tensor\(0.5000\); multiply q by a scale"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_line(change, settings, words, monkeypatch):
    """Whatever the backend, because `attend` checks its arguments before it chooses one."""
    monkeypatch.setattr(Mask, "__init__", inspect.unwrap(Mask.__init__))
    with pytest.raises(ConfigError, match=words) as error:
        attend(*qkv(**change), **settings)
    assert "\n" not in str(error.value)


SPOILED = {
    "the largest": (
        torch.tensor([[2**63 - 1] * 9]),
        r"positions must be below 2\^53, .*got 9223372036854775807",
    ),
    "not exact": (torch.tensor([[2**53] * 9]), r"positions must be below 2\^53, .*got 9007199254740992"),
    "negative": (torch.tensor([[-1, *range(8)]]), "positions must be at least 0, got -1"),
    "the smallest": (torch.tensor([[-(2**63), *range(8)]]), "positions must be at least 0, got -9223372036854775808"),
    "float": (torch.arange(9.0)[None], r"positions must hold whole numbers \(int64\), got torch.float32"),
    "bool": (torch.ones(1, 9, dtype=torch.bool), r"positions must hold whole numbers \(int64\), got torch.bool"),
    "uint64": (torch.ones(1, 9, dtype=torch.uint64), r"positions must hold whole numbers \(int64\), got torch.uint64"),
    "a list": ([list(range(9))], r"positions must be a tensor of whole numbers \(int64\), got a list"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize(
    "make",
    [None, encodings.ALiBi, encodings.RoPE, encodings.FIRE, encodings.DynamicNTK, encodings.LogN, encodings.XPos],
    ids=lambda m: getattr(m, "__name__", "none"),
)
def test_positions_that_cannot_be_are_refused_in_one_line(make, spoiled):
    told = {"num_heads": 4, "head_dim": 8, "train_length": 8}
    encoding = make(**{n: told[n] for n in told if n in inspect.signature(make).parameters}) if make else None
    positions, words = SPOILED[spoiled]
    q, k, v = qkv()
    for call in (
        lambda: attend(q, k, v, encoding, tokens=with_fields(TokenInfo(), positions=positions)),
        lambda: statistics(q, k, encoding, positions),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            call()
        assert "\n" not in str(error.value)


def statistics(q, k, encoding, positions):
    return inspect.unwrap(lengthwise.attention.statistics)(
        q, k, encoding, tokens=with_fields(TokenInfo(), positions=positions)
    )


@pytest.mark.parametrize("documents", [torch.ones(1, 9), torch.ones(1, 9, dtype=torch.bool), [[0] * 9]])
def test_documents_that_are_no_whole_numbers(documents):
    with pytest.raises(ConfigError, match=r"documents must .* whole numbers"):
        attend(*qkv(), tokens=with_fields(TokenInfo(), documents=documents))


def test_the_highest_position_is_served():
    q, k, v = qkv()
    positions = torch.arange(2**53 - 9, 2**53)[None]
    near = attend(q, k, v, encodings.ALiBi(num_heads=4), tokens=TokenInfo(positions=positions - positions.min()))
    torch.testing.assert_close(
        attend(q, k, v, encodings.ALiBi(num_heads=4), tokens=TokenInfo(positions=positions)), near
    )


@pytest.mark.parametrize(
    ("q", "length", "words"),
    [
        (torch.arange(3.0)[None], 3, r"Span: q must hold whole numbers \(int64\), got torch.float32"),
        (torch.ones(1, 3, dtype=torch.bool), 3, "Span: q must hold .*got torch.bool"),
        ([[0, 1]], 3, "Span: q must be .*got a list"),
        (torch.arange(3)[None], 2**63, r"Span: length must be .* 0 to 2\^53, got 9223372036854775808"),
        (torch.arange(3)[None], -1, "Span: length must be .*got -1"),
    ],
)
def test_a_span_of_what_is_no_position(q, length, words, monkeypatch):
    monkeypatch.setattr(Span, "__init__", inspect.unwrap(Span.__init__))
    with pytest.raises(ConfigError, match=words):
        Span(q, torch.arange(3)[None], length)


@pytest.mark.parametrize("make", [encodings.Sinusoidal, encodings.Learned, encodings.RoPE, encodings.DynamicNTK])
@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_model_and_its_cache_refuse_them_too(make, spoiled):
    config = ModelConfig(d_model=8, num_layers=1, num_heads=2, d_ff=8)
    model = Decoder(config, choose(make), vocab_size=5, output_size=5, train_length=16)
    forward = inspect.unwrap(Decoder.forward)
    positions, words = SPOILED[spoiled]
    cache = KVCache(1)
    forward(model, torch.zeros(1, 2, dtype=torch.long), cache=cache)
    before = cache.length, cache.highest
    for given in ({}, {"cache": cache}):
        with torch.no_grad(), pytest.raises(ConfigError, match=words):
            forward(model, torch.zeros(1, 9, dtype=torch.long), positions=positions, **given)
    assert (cache.length, cache.highest) == before


# ---- any scale


def _with_one_scale(backend, scale, make, dtype, queries=7, **given):
    told = {"num_heads": 4, "head_dim": 8}
    torch.manual_seed(3)
    encoding = make(**{n: told[n] for n in told if n in inspect.signature(make).parameters}) if make else None
    q, k, v = (x.requires_grad_() for x in qkv(i=queries, dtype=dtype))
    learned = [] if encoding is None else list(encoding.parameters())
    with torch.set_grad_enabled(backend in LEARNING):
        out = attend(q, k, v, encoding, scale=scale, backend=backend, **given)
    if backend not in LEARNING:
        return out, []
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return out.detach(), torch.autograd.grad(out, [q, k, v, *learned], weight)


SCALES = [0.0, 1e-30, -1e-30, 1.0, -1.0, 1e4, -1e4, 1e6, 1e10, 1e20, 1e30, -1e30]


CALLS = {
    "all queries": {},
    "one query": {"queries": 1},
    "documents": {"tokens": TokenInfo(documents=torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]]))},
    "a window": {"window": 3},
}


@pairwise(
    scale=SCALES,
    make=[None, encodings.ALiBi, encodings.FIRE, encodings.RoPE, encodings.Shaw],
    backend=[name for name in BACKENDS if name not in ("reference", "flex")],
    dtype=[torch.float32, WIDE],
    call=CALLS,
)
def test_a_scale_of_any_size(scale, make, backend, dtype, call):
    """Where the reference is finite, so are all. A gradient of q, k or Shaw's keys has the scale as a factor, and with
    it the rounding of what it is a factor of: differences of numbers of about 100 at most."""
    given = CALLS[call]
    if make is encodings.Shaw and backend == "sdpa":
        return
    out, gradients = _with_one_scale(backend, scale, make, dtype, **given)
    wanted, exact = _with_one_scale("reference", scale, make, dtype, **given)
    eps = torch.finfo(dtype).eps
    assert wanted.isfinite().all()
    # Logits are of about 10 times the scale, and their rounding is what weights are relatively off by.
    off = 100 * eps * (1 + min(10 * abs(scale), 1 / eps)) if abs(scale) < 1 / eps else 100 * eps
    if abs(scale) < 1e5 or abs(scale) > 1e9:  # between them two keys may come close in some row
        torch.testing.assert_close(out, wanted, rtol=off, atol=off)
    if backend == "sdpa" and abs(scale) > 1e5:
        return  # torch's own gradients, from a logarithm of each row's sum that is rounded: not finite at 1e20
    for n, (a, b) in enumerate(zip(gradients, exact, strict=True)):
        assert b.isfinite().all()
        assert a.isfinite().all(), n
        if abs(scale) < 1e5 or abs(scale) > 1e9:
            factor = 1 + (abs(scale) if n < 2 or make is encodings.Shaw else 0)
            assert float((a - b).abs().max()) <= 100 * off * factor * (1 + float(b.abs().max())), n


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e30])
def test_a_scale_of_any_size_on_flex(scale):
    out, wanted = (_with_one_scale(name, scale, encodings.ALiBi, WIDE)[0].detach() for name in ("flex", "reference"))
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_equal_keys_share_a_query_whatever_the_scale():
    """Logits of 1e30 that are the same: weights of 1/3 each, and a gradient of v of as much."""
    q, k = torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4)
    v = torch.randn(1, 1, 3, 4).requires_grad_()
    for scale in (1e8, 1e30):
        for backend in set(LEARNING) - {"sdpa"}:  # see above
            out = attend(q, k, v, scale=scale, backend=backend, causal=False)
            torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out))
            (grad,) = torch.autograd.grad(out.sum(), v)
            torch.testing.assert_close(grad, torch.ones_like(v))


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.Tensor.tolist, "be a tensor .*, got a list"),
        (torch.Tensor.to_sparse, "be a dense tensor, got sparse_coo"),
    ],
)
def test_what_is_no_dense_tensor(name, change, words):
    given = dict(zip(("q", "k", "v"), qkv(), strict=True))
    given[name] = change(given[name])
    with pytest.raises(ConfigError, match=f"{name} must {words}"):
        attend(**given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("window", [9, 2**62 - 1])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_wider_than_the_text_hides_nothing(causal, window, backend):
    q, k, v = qkv(dtype=WIDE)
    require_backend(backend, AttentionModifiers(), Span.of(9, 7), Mask(7, 9, causal, None, window), q)
    wide, none = (attend(q, k, v, causal=causal, window=w, backend=backend) for w in (window, None))
    torch.testing.assert_close(wide, none, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("d", [1, 257, 300])
def test_head_dims_of_any_size_are_served_or_refused(backend, d):
    q, k, v = qkv(d=d, dtype=WIDE)
    require_backend(backend, AttentionModifiers(), Span.of(9, 7), Mask(7, 9), q)
    expected = lengthwise.attend(q, k, v, backend="reference")
    torch.testing.assert_close(lengthwise.attend(q, k, v, backend=backend), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_named_backend_that_cannot_serve_says_why_and_what_to_do(backend):
    """Every encoding: a backend either serves it or names its reason; nobody else steps in."""
    refused = 0
    for encoding in (
        encodings.CoPE(head_dim=8),
        encodings.DAPE(num_heads=4, train_length=9),
        encodings.Shaw(head_dim=8),
    ):
        q, k, v = qkv(i=9)
        x = q.transpose(1, 2).flatten(2)
        span, mask = Span.of(9), Mask(9, 9)
        modifiers = encoding.modifiers(span)
        reason = BACKENDS[backend].unsupported_reason(modifiers, span, mask, q)
        if reason:
            refused += 1
            with pytest.raises(
                ConfigError, match=re.escape(f"backend {backend!r} does not support this call: {reason}")
            ) as error:
                lengthwise.attend(q, k, v, encoding, backend=backend, tokens=TokenInfo(x=x))
            assert "use backend='auto'" in str(error.value) and "\n" not in str(error.value)
        else:
            assert plan(modifiers, span, mask, q, backend=backend).backend == backend
            assert lengthwise.attend(q, k, v, encoding, backend=backend, tokens=TokenInfo(x=x)).isfinite().all()
    assert not refused or backend != "reference"


@pytest.mark.parametrize("backend", [None, 3, ["fused"]])
def test_a_backend_that_is_no_name(backend):
    with pytest.raises(ConfigError, match=r"there is no backend .*; available: auto, fused, "):
        inspect.unwrap(check_backend)(backend)


def test_a_backend_that_does_not_exist():
    q, _, _ = qkv()
    with pytest.raises(ConfigError, match=r"there is no backend 'fussed'.*fused.*available: auto, "):
        plan(AttentionModifiers(), Span.of(9, 7), Mask(7, 9), q, backend="fussed")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_positions_and_documents_of_any_whole_kind(dtype, backend):
    q, k, v = qkv(dtype=WIDE)
    alibi, p = encodings.ALiBi(num_heads=4), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    ids = torch.tensor([[7, 7, 7, 7, 3, 3, 3, 3, 3]])
    require_backend(backend, alibi.modifiers(Span.of(9, 7)), Span.of(9, 7), Mask(7, 9, True, ids), q)
    out = [
        attend(q, k, v, alibi, tokens=with_fields(TokenInfo(), positions=x, documents=y), backend=backend)
        for x, y in ((p, ids), (p.to(dtype), ids.to(dtype)))
    ]
    assert torch.equal(*out)


@pytest.mark.parametrize(
    "make", [None, encodings.ALiBi, encodings.RoPE, encodings.FIRE], ids=lambda m: getattr(m, "__name__", "none")
)
@pytest.mark.parametrize("backend", LEARNING)
def test_negated_memory(backend, make):
    """The imaginary part of a conjugate shares memory with the number itself, and has a bit that negates it."""
    told = {"num_heads": 2, "head_dim": 4}
    encoding = make(**{n: told[n] for n in told if n in inspect.signature(make).parameters}).double() if make else None
    torch.manual_seed(0)
    weight = torch.randn(1, 2, 5, 4, dtype=WIDE)
    results = []
    for negate in (torch._neg_view, torch.neg):
        q, k, v = (torch.randn(1, 2, 5, 4, dtype=WIDE, generator=torch.Generator().manual_seed(n)) for n in range(3))
        inputs = [negate(x).requires_grad_() for x in (q, k, v)]
        out = attend(*inputs, encoding, backend=backend)
        results.append([out, *torch.autograd.grad(out, inputs, negate(weight))])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", LEARNING)
def test_a_table_of_negated_memory(backend):
    q, k, v = qkv(h=2, g=2, i=5, j=5, dtype=WIDE)
    table = torch.randn(2, 5, dtype=WIDE)
    outs = []
    for negate in (torch._neg_view, torch.neg):
        modifiers = AttentionModifiers(terms=(ToeplitzBias(negate(table)),))
        require_backend(backend, modifiers, Span.of(5), Mask(5, 5), q)
        outs.append(plan(modifiers, Span.of(5), Mask(5, 5), q, backend=backend)(q, k, v, scale=0.3))
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-12)


def test_x_must_be_a_tensor():
    with pytest.raises(ConfigError, match=r"x must be a tensor \[batch, tokens, d_model\] or None, got a ndarray"):
        attend(*qkv(), encodings.ALiBi(num_heads=4), tokens=TokenInfo(x=np.zeros((2, 9, 8))))


def test_a_nested_tensor_is_refused():
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 4), torch.randn(2, 5, 4)])
    with pytest.raises(ConfigError, match=r"q must be a dense tensor, got a nested tensor"):
        attend(nested, nested, nested)
