"""The blocked backend against the reference: every form and their sums, over the borders of its blocks, and in little memory."""

import dataclasses
import itertools
import math
import subprocess
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lengthwise import attend, encodings
from lengthwise.attention import BACKENDS, Mask, TokenInfo, plan
from lengthwise.attention.backends.blocked.blocks import _LOGITS, _ROWS
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    LogitTransform,
    PiecewiseLinearBias,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    ToeplitzBias,
)
from lengthwise.span import Span
from tests.pairwise import pairwise

blocked, fused, reference = (BACKENDS[name] for name in ("blocked", "fused", "reference"))

B, H, G, D = 2, 4, 2, 6


BLOCKS = {"one block": (64, 1 << 19), "blocks of 3 queries of one row of the batch": (3, 1)}


@pytest.fixture(params=BLOCKS)
def blocks(request, monkeypatch):
    small(monkeypatch, *BLOCKS[request.param])


def small(monkeypatch, rows, logits=1):
    monkeypatch.setitem(_ROWS, "cpu", rows)
    monkeypatch.setitem(_LOGITS, "cpu", logits)


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64).to(leaf.dtype).requires_grad_()


leaf.dtype = torch.float64


def narrow(monkeypatch):
    monkeypatch.setattr(leaf, "dtype", torch.float32)


def progressive(span, heads=H):
    tensors = [leaf(heads, 3), leaf(heads, 3), leaf(span.distance_bound), leaf(*span.q.shape)]
    return PiecewiseLinearBias(*tensors[:2], torch.tensor([-0.3, 0.4], dtype=leaf.dtype), *tensors[2:]), tensors


def several(span):
    """Two of each."""
    (one, of_one), (two, of_two) = progressive(span), progressive(span, 1)
    t1, t2, rows, long = leaf(H, 5), leaf(1, 40), leaf(1, 5, D), leaf(H, 90, D)
    vector, values, more, i, j = leaf(H, D), leaf(H, 5, D), leaf(1, 30, D), span.q.shape[1], span.k.shape[1]
    d1, d2, d3 = leaf(1, H, i, j), leaf(B, 1, 1, j), leaf(B, H, i, 1)
    c1, t3, c2, t4 = leaf(B, H, i, 3), leaf(1, 5, 3), leaf(B, H, i, 2), leaf(H, 120, 2)
    modifiers = AttentionModifiers(
        terms=(
            ToeplitzBias(t1), ToeplitzBias(t2, -9), one, two, RelativeKeyBias(rows), RelativeKeyBias(long, -9, vector),
            KeyBias(vector), KeyBias(vector), ContentBias(c1, t3), ContentBias(c2, t4, -60),
            DenseBias(d1), DenseBias(d2), DenseBias(d3),
        ),
        values=(RelativeValues(values), RelativeValues(more, -7)),
    )  # fmt: skip
    return modifiers, [t1, t2, *of_one, *of_two, rows, long, vector, values, more, d1, d2, d3, c1, t3, c2, t4]


def cumulative(span):
    one, two, table = leaf(B, H, span.k.shape[1]), leaf(1, 1, span.k.shape[1]), leaf(H, 5)
    return AttentionModifiers(terms=(CumulativeBias(one), ToeplitzBias(table), CumulativeBias(two))), [one, two, table]


def bidirectional(span):
    table, rows, long, values, vector = leaf(H, 6), leaf(1, 5, D), leaf(H, 90, D), leaf(H, 4, D), leaf(H, D)
    terms = (ToeplitzBias(table, -3), RelativeKeyBias(rows, -2), RelativeKeyBias(long, -30, vector), KeyBias(vector))
    return AttentionModifiers(terms=terms, values=(RelativeValues(values, -2),)), [table, rows, long, values, vector]


