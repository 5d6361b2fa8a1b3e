"""One harness for the agreement of the attention backends with the reference: the output and every gradient.

A case names its forms in words, such as "table pieces sink", which FORMS explains. KERNELS are the backends, and the
variants of a backend that compute differently. MASKS, PLACES (positions and documents) and LENGTHS are the calls.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from lengthwise import native
from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.backends.blocked import blocks
from lengthwise.attention.fused import cpu
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    Form,
    KeyBias,
    LogitTransform,
    PiecewiseLinearBias,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    SinkLogit,
    Term,
    ToeplitzBias,
)
from lengthwise.positions import consecutive
from lengthwise.span import Span

WIDE = torch.float64


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call. The queries are the last of the keys."""

    queries: int
    keys: int
    batch: int = 2
    heads: int = 4
    groups: int = 2
    dim: int = 6


@dataclass
class Draw:
    """Random numbers; those of forms are leaves, whose gradients are compared."""

    sizes: Sizes
    span: Span
    dtype: torch.dtype = WIDE
    seed: int = 1
    leaves: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=WIDE, generator=self.generator, device="cpu").to(self.span.q.device)

    def leaf(self, *shape: int) -> Tensor:
        return self.as_leaf(self.normal(*shape))

    def as_leaf(self, x: Tensor) -> Tensor:
        self.leaves.append(x.detach().to(self.dtype).requires_grad_())
        return self.leaves[-1]


# ---- forms


def segments(draw: Draw, count: int, *, in_order: bool = True) -> PiecewiseLinearBias:
    """Continuous, as an MLP is. `in_order`: the distance features grow."""
    n, heads = draw.span.length, draw.sizes.heads
    feature = torch.log1p(0.3 * torch.arange(n, dtype=WIDE))
    scale = 1 / (1 + torch.log1p(draw.span.q.to(WIDE).clamp(min=100)))
    knots = torch.linspace(0.01, 0.9, count - 1, dtype=WIDE)
    slope = draw.leaf(heads, count)
    jumps = ((slope[:, :-1] - slope[:, 1:]) * knots).cumsum(1)
    intercept = draw.as_leaf(torch.cat([torch.zeros(heads, 1, dtype=WIDE), jumps], 1))
    feature = feature if in_order else draw.normal(n).sigmoid()
    return PiecewiseLinearBias(slope, intercept, knots.to(draw.dtype), draw.as_leaf(feature), draw.as_leaf(scale))


def jumping(draw: Draw, heads: int, count: int = 3) -> PiecewiseLinearBias:
    """Segments that do not meet, at random coordinates."""
    knots = torch.tensor([-0.3, 0.4], dtype=WIDE) if count == 3 else draw.normal(count - 1).sort().values
    lines = draw.leaf(heads, count), draw.leaf(heads, count)
    return PiecewiseLinearBias(
        *lines, knots.to(draw.dtype), draw.leaf(draw.span.distance_bound), draw.leaf(*draw.span.q.shape)
    )


def rotation(draw: Draw, query_heads: int, *gains: Any, layout: str = "interleaved") -> Rotation:
    s, (rows, i), j = draw.sizes, draw.span.q.shape, draw.span.k.shape[1]
    return Rotation(draw.leaf(rows, query_heads, i, 2), draw.leaf(rows, s.groups, j, 2), *gains, layout=layout)


def transform(draw: Draw) -> LogitTransform:
    """It depends on the content, the distances, and on which keys are visible, and has tensors of its own."""
    a, b = draw.leaf(draw.sizes.heads, 1, 1), draw.leaf(1)

    def function(logits: Tensor, q: Tensor, visible: Tensor, scale: float, span: Span) -> Tensor:
        shares = logits.masked_fill(~visible, -math.inf).softmax(-1)
        near = (-(b.to(q.dtype) ** 2) * span.distance().abs()).exp()[:, None]
        return logits + a.to(q.dtype).sin() * shares.cumsum(-1) + near * q.square().mean(-1, keepdim=True) * scale

    return LogitTransform(function, bidirectional=True)


