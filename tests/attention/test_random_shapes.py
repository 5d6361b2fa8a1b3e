"""Every backend against the reference on random shapes and random sums of forms: the output and every gradient."""

import itertools
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from lengthwise import native
from lengthwise.attention import BACKENDS, Mask, gradients_unsupported_reason, plan
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
    Term,
    ToeplitzBias,
)
from lengthwise.positions import consecutive
from lengthwise.span import Span

WIDE = torch.float64
BOTH_WAYS, ONE_WAY = ("table", "query", "content", "key", "dense"), ("pieces", "cumulative")
TERMS = {  # `fused` once more with those that the most encodings are of
    "fused": ("table", "query", "content", "key", "pieces"), "fused, no vectors": ("table", "pieces"),
    "sdpa": BOTH_WAYS + ONE_WAY, "reference": BOTH_WAYS + ONE_WAY,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is asked, all that an example is printed as; the numbers follow from `seed`."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    dim: int
    causal: bool
    window: int | None
    documents: str
    positions: str
    rows: int  # of positions and documents: 1, or one for each row of the batch
    terms: tuple[str, ...]
    rotation: str
    gain: bool
    values: int
    logit_transform: bool
    heads_last: bool
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch, kv_heads, causal = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        draw(st.sampled_from([True, True, False])),
    )
    keys = draw(st.one_of(st.integers(1, 12), st.integers(1, 150)))
    # A form that a backend does not know hides those beside it, so sums of all would seldom reach `fused`.
    known_to = draw(st.sampled_from([*TERMS]))
    names = [name for name in TERMS[known_to] if causal or name in BOTH_WAYS]
    sums = [*itertools.combinations_with_replacement(names, draw(st.integers(0, 3)))]
    return Case(
        batch=batch,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        queries=draw(st.one_of(st.just(keys), st.integers(1, keys), st.integers(1, min(4, keys)))),
        keys=keys,
        dim=draw(st.integers(1, 24)),
        causal=causal,
        window=draw(st.one_of(st.none(), st.none(), st.integers(1, keys + 2))),
        documents=draw(st.sampled_from(["", "", "packed", "in turns", "padded"])),
        positions=draw(st.sampled_from(["", "", "gaps", "restart", "no order", "far"])),
        rows=draw(st.sampled_from([1, batch])),
        terms=draw(st.sampled_from(sums)),
        rotation=draw(st.sampled_from(["", "", "interleaved", "half", "polar"])),
        gain=draw(st.booleans()),
        values=draw(st.sampled_from([0, 0, 1, 2])) if known_to == "reference" else 0,
        logit_transform=known_to == "reference" and draw(st.sampled_from([False, False, True])),
        heads_last=draw(st.booleans()),
        seed=draw(st.integers(0, 2**20)),
    )