def rewritten(span, way=False):
    """A rewrite with tensors of its own, that goes by content, distance and what is seen, with every other form beside it."""
    a, b, dense, gain, values = (
        leaf(H, 1, 1),
        leaf(1),
        leaf(1, H, *span.distance().shape[1:]),
        leaf(B, H, span.q.shape[1]),
        leaf(1, 5, D),
    )
    one, of_one = progressive(span)
    total = leaf(B, H, span.k.shape[1])
    (rows, i), j = span.q.shape, span.k.shape[1]
    table, angle_q, angle_k = leaf(H, 6), leaf(rows, 1, i, 2), leaf(rows, G, j, 2)

    def function(logits, q, visible, scale, some):
        shares = logits.masked_fill(~visible, -math.inf).softmax(-1)
        near = (-(b.to(q.dtype) ** 2) * some.distance().abs()).exp()[:, None]
        return logits + a.to(q.dtype).sin() * shares.cumsum(-1) + near * q.square().mean(-1, keepdim=True) * scale

    modifiers = AttentionModifiers(
        rotation=Rotation(angle_q, angle_k, torch.full((1, 1, 1, 2), 1.2), 0.9),
        terms=(
            DenseBias(dense, bidirectional=way),
            ToeplitzBias(table, -2),
            ContentBias(gain[..., None], values[..., :1], -2),
            *(() if way else (one, CumulativeBias(total))),
        ),
        values=(RelativeValues(values, -2),),
        logit_transform=LogitTransform(function, bidirectional=way),
        gain=QueryGain(gain, bidirectional=way),
    )
    return modifiers, [a, b, dense, gain, values, table, angle_q, angle_k, *(() if way else (*of_one, total))]


def turned(span):
    table, gain = leaf(H, 5), leaf(1, H, span.q.shape[1])
    (rows, i), j = span.q.shape, span.k.shape[1]
    angle_q, angle_k, vector = leaf(rows, H, i, 2), leaf(rows, 1, j, 2), leaf(H, D)
    terms = (ToeplitzBias(table, -2), KeyBias(vector), RelativeKeyBias(leaf(1, 5, D), -2))
    turn = Rotation(angle_q, angle_k, 1.3, 0.7, "half")
    modifiers = AttentionModifiers(rotation=turn, gain=QueryGain(gain, bidirectional=True), terms=terms)
    return modifiers, [table, gain, angle_q, angle_k, vector, terms[2].table]


def alone(make):
    return lambda span: (lambda term, learned: (AttentionModifiers(terms=(term,)), learned))(*make(span))


def of(form, *shape, **given):
    def make(span):
        table = leaf(*shape)
        return form(table, **given), [table]

    return alone(make)


CASES = {
    "toeplitz": of(ToeplitzBias, H, 5),
    "toeplitz, far off": of(ToeplitzBias, H, 5, first=50),
    "toeplitz, behind": of(ToeplitzBias, H, 5, first=-50),
    "toeplitz of one entry": of(ToeplitzBias, 1, 1),
    "progressive": alone(progressive),
    "query relative": of(RelativeKeyBias, 1, 5, D),
    "query relative, a long table": of(RelativeKeyBias, H, 400, D, first=-100),
    "content relative": lambda span: (lambda x, t: (AttentionModifiers(terms=(ContentBias(x, t, -1),)), [x, t]))(
        leaf(B, H, span.q.shape[1], 3), leaf(1, 4, 3)
    ),
    "values": lambda span: (lambda x: (AttentionModifiers(values=(RelativeValues(x),)), [x]))(leaf(H, 5, D)),
    "several of each": several,
    "turned": turned,
    "cumulative": cumulative,
    "both ways": bidirectional,
    "rewritten": rewritten,
    "rewritten both ways": lambda span: rewritten(span, way=True),
    "nothing": lambda span: (AttentionModifiers(), []),
}


BOTH_WAYS = {
    "toeplitz, behind",
    "query relative, a long table",
    "content relative",
    "turned",
    "both ways",
    "rewritten both ways",
    "nothing",
}


SCENES = 19