S = Sizes
FORMS: dict[str, Callable[[Draw, S], Form]] = {
    # Tables over distances: as long as the distances; both ways and shorter; far from all distances; with one entry.
    "table": lambda draw, s: ToeplitzBias(draw.leaf(s.heads, draw.span.length)),
    "five": lambda draw, s: ToeplitzBias(draw.leaf(s.heads, 5)),
    "short": lambda draw, s: ToeplitzBias(draw.leaf(1, 9), -3),
    "forty": lambda draw, s: ToeplitzBias(draw.leaf(1, 40), -9),
    "far": lambda draw, s: ToeplitzBias(draw.leaf(s.heads, 5), 50),
    "behind": lambda draw, s: ToeplitzBias(draw.leaf(s.heads, 5), -50),
    "entry": lambda draw, s: ToeplitzBias(draw.leaf(1, 1)),
    # Piecewise linear biases.
    "pieces": lambda draw, s: segments(draw, 7),
    "many": lambda draw, s: segments(draw, 200),
    "crooked": lambda draw, s: segments(draw, 7, in_order=False),
    "jumps": lambda draw, s: jumping(draw, s.heads),
    "shared-jumps": lambda draw, s: jumping(draw, 1),
    "piece": lambda draw, s: jumping(draw, s.heads, 1),
    "two-pieces": lambda draw, s: jumping(draw, 1, 2),
    "thirty-pieces": lambda draw, s: jumping(draw, s.heads, 30),
    # Numbers for each pair, and running sums over the keys.
    "dense": lambda draw, s: DenseBias(draw.leaf(1, s.heads, s.queries, s.keys), bidirectional=True),
    "dense-keys": lambda draw, s: DenseBias(draw.leaf(s.batch, 1, 1, s.keys).expand(-1, -1, s.queries, -1)),
    "dense-shared": lambda draw, s: DenseBias(draw.leaf(1, 1, s.queries, s.keys), bidirectional=True),
    "sums": lambda draw, s: CumulativeBias(draw.leaf(s.batch, s.heads, s.keys)),
    "shared-sums": lambda draw, s: CumulativeBias(draw.leaf(1, 1, s.keys)),
    "head-sums": lambda draw, s: CumulativeBias(draw.leaf(1, s.heads, s.keys)),
    # Vectors of distances, multiplied by queries, and a vector multiplied by keys.
    "shaw": lambda draw, s: RelativeKeyBias(draw.leaf(1, 33, s.dim), -16),
    "vectors": lambda draw, s: RelativeKeyBias(draw.leaf(1, 5, s.dim)),
    "vectors-both-ways": lambda draw, s: RelativeKeyBias(draw.leaf(1, 5, s.dim), -2, draw.leaf(s.heads, s.dim)),
    "long": lambda draw, s: RelativeKeyBias(draw.leaf(s.heads, 90, s.dim), -9, draw.leaf(s.heads, s.dim)),
    "longest": lambda draw, s: RelativeKeyBias(draw.leaf(s.heads, 400, s.dim), -100),
    "all": lambda draw, s: RelativeKeyBias(draw.leaf(s.heads, draw.span.length, s.dim), 0, draw.leaf(s.heads, s.dim)),
    "ahead": lambda draw, s: RelativeKeyBias(draw.leaf(1, 2 * draw.span.length, s.dim), -draw.span.length),
    "distant": lambda draw, s: RelativeKeyBias(draw.leaf(1, 9, s.dim), draw.span.length // 2),
    "content": lambda draw, s: ContentBias(
        draw.leaf(s.batch, s.heads, s.queries, 3), draw.leaf(1, 12, 3), -1
    ),
    "wide-content": lambda draw, s: ContentBias(
        draw.leaf(s.batch, s.heads, s.queries, 2), draw.leaf(s.heads, 120, 2), -60
    ),
    "key": lambda draw, s: KeyBias(draw.leaf(s.heads, s.dim)),
    # Vectors of distances that are added to values.
    "values": lambda draw, s: RelativeValues(draw.leaf(1, 9, s.dim), -4),
    "values-behind": lambda draw, s: RelativeValues(draw.leaf(s.heads, 5, s.dim)),
    "values-all": lambda draw, s: RelativeValues(draw.leaf(s.heads, draw.span.length, s.dim), 1),
    "rotation": lambda draw, s: rotation(draw, 1),
    "rotation-of-heads": lambda draw, s: rotation(draw, s.heads, 1.3, 0.7, layout="half"),
    "rotation-with-gains": lambda draw, s: rotation(draw, 1, torch.full((1, 1, 1, 2), 1.2), 0.9),
    "gain": lambda draw, s: QueryGain(draw.leaf(1, s.heads, s.queries), bidirectional=True),
    "gain-of-rows": lambda draw, s: QueryGain(draw.leaf(s.batch, s.heads, s.queries), bidirectional=True),
    "sink": lambda draw, s: SinkLogit(draw.leaf(s.heads)),
    "transform": lambda draw, s: transform(draw),
}  # fmt: skip
_FIELDS = {Rotation: "rotation", QueryGain: "gain", SinkLogit: "sink", LogitTransform: "logit_transform"}


def build(words: str, draw: Draw) -> AttentionModifiers:
    """Return the forms that the words name."""
    forms = [FORMS[word](draw, draw.sizes) for word in words.split() if word != "none"]
    return AttentionModifiers(
        terms=tuple(form for form in forms if isinstance(form, Term)),
        values=tuple(form for form in forms if isinstance(form, RelativeValues)),
        **{_FIELDS[type(form)]: form for form in forms if type(form) in _FIELDS},
    )


# Sums of forms that a kernel adds up in other ways than each alone.
SUMS = [
    "table short", "pieces table", "crooked short", "sums five shared-sums", "table pieces sink", "shaw content",
    "all key", "all table", "content pieces", "shaw table pieces", "shaw values", "all key values-all",
    "all values-all values", "sums all pieces values",
    "five jumps vectors", "rotation-of-heads five key", "gain rotation-of-heads five",
    "rotation-of-heads vectors-both-ways key",
    "five forty jumps shared-jumps vectors long key key content wide-content dense dense-keys dense-shared "
    "values-behind values",
    "five short vectors long key values", "table jumps vectors key dense gain-of-rows", "gain-of-rows five sink",
    "rotation-with-gains dense short content jumps sums values transform gain-of-rows",
    "rotation-with-gains dense-shared short content values transform gain-of-rows",
]  # fmt: skip
CASES = ["none", *FORMS, *SUMS]


# ---- kernels


@dataclass(frozen=True)
class Kernel:
    """A backend, the dtype in which it computes, and what is replaced to make it compute in another way."""

    backend: str
    dtype: torch.dtype = WIDE
    dim: int = 6
    target: int = -1  # of the C++ library
    block: tuple[int, int] | None = None  # queries and logits of a block
    longest: int = 310  # tokens, because small blocks are slow

    def unsupported(self, words: str) -> bool:
        """Whether the backend must say that it does not support a case."""
        given = set(words.split())
        dense, values, rotates = (any(word.startswith(x) for word in given) for x in ("dense", "values", "rotation"))
        if self.backend == "fused":
            several = len(given & {"pieces", "many", "crooked", "jumps", "shared-jumps"}) > 1
            return dense or several or "transform" in given or (rotates and "key" in given)
        return self.backend in ("sdpa", "flex") and (values or "transform" in given)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(cpu, "forced_target", self.target))
            if self.block is not None:
                stack.enter_context(mock.patch.dict(blocks.BLOCK_QUERIES, {"cpu": self.block[0]}))
                stack.enter_context(mock.patch.dict(blocks.BLOCK_LOGITS, {"cpu": self.block[1]}))
            yield


