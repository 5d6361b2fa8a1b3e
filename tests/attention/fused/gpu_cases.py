"""Test cases for the GPU kernels, on a GPU or in Triton's interpreter, with the reference's results in float64."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.backends import reference
from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.arguments import LEARNED, Arguments
from lengthwise.conformance.gpu_kernels import between_coordinates
from lengthwise.forms import (
    AttentionModifiers,
    CumulativeBias,
    DenseBias,
    PiecewiseLinearBias,
    RelativeValues,
    SinkLogit,
    ToeplitzBias,
)
from lengthwise.span import Span

WIDE = torch.float64
COMPUTED = tuple(name for name in LEARNED if name != "distance_feature")  # what the kernels compute gradients of


@dataclass
class Case:
    """kind: words out of none, table, short (ends before the distances do, both ways), line (a table that is a straight
    line on each side of distance 0, as ALiBi's), bent (the same with one entry beside the line), pieces, many (pieces),
    one (piece), crooked (u in no order), fixed (no derivative of u, as FIRE without a logarithm), rows, wide (rows as
    long as the distances), later (rows from distance 4 on), values (vectors of the distances of rows), sink, prefix
    (sums, as FoX), shared (one head for all)."""

    kind: str = "none"
    batch: int = 1
    heads: tuple[int, int] = (1, 1)
    queries: int = 32
    keys: int = 35
    dim: int = 8
    causal: bool = True
    window: int | None = None
    documents: Any = None
    positions: Any = None
    scale: float | None = None
    knots: Any = None
    level: float = 15.0  # up to this position all queries have the same w
    c: float = 0.3
    pieces: int = 7
    edit: Any = None  # of q, k, v and the gradient, in place
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    names: list[str] = field(default_factory=list)

    def tensors(self) -> list[Tensor]:
        torch.manual_seed(0)
        h, g = self.heads
        shapes = [(self.batch, h, self.queries, self.dim), *[(self.batch, g, self.keys, self.dim)] * 2]
        q, k, v, grad = (torch.randn(s, dtype=WIDE).to(self.dtype) for s in (*shapes, shapes[0]))
        if self.edit:
            self.edit(q, k, v, grad)
        return [x.to(self.device) for x in (q, k, v, grad)]

    def span(self) -> Span:
        if self.positions is None:
            return Span.of(self.keys, self.queries, self.device)
        p = torch.as_tensor(self.positions, device=self.device)
        return Span(p[:, self.keys - self.queries :].contiguous(), p, int(p.max()) + 1)

    def mask(self) -> Mask:
        documents = None if self.documents is None else torch.as_tensor(self.documents, device=self.device)
        return Mask(self.queries, self.keys, self.causal, documents, self.window)

    def bias(self) -> dict[str, Tensor | int]:
        """The operator's arguments that are numbers, in float32; prefix_sum in float64."""
        torch.manual_seed(1)
        kind, span = self.kind.split(), self.span()
        h = 1 if "shared" in kind else self.heads[0]
        n, found = span.length, {}
        if "table" in kind:
            found |= {"table": torch.randn(h, n), "table_first": 0}
        if "short" in kind:
            found |= {"table": torch.randn(h, 9), "table_first": -3}
        if {"line", "bent"} & set(kind):
            first = 0 if self.causal else 1 - n
            distance = torch.arange(first, n, dtype=WIDE)
            slopes = torch.where(distance < 0, 0.7, -0.3) * 2.0 ** -torch.arange(h, dtype=WIDE)[:, None]
            table = 0.5 + slopes * distance
            table[-1, n // 2 - first] += 0.01 * ("bent" in kind)
            found |= {"table": table, "table_first": first}
        if {"pieces", "many", "one"} & set(kind):
            s = 1 if "one" in kind else 200 if "many" in kind else self.pieces
            distance_feature = torch.rand(n) if "crooked" in kind else torch.log1p(self.c * torch.arange(n))
            query_scale = 1 / (1e-6 + torch.log1p(self.c * span.q.cpu().float().clamp(min=self.level)))
            distance = span.distance().cpu().clamp(min=0)
            knots = between_coordinates(
                torch.linspace(0.01, 0.9, s - 1, dtype=WIDE), distance, distance_feature, query_scale
            )
            if self.knots is not None:
                knots = self.knots(distance_feature, query_scale)
            slope = torch.randn(h, len(knots) + 1, dtype=WIDE)
            jumps = (slope[:, :-1] - slope[:, 1:]) * knots  # continuous, as an MLP is
            intercept = torch.cat([torch.zeros(h, 1, dtype=WIDE), jumps.cumsum(1)], 1)
            found |= {"slope": slope, "intercept": intercept, "knots": knots}
            found |= {"distance_feature": distance_feature, "query_scale": query_scale}
            if "fixed" not in kind:  # a direction, along which the kernels sum the gradient of distance_feature
                found |= {"feature_parameter": torch.zeros(1), "feature_derivative": torch.randn(n)}
        if "rows" in kind:
            r, first = (n, 0) if "wide" in kind else (9, 4) if "later" in kind else (11, -2)
            row_heads = self.heads[0] if "values" in kind else h
            found |= {"rows": torch.randn(self.batch, row_heads, self.queries, r), "rows_first": first}
            if "values" in kind:
                found |= {"value_vectors": torch.randn(h, r, self.dim), "value_vectors_first": first}
        if "sink" in kind:
            found |= {"sink": torch.randn(self.heads[0])}
        found = {k: x.float() if isinstance(x, Tensor) else x for k, x in found.items()}
        if "prefix" in kind:  # so far from 0 that float32 would be off by 0.004
            found |= {"prefix_sum": -1e5 - torch.rand(self.batch, h, self.keys, dtype=WIDE).cumsum(-1)}
        return {k: x.to(self.device) if isinstance(x, Tensor) else x for k, x in found.items()}

    def ours(self) -> list[Tensor]:
        """out, lse and the gradients of q, k, v and of every number of the bias, by the kernels."""
        q, k, v, grad = self.tensors()
        bias, span, mask = self.bias(), self.span(), self.mask()
        places = (None, None) if self.positions is None else (span.q, span.k)
        arguments = Arguments(
            **bias, position_q=places[0], position_k=places[1], documents=mask.documents, causal=self.causal,
            window=self.window or 0, scale=self.scale or self.dim**-0.5,
        )  # fmt: skip
        out, lse = gpu.forward(q, k, v, arguments)
        gradients = gpu.backward(grad, q, k, v, out, lse, arguments, frozenset(LEARNED).intersection(bias))
        names = ["q", "k", "v", *(name for name in COMPUTED if name in bias)]
        self.names = ["out", "lse", *(f"d{name}" for name in names)]
        return [out, lse, *(gradients[name] for name in names)]

    def right(self) -> list[Tensor]:
        """The same by the reference in float64."""
        *qkv, grad = (x.to(WIDE) for x in self.tensors())
        bias = {k: x.to(WIDE) if isinstance(x, Tensor) else x for k, x in self.bias().items()}
        leaves = [*qkv, *(bias[name] for name in COMPUTED if name in bias)]
        for leaf in leaves:
            leaf.requires_grad_()
        terms, span, mask = [], self.span(), self.mask()
        if "table" in bias:
            terms.append(ToeplitzBias(bias["table"], bias["table_first"]))
        if "slope" in bias:
            feature = bias["distance_feature"]
            if "feature_parameter" in bias:
                feature = feature + bias["feature_parameter"] * bias["feature_derivative"]
            terms.append(
                PiecewiseLinearBias(bias["slope"], bias["intercept"], bias["knots"], feature, bias["query_scale"])
            )
        if "rows" in bias:
            b, (h, _), r = self.batch, self.heads, bias["rows"].shape[-1]
            column = (span.distance() - bias["rows_first"]).clamp(0, r - 1)[:, None].expand(b, h, -1, -1)
            terms.append(DenseBias(bias["rows"].expand(b, h, -1, -1).gather(-1, column), bidirectional=True))
        if "prefix_sum" in bias:
            terms.append(CumulativeBias(bias["prefix_sum"]))
        sink = SinkLogit(bias["sink"]) if "sink" in bias else None
        values = (RelativeValues(bias["value_vectors"], bias["rows_first"]),) if "value_vectors" in bias else ()
        modifiers = AttentionModifiers(terms=tuple(terms), values=values, sink=sink)
        scale = self.scale or self.dim**-0.5
        out = BACKENDS["reference"].prepare(modifiers, span, mask)(*qkv, scale=scale)
        visible = mask.visible(span.q.device)[:, None]
        k = qkv[1].repeat_interleave(self.heads[0] // self.heads[1], 1)
        logits = reference.logits(modifiers, qkv[0], k, span, visible, scale).masked_fill(~visible, -torch.inf)
        if sink is not None:
            logits = torch.cat([logits, sink.logit[:, None, None].expand(*logits.shape[:-1], 1)], -1)
        return [out, logits.logsumexp(-1), *torch.autograd.grad(out, leaves, grad)]


def errors(case: Case) -> dict[str, float]:
    """How far each answer is off, of the largest number that is compared with."""
    got, wanted = case.ours(), case.right()
    assert [a.shape for a in got] == [b.shape for b in wanted]
    largest = max(1.0, *(b.abs().max().item() for b in wanted))
    sizes = [max(1.0, b.abs().max().item()) if n < 5 else largest for n, b in enumerate(wanted)]
    return {
        name: (a.to(WIDE) - b).abs().max().item() / size
        for name, a, b, size in zip(case.names, got, wanted, sizes, strict=True)
    }


def require_equal(case: Case, close: float = 1e-5) -> None:
    """Off by at most `close` of the largest number of each answer; gradients of the bias, which are sums of what mostly
    cancels, of the largest of all."""
    off = {name: error for name, error in errors(case).items() if not error <= close}
    assert not off, ", ".join(f"{name} is off by {error:.1e}" for name, error in off.items())


def on_a_gpu(dtype: torch.dtype) -> list[Case]:
    """Forms, lengths, head dims and masks with blocks as large as they are on a GPU."""
    device = {"device": "cuda", "dtype": dtype}
    kinds = ("none", "table", "short", "pieces", "pieces short", "many", "crooked pieces", "rows", "wide rows shared")
    kinds += ("prefix", "prefix sink", "prefix table", "prefix shared", "rows values", "wide rows values shared")
    kinds += ("short rows values", "prefix pieces rows values", "later rows values", "line", "bent", "line prefix")
    found = [Case(kind, batch=2, heads=(4, 2), queries=300, keys=515, dim=64, level=100.0, **device) for kind in kinds]
    found += [Case("pieces table", queries=130, keys=200, dim=dim, **device) for dim in (1, 16, 40, 128, 200, 256)]
    found += [Case("short", queries=n, keys=m, dim=64, **device) for n, m in ((1, 1), (1, 3000), (5, 700), (257, 257))]
    found += [
        Case(kind, queries=n, keys=m, dim=64, **device)
        for kind in ("prefix", "rows values")
        for n, m in ((1, 3000), (257, 257))
    ]
    found += [Case("rows values", queries=130, keys=200, dim=dim, **device) for dim in (16, 128, 256)]
    found += [
        Case(kind, queries=515, keys=515, dim=64, window=100, **device)
        for kind in ("none", "table", "pieces", "prefix", "rows values")
    ]
    found += [
        Case(kind, queries=515, keys=515, dim=64, causal=False, **device)
        for kind in ("none", "short", "line", "prefix", "rows values")
    ]
    ids = torch.tensor([[0] * 200 + [1] * 250 + [2] * 65, [-1] * 130 + [0] * 385])
    gaps = torch.randint(0, 4, (2, 515), generator=torch.Generator().manual_seed(0)).cumsum(1)
    restart = torch.cat([torch.cat([torch.arange(n) for n in row])[None] for row in ((200, 250, 65), (130, 385))])
    for kind in ("none", "table", "pieces", "many", "rows", "prefix", "rows values"):
        found.append(Case(kind, batch=2, queries=515, keys=515, dim=64, documents=ids, positions=restart, **device))
        found.append(Case(kind, batch=2, queries=300, keys=515, dim=64, positions=gaps, **device))
    return found