@dataclass
class Numbers:
    """The tensors of a case in float64; `leaves` are what gradients are asked of."""

    case: Case
    leaves: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        c = self.case
        self.random = torch.Generator().manual_seed(c.seed)
        ids = {
            "": None,
            "packed": self.whole(1, 12).cumsum(1) // 11,
            "in turns": (torch.arange(c.keys) // 3 % 2).expand(c.rows, -1),
            "padded": (torch.arange(c.keys) >= self.whole(0, c.keys, 1)).long() - 1,
        }[c.documents]
        self.mask = Mask(c.queries, c.keys, c.causal, ids, c.window)
        k = {
            "": None if ids is None else torch.arange(c.keys)[None],
            "gaps": self.whole(0, 4).cumsum(1),
            "restart": None if ids is None else consecutive(ids),
            "no order": self.whole(0, c.keys),
            "far": (torch.arange(c.keys) + 10**9 * (torch.arange(c.keys) > c.keys // 2)).expand(c.rows, -1),
        }[c.positions]
        whole = k is None
        k = torch.arange(c.keys)[None] if k is None else k
        q = k[:, c.keys - c.queries :]
        self.span = Span.of(c.keys, c.queries) if whole else Span(q, k, int(k.max()) + 1)
        self.inputs = [self.normal(c.batch, h, t, c.dim) for h, t in self._heads()]
        self.weight = self.normal(c.batch, c.heads, c.queries, c.dim)
        self.modifiers = AttentionModifiers(
            rotation=self.rotation() if c.rotation and c.dim > 1 else None,
            terms=tuple(self.term(name) for name in self._once(c.terms)),
            values=tuple(RelativeValues(self.leaf(c.heads, n, c.dim), first) for n, first in self._tables(c.values)),
            logit_transform=LogitTransform(lambda x, *_: 2 * (x / 2).tanh(), bidirectional=True)
            if c.logit_transform
            else None,
            gain=QueryGain(1 + 0.3 * self.leaf(*self.one_or(c.batch, c.heads), c.queries), bidirectional=True)
            if c.gain
            else None,
        )

    def _heads(self) -> list[tuple[int, int]]:
        c = self.case
        return [(c.heads, c.queries), (c.kv_heads, c.keys), (c.kv_heads, c.keys)]

    def _once(self, names: tuple[str, ...]) -> list[str]:
        """Pieces once: a backend may have room for one."""
        return [name for n, name in enumerate(names) if name != "pieces" or "pieces" not in names[:n]]

    def _tables(self, count: int) -> list[tuple[int, int]]:
        """(columns, first) of some tables over distances."""
        keys = self.case.keys
        high = keys // 2 if self.case.causal else -1
        return [(self.number(1, keys + 3), self.number(-keys - 2, high)) for _ in range(count)]

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.random))

    def whole(self, low: int, high: int, columns: int | None = None) -> Tensor:
        return torch.randint(low, high + 1, (self.case.rows, columns or self.case.keys), generator=self.random)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=WIDE, generator=self.random)

    def leaf(self, *shape: int) -> Tensor:
        self.leaves.append(self.normal(*shape).requires_grad_())
        return self.leaves[-1]

    def one_or(self, *sizes: int) -> list[int]:
        return [size if self.number(0, 1) else 1 for size in sizes]

    def rotation(self) -> Rotation:
        c = self.case
        polar = c.rotation == "polar"
        pairs, rows = c.dim if polar else self.number(1, c.dim // 2), c.rows
        shapes = [(rows, *self.one_or(h), t, pairs) for h, t in ((c.heads, c.queries), (c.kv_heads, c.keys))]
        gain = [0.5 + self.normal(*shape).sigmoid() if self.number(0, 1) else None for shape in shapes]
        made = self.leaf if self.number(0, 1) else self.normal  # a kernel may rotate by itself where nothing is learned
        angles = [made(*shape) for shape in shapes]
        layout = "half" if c.rotation == "half" else "interleaved"
        return Rotation(*angles, *gain, layout=layout, polar=polar)

    def term(self, name: str) -> Term:
        c = self.case
        ((n, first),) = self._tables(1)
        match name:
            case "table":
                return ToeplitzBias(self.leaf(*self.one_or(c.heads), n), first)
            case "query":
                vector = self.leaf(c.heads, c.dim) if self.number(0, 1) else None
                return RelativeKeyBias(self.leaf(*self.one_or(c.heads), n, c.dim), first, vector)
            case "content":
                width = self.number(1, 20)
                return ContentBias(
                    self.leaf(c.batch, c.heads, c.queries, width), self.leaf(*self.one_or(c.heads), n, width), first
                )
            case "key":
                return KeyBias(self.leaf(c.heads, c.dim))
            case "cumulative":
                return CumulativeBias(self.leaf(*self.one_or(c.batch, c.heads), c.keys))
            case "dense":
                return DenseBias(self.leaf(*self.one_or(c.batch, c.heads), c.queries, c.keys), bidirectional=True)
        return self.pieces(n)

    def pieces(self, n: int) -> PiecewiseLinearBias:
        c = self.case
        u, w = self.leaf(n), self.leaf(self.span.q.shape[0], c.queries)
        with torch.no_grad():  # growing as FIRE's, or in no order
            if self.number(0, 1):
                u.copy_(torch.log1p(torch.arange(n, dtype=WIDE)))
                w.copy_(1 / (1 + torch.log1p(self.span.q.clamp(min=3).to(WIDE))))
            # Knots lie between the coordinates, where rounding to float32 moves none past a knot.
            x = (u[self.span.distance().clamp(0, n - 1)] * w[..., None]).unique()
            between = ((x[1:] + x[:-1]) / 2)[x[1:] - x[:-1] > 1e-4]
            some = torch.randperm(len(between), generator=self.random)[: self.number(0, 40)]
            knots = between[some].sort().values
        pieces = len(knots) + 1
        heads = self.one_or(c.heads)
        return PiecewiseLinearBias(self.leaf(*heads, pieces), self.leaf(*heads, pieces), knots, u, w)

    def answers(self, backend: str, dtype: torch.dtype) -> list[Tensor]:
        """The output and the gradients of q, k, v and of every number of the effect, where the backend has any."""
        learns = gradients_unsupported_reason(backend, "cpu") is None
        given = [x.to(dtype).requires_grad_(learns) for x in self.inputs]
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) if self.case.heads_last else x for x in given)
        with torch.set_grad_enabled(learns):
            out = plan(self.modifiers, self.span, self.mask, q, backend=backend)(q, k, v, scale=self.case.dim**-0.5)
        assert out.dtype == dtype
        if not learns:
            return [out]
        # The graph of the effect itself is used again by the next backend.
        leaves = [*given, *self.leaves]
        gradients = torch.autograd.grad(out, leaves, self.weight.to(dtype), retain_graph=True, allow_unused=True)
        return [out, *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True))]