TARGETS = () if native.unsupported_reason() else range(native.TARGETS.index(native.best_target()) + 1)
KERNELS = {
    "blocked": Kernel("blocked"),
    "blocked, three queries of one row of the batch at a time": Kernel("blocked", block=(3, 1), longest=11),
    "sdpa": Kernel("sdpa"),
    **({} if native.unsupported_reason() else {"fused in float64": Kernel("fused", dim=5)}),
    **{f"fused for {native.TARGETS[n]}": Kernel("fused", torch.float32, dim=33, target=n) for n in TARGETS},
}
REFERENCE = Kernel("reference")


# ---- calls

LENGTHS = [(1, 1), (7, 7), (1, 9), (4, 11), (100, 100), (131, 131), (1, 131), (60, 131), (250, 310)]
MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "both ways": {"causal": False},
    **{f"window {n}": {"window": n} for n in (1, 3, 40, 100, 400)},
    **{f"window {n} both ways": {"window": n, "causal": False} for n in (1, 3, 40, 400)},
}
PLACES = [
    "consecutive", "gaps", "sorted", "no order", "one row in no order", "restarting", "packed", "packed, in order",
    "padded", "in turns", "one row of documents", "documents at irregular positions",
]  # fmt: skip


def call_of(place: str, mask: str, sizes: Sizes) -> tuple[Span, Mask]:
    """Return the span and the mask of a call."""
    keys, at, generator = sizes.keys, torch.arange(sizes.keys), torch.Generator().manual_seed(3)

    def whole(low: int, high: int, rows: int = sizes.batch) -> Tensor:
        return torch.randint(low, high, (rows, keys), generator=generator)

    documents = {
        "restarting": torch.stack([at // 4, at // 3]),
        "packed": torch.stack([at * 3 // keys, at * 2 // keys]),
        "packed, in order": torch.stack([at * 3 // keys, at * 2 // keys]),
        "padded": torch.where(at < keys // 4, -1, 0)[None],
        "in turns": torch.stack([at % 3, at // 5 % 2]),
        "one row of documents": at[None] // 4,
        "documents at irregular positions": torch.stack([at // 4, at // 3]),
    }.get(place)
    if documents is not None and len(documents) > 1:
        documents = documents[: sizes.batch]
    positions = {
        "gaps": lambda: whole(0, 4).cumsum(1),
        "sorted": lambda: whole(0, keys + 4).sort(1).values,
        "no order": lambda: whole(0, keys + 4),
        "one row in no order": lambda: whole(0, keys + 4, 1),
        "restarting": lambda: (at % 4)[None].expand(sizes.batch, -1),
        "packed": lambda: consecutive(documents),
        "padded": lambda: consecutive(documents),
        "in turns": lambda: consecutive(documents),
        "documents at irregular positions": lambda: whole(0, keys + 4),
    }.get(place, lambda: None)()
    span = Span.of(keys, sizes.queries)
    if positions is not None:
        span = Span(positions[:, keys - sizes.queries :], positions, int(positions.max()) + 1)
    return span, Mask(sizes.queries, keys, documents=documents, **MASKS[mask])


# ---- the comparison


def inputs(sizes: Sizes, dtype: torch.dtype = WIDE, seed: int = 0) -> list[Tensor]:
    """Return q, k, v as leaves, and the gradient of the output."""
    draw, s = Draw(sizes, Span.of(1), seed=seed), sizes
    shapes = [(s.heads, s.queries), (s.groups, s.keys), (s.groups, s.keys), (s.heads, s.queries)]
    q, k, v, weight = (draw.normal(s.batch, heads, tokens, s.dim).to(dtype) for heads, tokens in shapes)
    return [*(x.requires_grad_() for x in (q, k, v)), weight]


def results(
    kernel: Kernel,
    words: str,
    sizes: Sizes,
    span: Span,
    mask: Mask,
    *,
    dtype: torch.dtype | None = None,
    form_dtype: torch.dtype = WIDE,
    seed: int = 0,
    scale: float | None = None,
) -> list[Tensor | None]:
    """Return the output and the gradients of q, k, v and every number of the forms. `dtype`: of q, k and v."""
    q, k, v, weight = inputs(sizes, dtype or kernel.dtype, seed)
    draw = Draw(sizes, span, form_dtype, seed + 1)
    modifiers = build(words, draw)
    with kernel.active():
        out = BACKENDS[kernel.backend].prepare(modifiers, span, mask)(q, k, v, scale=scale or sizes.dim**-0.5)
        return [out, *torch.autograd.grad(out, [q, k, v, *draw.leaves], weight, allow_unused=True)]


def require_agreement(kernel: Kernel, words: str, sizes: Sizes, span: Span, mask: Mask) -> None:
    """Compare a kernel with the reference in float64.

    In float64 the results differ by at most 1e-12. In float32 they differ by 5e-6 of the largest number of a result;
    gradients of forms are sums in which most cancels, and keep 1e-5 of the largest number of all results.
    """
    actual = results(kernel, words, sizes, span, mask)
    expected = results(REFERENCE, words, sizes, span, mask)
    largest = max(x.abs().max().item() for x in expected if x is not None)
    for n, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert (a is None) == (b is None), f"result {n} of {words}"
        if a is None or b is None:
            continue
        assert a.shape == b.shape
        relative, size = (5e-6, b.abs().max().item()) if n < 4 else (1e-5, largest)
        error = (a.to(WIDE) - b).abs().max().item()
        limit = (1e-12 if kernel.dtype == WIDE else relative) * max(1.0, size)
        if kernel.backend != "fused":
            limit = 1e-12
        assert error <= limit, f"result {n} of {words} is off by {error:.1e}, more than {limit:.1e}"


def as_supported(words: str, draw: Draw, mask: Mask) -> Mask:
    """Return the mask, or the causal one for forms that have no other."""
    return mask if build(words, draw).bidirectional else dataclasses.replace(mask, causal=True)