def scenes(keys, queries):
    """Spans and masks; more rows of the batch than blocks are long."""
    irregular = torch.randint(0, keys + 4, (B, keys))
    restart = (torch.arange(keys) % 4)[None].expand(B, -1)
    documents = torch.stack([torch.arange(keys) // 4, torch.arange(keys) // 3])
    own = keys - queries
    plain, some = Span.of(keys, queries), Span(irregular[:, own:], irregular, keys + 4)
    for causal, window in itertools.product((True, False), (None, 1, 3, 100)):
        yield plain, Mask(queries, keys, causal, window=window)
        yield some, Mask(queries, keys, causal, documents, window)
    yield plain, Mask(queries, keys, True, documents[:1])
    yield Span(restart[:, own:], restart, 4), Mask(queries, keys, True, documents)
    yield Span(irregular[:1, own:], irregular[:1], keys + 4), Mask(queries, keys)


def output_and_gradients(backend, modifiers, learned, span, mask, q, k, v, weight):
    out = backend.prepare(modifiers, span, mask)(q, k, v, scale=0.4)
    grads = torch.autograd.grad((out * weight).sum(), [q, k, v, *learned], allow_unused=True, retain_graph=True)
    return [out, *grads]


@pairwise(name=CASES, scene=range(SCENES), size=[(1, 1), (7, 7), (9, 1), (11, 4)], block=BLOCKS)
def test_output_and_every_gradient_agree(name, scene, size, block, monkeypatch):
    keys, queries = size
    torch.manual_seed(keys + queries)
    small(monkeypatch, *BLOCKS[block])
    span, mask = list(scenes(keys, queries))[scene]
    modifiers, learned = CASES[name](span)
    q, k, v = leaf(B, H, queries, D), leaf(B, G, keys, D), leaf(B, G, keys, D)
    if modifiers.causal_forms and not mask.causal:  # it has no other masks
        mask = dataclasses.replace(mask, causal=True)
    asked = modifiers, learned, span, mask, q, k, v, torch.randn_like(q)
    for got, wanted in zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True):
        assert (got is None) == (wanted is None)
        if got is not None:
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_all_scenes_are_asked():
    assert len(list(scenes(7, 7))) == SCENES


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_asked_with_a_window_and_both_ways_where_it_can(name):
    asked = [mask for span, mask in scenes(7, 7) if mask.causal or CASES[name](span)[0].bidirectional]
    assert any(mask.window_hides_keys for mask in asked)
    assert any(not mask.causal for mask in asked) == (name in BOTH_WAYS)


@pytest.mark.parametrize("name", CASES)
def test_blocks_as_they_are_in_float32(name, monkeypatch):
    """More queries than one block has; at most three times as far from float64 as the reference in float32.

    Over several draws: a gradient of few numbers may be very close to float64 by chance, in one draw and on one processor.
    """
    tokens = 130
    span, mask = Span.of(tokens), Mask(tokens, tokens, documents=torch.arange(tokens)[None] // 100, window=90)
    draws = range(4)

    def found(backend, seed):
        torch.manual_seed(seed)
        modifiers, learned = CASES[name](span)
        q, k, v, weight = (leaf(B, heads, tokens, D) for heads in (H, G, G, H))
        return output_and_gradients(backend, modifiers, learned, span, mask, q, k, v, weight)

    exact = [found(reference, seed) for seed in draws]
    narrow(monkeypatch)
    errors = []
    for seed in draws:
        each = zip(found(blocked, seed), found(reference, seed), exact[seed], strict=True)
        wanted = [(a, b, value) for a, b, value in each if value is not None]
        assert all(a.dtype == torch.float32 for a, _, _ in wanted)
        errors.append([[(x.double() - value).square().mean().item() for x in (a, b)] for a, b, value in wanted])
    for error, allowed in torch.tensor(errors).mean(0).sqrt().tolist():
        assert error <= 3 * allowed + 1e-8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype, monkeypatch):
    torch.manual_seed(0)
    small(monkeypatch, 16)
    span, mask = Span.of(40), Mask(40, 40)
    for name in ("several of each", "turned", "rewritten"):
        modifiers, _ = CASES[name](span)
        q, k, v = (
            torch.randn(B, H, 40, D).to(dtype),
            torch.randn(B, G, 40, D).to(dtype),
            torch.randn(B, G, 40, D).to(dtype),
        )
        out = blocked.prepare(modifiers, span, mask)(q, k, v, scale=0.4)
        exact = reference.prepare(modifiers, span, mask)(q.double(), k.double(), v.double(), scale=0.4)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "consecutive"),
    [
        ("toeplitz", True), ("toeplitz", False), ("progressive", True), ("several of each", False), ("rewritten", True),
        *(pytest.param(*slow, marks=pytest.mark.slow)
          for slow in (("progressive", False), ("several of each", True), ("rewritten", False))),
    ],
)  # fmt: skip
def test_gradcheck(name, consecutive, monkeypatch):
    torch.manual_seed(0)
    small(monkeypatch, 2)
    span = Span.of(4, 3) if consecutive else Span(torch.tensor([[3, 1, 5]] * B), torch.tensor([[0, 3, 1, 5]] * B), 6)
    modifiers, learned = CASES[name](span)
    q, k, v = leaf(B, H, 3, D), leaf(B, G, 4, D), leaf(B, G, 4, D)
    run = blocked.prepare(modifiers, span, Mask(3, 4))
    assert torch.autograd.gradcheck(lambda q, k, v, *_: run(q, k, v, scale=0.4), (q, k, v, *learned), fast_mode=True)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("number", [-0.0, -math.inf, math.nan, math.inf])