QUICK = [
    name for name in BACKENDS if not gradients_unsupported_reason(name, "cpu")
]  # FlexAttention traces every sum of forms anew


def require_equal(case: Case, backends: list[str] = QUICK) -> None:
    numbers = Numbers(case)
    wanted = numbers.answers("reference", WIDE)
    size = max(1.0, *(x.abs().max().item() for x in wanted if x.numel()))
    for backend in backends:
        for dtype, close in ((WIDE, 1e-11), (torch.float32, 1e-5)):
            if BACKENDS[backend].unsupported_reason(
                numbers.modifiers, numbers.span, numbers.mask, numbers.inputs[0].to(dtype)
            ):
                continue
            got = numbers.answers(backend, dtype)
            for n, (a, b) in enumerate(zip(got, wanted[: len(got)], strict=True)):
                assert a.shape == b.shape
                off = (a.to(WIDE) - b).abs().max().item() if b.numel() else 0.0
                assert off <= close * size, f"{backend} in {dtype}: answer {n} is {off:.1e} off"


@pytest.mark.medium
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_any_shape_and_any_sum_of_forms(case):
    require_equal(case)


@pytest.mark.slow
@settings(max_examples=2000, derandomize=False, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_many_more_that_are_others_each_time(case):
    require_equal(case)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_any_shape_and_any_sum_of_forms_by_flex_attention(case):
    require_equal(case, ["flex"])


@pytest.mark.medium
def test_every_form_reaches_every_backend_that_knows_it():
    """Otherwise the tests above would compare the reference with itself."""
    seen: dict[str, set[str]] = {name: set() for name in BACKENDS}

    @settings(max_examples=400, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(cases())
    def look(case: Case) -> None:
        numbers = Numbers(case)
        modifiers = numbers.modifiers
        forms = [modifiers.rotation, *modifiers.terms, *modifiers.values, modifiers.logit_transform, modifiers.gain]
        for backend, module in BACKENDS.items():
            if not module.unsupported_reason(modifiers, numbers.span, numbers.mask, numbers.inputs[0].float()):
                seen[backend] |= {type(form).__name__ for form in forms if form}

    look()
    names = {form.__name__ for form in (Rotation, ToeplitzBias, PiecewiseLinearBias, RelativeKeyBias, ContentBias,
                                        KeyBias, CumulativeBias, DenseBias, RelativeValues, LogitTransform,
                                        QueryGain)}  # fmt: skip
    assert seen["reference"] == names
    assert seen["sdpa"] == seen["flex"] == names - {"RelativeValues", "LogitTransform"}
    if not native.unsupported_reason():
        assert seen["fused"] == names - {"DenseBias", "LogitTransform"}
