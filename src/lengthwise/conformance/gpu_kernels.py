"""Compare the GPU kernels with the reference on small inputs: the output and every gradient.

The reference computes in float64 on the CPU, so it shares nothing with the device. gpu_table.py compares all of
`FORMS`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.backends.base import Backend
from lengthwise.attention.backends.reference import Reference
from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.backend import Fused
from lengthwise.attention.fused.gpu.call import padded
from lengthwise.attention.fused.gpu.tiles import BiasForm
from lengthwise.attention.masks import Mask
from lengthwise.forms import (
    AttentionModifiers,
    CumulativeBias,
    PiecewiseLinearBias,
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
# The tolerance relative to the largest number: about ten roundings of float32 sums, and of values stored in half
# precision.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
NEAR = 2e-6  # a coordinate of about 1 is rounded by less in float32
SEGMENT_COUNTS = {"segments": 7, "many segments": 200}
SEGMENT_TENSORS = ("slope", "intercept", "query_scale", "feature_parameter")


@dataclass(frozen=True)
class Form:
    """What decides which kernels are compiled: kinds of bias, of which a sink is one, the head dim and the dtype."""

    biases: tuple[str, ...]
    dim: int
    dtype: str

    def __str__(self) -> str:
        return f"{bias_names(self.biases)}, {self.dim} dims, {self.dtype}"


def bias_names(biases: tuple[str, ...]) -> str:
    return " and ".join(biases) or "no bias"


# The kinds of bias that an encoding asks for, alone or together.
BIASES: tuple[tuple[str, ...], ...] = (
    (),
    ("table",),
    ("line",),
    ("segments",),
    ("many segments",),
    ("vectors",),
    ("vectors", "values"),
    ("sink",),
    ("prefix sum",),
)
DIMS = (32, 64, 128, 256)  # 64, 128 and 256 have block sizes of their own (block_sizes.py)
DTYPES = ("float32", "bfloat16", "float16")
FORMS = tuple(Form(biases, dim, dtype) for biases in BIASES for dtype in DTYPES for dim in DIMS)


@dataclass(frozen=True)
class Shape:
    """One call of attention. `keys` and `queries` count blocks of the kernels, to which a few tokens are added."""

    name: str
    keys: float
    queries: float | None = None  # blocks; None: as many as keys; 0: one
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    causal: bool = True
    window: bool = False
    documents: bool = False
    gaps: bool = False
    rotated: bool = False


SHAPES = (
    Shape("grouped queries", 2.5, batch=2, heads=4, kv_heads=2),
    Shape("packed documents, rotated", 2.0, 1.0, batch=2, documents=True, rotated=True),
    Shape("positions with gaps, a window", 1.5, window=True, gaps=True),
    Shape("decoding", 3.0, 0.0, batch=2, heads=4, kv_heads=2),
    Shape("both ways", 1.5, causal=False),
)


class Comparison(NamedTuple):
    """error: the largest of all results, relative to the largest number that it is compared with.

    failure: which result is off by more than rounding, or None.
    """

    error: float
    failure: str | None


def compare(form: Form, device: torch.device | str) -> Comparison:
    """Compare kernels and reference for all shapes, up to the first failure."""
    torch.manual_seed(0)
    largest = 0.0
    for shape in SHAPES:
        if not shape.causal and SEGMENT_COUNTS.keys() & set(form.biases):
            continue  # segments are not defined for keys after the query
        error, failure = Call(form, shape).compare(device)
        largest = max(largest, error)
        if failure:
            return Comparison(largest, f"{shape.name}: {failure}")
    return Comparison(largest, None)


class Call:
    """Random inputs for one call of attention, in the dtype of the kernels, and its results."""

    def __init__(self, form: Form, shape: Shape) -> None:
        dtype: torch.dtype = getattr(torch, form.dtype)
        has_segments = bool(SEGMENT_COUNTS.keys() & set(form.biases))
        has_table = bool({"table", "line", "vectors", "values"} & set(form.biases))
        bias_form: BiasForm = "segments" if has_segments else "table" if has_table else "none"
        blocks = gpu.blocks(dtype, padded(form.dim), bias_form)
        block = max(max(size.queries, size.keys) for size in blocks)
        keys = int(shape.keys * block) + 5
        queries = keys if shape.queries is None else int(shape.queries * block) + 1
        documents = (torch.arange(keys) * 3 // keys).expand(shape.batch, -1) if shape.documents else None
        self.rotated, self.has_positions = shape.rotated, documents is not None or shape.gaps
        self.positions = torch.arange(keys)[None] if documents is None else consecutive(documents)
        if shape.gaps:
            self.positions = torch.randint(0, 4, (shape.batch, keys)).cumsum(1)
        self.mask = Mask(queries, keys, shape.causal, documents, block + 3 if shape.window else None)
        self.scale, self.tolerance = form.dim**-0.5, TOLERANCE[dtype]
        shape_q, shape_k = ((shape.batch, h, n, form.dim) for h, n in ((shape.heads, queries), (shape.kv_heads, keys)))
        self.numbers = {n: torch.randn(size).to(dtype) for n, size in (("q", shape_q), ("k", shape_k), ("v", shape_k))}
        self.grad = torch.randn(shape_q).to(dtype)
        for bias in form.biases:
            self.numbers |= self._bias(bias, block, shape.heads, form.dim)

    def _bias(self, bias: str, block: int, heads: int, dim: int) -> dict[str, Tensor]:
        if bias == "table":  # shorter than there are distances
            return {"table": torch.randn(heads, block + 9)}
        if bias == "line":  # as ALiBi: a table whose values the kernels compute from the distance
            return {"table": torch.rand(heads, 1) * (torch.arange(block + 9) - 3).abs()}
        if bias == "vectors":
            return {"vectors": torch.randn(1, 11, dim), "vector": torch.randn(heads, dim)}
        if bias == "values":  # other distances than those of "vectors"
            return {"values": torch.randn(1, 9, dim)}
        if bias == "sink":
            return {"sink": torch.randn(heads)}
        if bias == "prefix sum":
            return {"prefix_sum": -torch.rand(len(self.grad), heads, self.mask.keys, dtype=WIDE).cumsum(-1)}
        count, position_q = SEGMENT_COUNTS[bias], self.positions[:, -self.mask.queries :]
        distance_feature = torch.log1p(0.3 * torch.arange(int(self.positions.max()) + 1))
        self.feature, self.feature_derivative = distance_feature, torch.randn(len(distance_feature))
        query_scale = 1 / torch.log1p(0.3 * position_q.float().clamp(min=block / 2))
        distance = (position_q[:, :, None] - self.positions[:, None]).clamp(min=0)
        self.knots = between_coordinates(
            torch.linspace(0.01, 0.9, count - 1, dtype=WIDE), distance, distance_feature, query_scale
        )
        slope = torch.randn(heads, count)
        jumps = (slope[:, :-1] - slope[:, 1:]) * self.knots.float()  # continuous, as an MLP is
        intercept = torch.cat([torch.zeros(heads, 1), jumps.cumsum(1)], 1)
        return dict(zip(SEGMENT_TENSORS, (slope, intercept, query_scale, torch.zeros(1)), strict=True))

    def compare(self, device: torch.device | str) -> Comparison:
        """Compare all results of the kernels on the device, up to the first failure."""
        results, expected_results = self._results(Fused(), device, None), self._results(Reference(), "cpu", WIDE)
        largest_number = max(1.0, *(x.abs().max().item() for x in expected_results.values()))
        largest_error = 0.0
        for name, expected in expected_results.items():
            # Most of a bias gradient cancels, so its error is relative to the largest number of all results.
            size = max(1.0, expected.abs().max().item()) if name in ("output", "q", "k", "v") else largest_number
            error = (results[name].cpu().to(WIDE) - expected).abs().max().item() / size
            if not error <= self.tolerance:  # also if it is NaN
                what = name if name == "output" else f"the gradient of {name}"
                limit = f"rounding explains at most {self.tolerance:.0e}"
                return Comparison(error, f"{what} is off by {error:.1e} of the largest number, and {limit}")
            largest_error = max(largest_error, error)
        return Comparison(largest_error, None)

    def _results(self, backend: Backend, device: torch.device | str, dtype: torch.dtype | None) -> dict[str, Tensor]:
        """Return the output and the gradient of every input, computed in the inputs' own dtypes or in `dtype`."""
        leaves = {n: x.to(device, dtype or x.dtype).requires_grad_() for n, x in self.numbers.items()}
        positions, mask = self.positions.to(device), self.mask
        if mask.documents is not None:
            mask = replace(mask, documents=mask.documents.to(device))
        position_q, length = positions[:, -mask.queries :], int(positions.max()) + 1
        span = Span(position_q, positions, length) if self.has_positions else Span.of(mask.keys, mask.queries, device)
        attend = backend.prepare(self._modifiers(leaves, span), span, mask)
        out = attend(*(leaves[name] for name in ("q", "k", "v")), scale=self.scale)
        gradients = torch.autograd.grad(out, list(leaves.values()), self.grad.to(device, out.dtype))
        return {"output": out.detach(), **dict(zip(leaves, gradients, strict=True))}

    def _modifiers(self, leaves: dict[str, Tensor], span: Span) -> AttentionModifiers:
        terms: list[Term] = []
        if "table" in leaves:
            terms.append(ToeplitzBias(leaves["table"], -3))
        if "vectors" in leaves:
            terms.append(RelativeKeyBias(leaves["vectors"], -4, leaves["vector"]))
        if "slope" in leaves:
            slope, intercept, query_scale, parameter = (leaves[name] for name in SEGMENT_TENSORS)
            feature, derivative = self.feature.to(slope), self.feature_derivative.to(slope)
            terms.append(
                PiecewiseLinearBias(
                    slope, intercept, self.knots.to(slope), feature + parameter * derivative, query_scale,
                    feature_parameter=parameter, feature_derivative=derivative,
                )
            )  # fmt: skip
        if "prefix_sum" in leaves:
            terms.append(CumulativeBias(leaves["prefix_sum"]))
        frequency = torch.tensor([0.1], dtype=WIDE, device=span.q.device)
        angle_q, angle_k = (x[:, None, :, None] * frequency for x in (span.q, span.k))
        rotation = Rotation(angle_q, angle_k) if self.rotated else None
        sink = SinkLogit(leaves["sink"]) if "sink" in leaves else None
        values = (RelativeValues(leaves["values"], -2),) if "values" in leaves else ()
        return AttentionModifiers(rotation=rotation, terms=tuple(terms), sink=sink, values=values)


def between_coordinates(knots: Tensor, distance: Tensor, distance_feature: Tensor, query_scale: Tensor) -> Tensor:
    """Return the knots [s - 1] in float64, of which those near a coordinate of a pair move to the middle of a gap.

    The gradients of a pair jump at a knot, and coordinates in float32 and in float64 may lie on different sides of it.
    distance [b, i, j], distance_feature [n], query_scale [b, i]: what the coordinates are made of.
    """
    coordinates = (distance_feature.to(WIDE)[distance] * query_scale.to(WIDE)[..., None]).unique()
    gaps = coordinates.diff()
    middles = (coordinates[:-1] + gaps / 2)[gaps > 4 * NEAR]
    if not len(middles):
        return knots
    is_near = (knots - _nearest(knots, coordinates)).abs() < NEAR
    return torch.where(is_near, _nearest(knots, middles), knots)


def _nearest(x: Tensor, candidates: Tensor) -> Tensor:
    """Return for each number of x the nearest of the candidates, which are sorted."""
    above = torch.searchsorted(candidates, x).clamp(1, len(candidates) - 1)
    low, high = candidates[above - 1], candidates[above]
    return torch.where(x - low < high - x, low, high)