def test_numbers_in_a_bias_do_what_they_do_in_the_reference(number):
    torch.manual_seed(0)
    bias = torch.randn(1, H, 7, 7, dtype=torch.float64)
    bias[:, 1, 4, 2] = number
    bias[:, 2, 5, :] = number  # a whole row
    bias[:, 3, 2, 5] = number  # where nothing is seen
    bias.requires_grad_()
    span, mask, modifiers = Span.of(7), Mask(7, 7), AttentionModifiers(terms=(DenseBias(bias),))
    q, k, v = leaf(B, H, 7, D), leaf(B, G, 7, D), leaf(B, G, 7, D)
    asked = modifiers, [bias], span, mask, q, k, v, torch.randn_like(q)
    for n, (got, wanted) in enumerate(
        zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True)
    ):
        if n == 3:  # of v: there the reference has NaN for keys that the query with NaN does not see, too
            wanted = torch.where(wanted.isnan() & ~got.isnan(), got, wanted)
            assert got[:, :, 0].isnan().any() == wanted[:, :, 0].isnan().any()
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12, equal_nan=True)


def test_large_logits_lose_no_digits():
    """The weights of the backward pass are those of the forward pass, and not exp(logits - lse) with a rounded lse."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 80, D, requires_grad=True) for _ in range(3))
    table = torch.full((1, 80), 3e4, requires_grad=True)
    asked = (
        AttentionModifiers(terms=(ToeplitzBias(table),)),
        [table],
        Span.of(80),
        Mask(80, 80),
        q,
        k,
        v,
        torch.randn_like(q),
    )
    for got, wanted in zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=2e-5)


class Largest(TorchDispatchMode):
    """The most numbers that a tensor had, and the most that were alive at a time, of tensors made meanwhile."""

    def __init__(self):
        super().__init__()
        self.largest, self.alive, self.most, self.known = 0, 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                if storage._cdata not in self.known:
                    self._count(storage, storage.nbytes() // x.element_size())
        return out

    def _count(self, storage, numbers):
        self.known.add(storage._cdata)
        self.largest, self.alive = max(self.largest, numbers), self.alive + numbers
        self.most = max(self.most, self.alive)
        weakref.finalize(storage, self._gone, storage._cdata, numbers)

    def _gone(self, key, numbers):
        self.known.discard(key)
        self.alive -= numbers


LENGTH = 1024
LONG = {
    "ALiBi": encodings.ALiBi(num_heads=2),
    "T5": encodings.T5(num_heads=2),
    "FIRE": encodings.FIRE(num_heads=2),
    "Shaw": encodings.Shaw(head_dim=4),
    "TransformerXL": encodings.TransformerXL(num_heads=2, head_dim=4, d_model=8),
    "CoPE": encodings.CoPE(head_dim=4),
    "DAPE": encodings.DAPE(num_heads=2, train_length=64, width=4),
}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_no_tensor_is_as_large_as_queries_times_keys(name, restart):
    """Not for one head of one row of the batch, forward or backward."""
    encoding = LONG[name]
    q, k, v = (torch.randn(1, 2, LENGTH, 4, requires_grad=True) for _ in range(3))
    documents = (torch.arange(LENGTH) // 600)[None] if restart else None
    wide = 8 if name == "DAPE" else 1  # numbers of a pair, inside its MLP
    with Largest() as made:
        attend(q, k, v, encoding, tokens=TokenInfo(documents=documents), backend="blocked").square().sum().backward()
    assert all(p.grad is not None for p in (q, k, v, *encoding.parameters()))
    assert LENGTH * 64 <= made.largest <= wide * 2.2 * 2 * LENGTH * 64 < wide * LENGTH**2
    for p in encoding.parameters():
        p.grad = None


@pytest.mark.parametrize("name", LONG)
def test_memory_grows_as_the_length_does(name):
    """Twice the length: twice the numbers alive at a time, forward or backward, and not four times."""
    most, encoding = [], LONG[name]
    for length in (LENGTH // 2, LENGTH):
        q, k, v = (torch.randn(1, 2, length, 4, requires_grad=True) for _ in range(3))
        with Largest() as made:
            attend(q, k, v, encoding, backend="blocked").square().sum().backward()
        most.append(made.most)
    assert most[1] < 2.1 * most[0]
    for p in encoding.parameters():
        p.grad = None


@pytest.mark.parametrize("encoding", [None, encodings.RoPE(head_dim=4)], ids=["none", "RoPE"])
@pytest.mark.parametrize("given", ["documents", "fewer queries"])
def test_without_a_compiler_no_mask_is_as_large_as_queries_times_keys(given, encoding, monkeypatch):
    monkeypatch.setattr(fused, "unsupported_reason", lambda *asked: "there is no compiler")
    q, k, v = (torch.randn(1, 2, LENGTH + 64, 4, requires_grad=True) for _ in range(3))
    documents = (torch.arange(LENGTH + 64) // 600)[None] if given == "documents" else None
    with Largest() as made:
        attend(
            q if documents is not None else q[:, :, 64:], k, v, encoding, tokens=TokenInfo(documents=documents)
        ).sum().backward()
    assert made.largest <= 2.2 * 2 * (LENGTH + 64) * 64 < LENGTH**2


def test_the_count_of_numbers_sees_the_reference():
    q, k, v = (torch.randn(1, 2, LENGTH, 4) for _ in range(3))
    with Largest() as made:
        attend(q, k, v, LONG["ALiBi"], backend="reference")
    assert made.most > made.largest >= 2 * LENGTH**2


def test_two_runs_give_the_same_bits():
    torch.manual_seed(0)
    span, mask = Span.of(150), Mask(150, 150)
    for name in CASES:
        modifiers, learned = CASES[name](span)
        asked = modifiers, learned, span, mask, leaf(B, H, 150, D), leaf(B, G, 150, D), leaf(B, G, 150, D), 1.0
        one, other = (output_and_gradients(blocked, *asked) for _ in range(2))
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_autocast_leaves_precision_to_attention_backwards_too():
    q, k, v = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3))
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = attend(q, k, v, LONG["T5"], backend="blocked")
            found.append([out, *torch.autograd.grad(out.sum(), [q, k, v, LONG["T5"].weight])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["T5", "Shaw", "CoPE"])
def test_a_compiled_caller_goes_around_it(name):
    torch.manual_seed(0)
    span, mask, modifiers = Span.of(70), Mask(70, 70), LONG[name].modifiers(Span.of(70))
    run = blocked.prepare(modifiers, span, mask)
    q, k, v = (torch.randn(1, 2, 70, 4, requires_grad=True) for _ in range(3))
    found = []
    for caller in (lambda q, k, v: run(q.sin(), k, v, scale=0.5).cos(), None):
        caller = caller or torch.compile(lambda q, k, v: run(q.sin(), k, v, scale=0.5).cos(), backend="eager")
        out = caller(q, k, v)
        found.append([out, *torch.autograd.grad(out.sum(), [q, k, v], retain_graph=True)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.medium
def test_it_does_not_load_the_compiler():
    """torch._dynamo takes seconds to import."""
    program = """
import sys, torch
from lengthwise import attend, encodings
q = torch.randn(1, 2, 70, 4, requires_grad=True)
attend(q, q, q, encodings.T5(num_heads=2), backend="blocked").sum().backward()
with torch.no_grad():
    attend(q, q, q, encodings.CoPE(head_dim=4), backend="blocked")
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


def test_nothing_is_asked_of_what_does_not_learn():
    """A bias without gradient beside one with, and q alone."""
    span, mask, fixed, table = Span.of(5), Mask(5, 5), torch.randn(H, 5), leaf(H, 5)
    q, k, v = (torch.randn(B, H, 5, D) for _ in range(3))
    run = blocked.prepare(AttentionModifiers(terms=(ToeplitzBias(fixed), ToeplitzBias(table))), span, mask)
    assert not blocked.prepare(AttentionModifiers(terms=(ToeplitzBias(fixed),)), span, mask)(
        q, k, v, scale=1.0
    ).requires_grad
    (grad,) = torch.autograd.grad(run(q, k, v, scale=1.0).square().sum(), table)
    assert grad.any()


def test_it_has_no_second_derivative():
    q, k, v = (torch.randn(1, 1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    modifiers = AttentionModifiers(terms=(ToeplitzBias(leaf(1, 3)),))
    out = blocked.prepare(modifiers, Span.of(3), Mask(3, 3))(q, k, v, scale=1.0)
    (slope,) = torch.autograd.grad(out.sin().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="backend 'blocked' has no second derivative"):
        slope.square().sum().backward()


def test_auto_leaves_what_adds_nothing_to_torch(monkeypatch):
    monkeypatch.setattr(fused, "unsupported_reason", lambda *asked: "there is no compiler")
    q, span, mask = torch.zeros(1, 1, 3, 4), Span.of(3), Mask(3, 3)
    rewrite = AttentionModifiers(logit_transform=LogitTransform(lambda logits, *_: logits))
    assert plan(AttentionModifiers(), span, mask, q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, mask, q, backend="blocked").backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(3, 3, window=2), q).backend == "blocked"
    documents = torch.zeros(1, LENGTH, dtype=torch.long)
    assert plan(AttentionModifiers(), span, Mask(3, 3, documents=documents[:, :3]), q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, LENGTH, documents=documents), q).backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(1, LENGTH, documents=documents), q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, 2 * LENGTH), q).backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, LENGTH), q).backend == "sdpa"
    assert plan(rewrite, span, mask, q).backend == "blocked"
    assert plan(AttentionModifiers(values=(RelativeValues(torch.zeros(1, 2, 4)),)), span, mask, q).backend == "blocked"
    assert plan(AttentionModifiers(terms=(ToeplitzBias(torch.zeros(1, 3)),)), span, mask, q).backend == "blocked"


@pytest.mark.parametrize("how", ["columns", "every second", "expanded"])
def test_tensors_with_any_strides(how):
    torch.manual_seed(0)
    plain = {"columns": lambda x: x.mT.contiguous().mT, "every second": lambda x: torch.stack([x, x + 9], -1)[..., 0],
             "expanded": lambda x: x[:, :1].expand_as(x)}[how]  # fmt: skip
    q, k, v, bias = (plain(torch.randn(B, H, 5, 5, dtype=torch.float64)).requires_grad_() for _ in range(4))
    asked = AttentionModifiers(terms=(DenseBias(bias),)), [bias], Span.of(5), Mask(5, 5), q, k, v, torch.randn_like(q)
    for got, wanted in zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_pieces_without_a_warning(recwarn):
    """torch warns of what lies badly for its search, once a process unless it is told to always."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        q, k, v = torch.randn(3, 2, 2, 300, 16)
        attend(q, k, v, encodings.FIRE(num_heads=2), backend="blocked")
    finally:
        torch.set_warn_always(before)
    assert not [str(w.message) for w in recwarn if "contiguous" in str(w.message)]
