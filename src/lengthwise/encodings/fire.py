"""FIRE: a learned function of a normalized distance."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings import piecewise
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding, table_columns
from lengthwise.encodings.piecewise import grid_segments, relu_segments
from lengthwise.forms import AttentionModifiers, PiecewiseLinearBias, ToeplitzBias, table_dtype
from lengthwise.native import segments
from lengthwise.span import Span
from lengthwise.values import shown

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FIRE(PositionEncoding):
    """b(h, i, j) = f(x)_h nats, with x = ψ(i - j) / (ψ(max(L, i)) + eps) and ψ(d) = ln(|c| d + 1).

    f is an MLP from one number to one number for each head. It has `hidden_layers` layers of `width` units, with an
    activation after each, and a linear output layer. c and L are learned, L as |multiplier| · `L`. Positions count from
    0. A key whose position ID is higher than its query's (position scheme `Digits`) counts as distance 0.

    The paper's ablations: `threshold=False` divides by ψ(i), without L (eq. 22; 0/0 at position 0 is 0).
    `transform="identity"` has ψ(d) = d, without c (both: eq. 21). `final_activation` adds an activation after the last
    layer.

    With one module for all layers (`share_encoding`), this is FIRE-S.

    Attention does not evaluate the MLP on every pair. For relu, the MLP is piecewise linear and attention gets its
    linear segments, which are exact (`piecewise.py`). For smooth activations it gets a table over distances, which is
    exact too, while all positions are below |multiplier| · `L`. Beyond, and in graphs of `torch.compile`, f is
    approximated by 4,095 line segments. Their error in b is at most 7.5e-9 max|f''|. The error in the gradients of c
    and the multiplier comes from the slope of a segment, which differs from f' by at most 1.23e-4 max|f''|.
    `backend="reference"` evaluates the MLP on every pair and has neither error.

    Beyond the training length: the coordinate x is in [0, 1] for every causal pair at any length, so f gets no values
    outside the interval of training.

    Source: Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context Transformers", eq. 4,
    21-23.
    Code: no official code; the widely copied listing has one hidden layer, the paper's text and ablation two.
    Differs: the paper counts the query's position from 1, the listing from 0 with eps 1e-6; this class follows the
    listing.

    Choosing `L`, in tokens: take several times the training length, and at least the default. While all positions are
    below L, the bias depends only on the distance. In models of two layers trained on 18 to 256 tokens, L = 512 and L =
    1,024 had the best mean scores at twice the training length and beyond, on text and on copying. The other tested
    values were 1/16, 1/4, 1 and (unless that is 512) 2 times the training length (studies/fire/threshold.py).

    >>> FIRE(num_heads=8).coordinate(torch.tensor(3), torch.tensor(1))     # ψ(2) / ψ(512)
    tensor(0.0461, dtype=torch.float64, grad_fn=<DivBackward0>)
    """

    shared_across_layers: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False  # the coordinate depends on i itself once i > L

    def __init__(
        self,
        *,
        num_heads: int,
        hidden_layers: int = 2,
        width: int = 32,
        activation: Literal["relu", "gelu", "silu", "tanh"] = "relu",
        final_activation: bool = False,
        transform: Literal["log", "identity"] = "log",
        c: float = 0.1,
        threshold: bool = True,
        L: float = 512.0,
        eps: float = 1e-6,
    ):
        super().__init__()
        require_positive_int("FIRE", width=width)
        require_positive("FIRE", c=c, L=L)
        require_positive("FIRE", or_zero=True, eps=eps)
        if not 0 <= hidden_layers <= 4:
            raise ConfigError(
                f"FIRE: hidden_layers must be a whole number from 0 (linear) to 4, got {shown(hidden_layers)}; the "
                "paper has 2"
            )
        sizes = [1, *[width] * hidden_layers, num_heads]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.c = nn.Parameter(torch.tensor(float(c))) if transform == "log" else None
        self.L_multiplier = nn.Parameter(torch.tensor(1.0)) if threshold else None
        self.activation, self.final_activation, self.L, self.eps = activation, final_activation, float(L), eps

    def tracked(self) -> dict[str, Tensor]:
        """Return |c|, and the threshold L in tokens."""
        c = {} if self.c is None else {"c": self.c.abs()}
        return c if self.L_multiplier is None else {**c, "L": (self.L_multiplier * self.L).abs()}

    def _linears(self) -> list[nn.Linear]:
        return cast(list[nn.Linear], list(self.layers))

    def psi(self, distance: Tensor) -> Tensor:
        """Return ψ of each distance."""
        dtype = table_dtype(distance.device)
        return distance.to(dtype) if self.c is None else torch.log1p(self.c.to(dtype).abs() * distance)

    def _denominator(self, query: Tensor) -> Tensor:
        if self.L_multiplier is not None:
            query = torch.maximum((self.L_multiplier.to(table_dtype(query.device)) * self.L).abs(), query)
        value = self.psi(query) + self.eps
        return torch.where(value > 0, value, 1.0)  # if it is 0, every distance is 0 too

    def coordinate(self, query: Int[Tensor, "..."], key: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the normalized distance x of query and key positions (key <= query)."""
        return self.psi(query - key) / self._denominator(query)

    def activate(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return _ACTIVATIONS[self.activation](x)

    def f(self, x: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n h"]:
        """Evaluate the MLP: [..., 1] -> [..., num_heads]."""
        for n, layer in enumerate(self._linears()):
            x = self.activate(x) if n else x
            x = F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
        return self.activate(x) if self.final_activation else x

    def pairwise_bias(self, span: Span) -> Float[Tensor, "b h i j"]:
        """Return the bias of every pair, evaluated with the MLP. Keys after the query get the bias of distance 0."""
        query = span.q[:, :, None]
        x = self.coordinate(query, torch.minimum(span.k[:, None, :], query))
        return self.f(x[..., None]).movedim(-1, 1)

    def modifiers(self, span: Span) -> AttentionModifiers:
        layers = self._linears()
        widest_layer = max(layer.out_features for layer in layers)
        cols, exact = table_columns(span, 0, span.distance_bound, lambda: widest_layer), None
        distance = cols.distance
        if self.activation == "relu" or (len(layers) == 1 and not self.final_activation):
            slope, intercept, knots = relu_segments(layers, final=self.final_activation)
        elif self._below_threshold(span):
            start = torch.zeros((), dtype=torch.long, device=distance.device)
            table = self.f((self.psi(distance) / self._denominator(start))[:, None]).T.contiguous()
            return AttentionModifiers(terms=(ToeplitzBias(table, distances=cols.distances),))
        else:
            exact = self.f
            slope, intercept, knots = grid_segments(self.f, like=layers[0].weight)
        derivative = None
        if self.c is None:
            distance_feature, query_scale = self.psi(distance), 1 / self._denominator(span.q)
        elif self.L_multiplier is None or torch.compiler.is_compiling():
            unit = self.psi(torch.full((), self.L, dtype=table_dtype(distance.device), device=distance.device))
            unit = torch.where(unit > 0, unit, 1.0)
            distance_feature, query_scale = self.psi(distance) / unit, unit / self._denominator(span.q)
            derivative = feature_derivative(self.c, distance, self.L)
        else:
            distance_feature, query_scale, derivative = self.tables(self.c, self.L_multiplier, distance, span.q.long())
        parameter = None if self.c is None or derivative is None else self.c.view(1)
        bias = PiecewiseLinearBias(
            slope, intercept, knots, distance_feature, query_scale, exact, cols.distances, parameter, derivative
        )
        return AttentionModifiers(terms=(bias,))

    def tables(
        self, c: Tensor, multiplier: Tensor, distance: Tensor, query: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the two factors of x, the distance feature and the query scale, and the derivative of the former by c.

        The compiled library leaves out the derivative, which the kernels of a CPU do not need.
        """
        feature, scale, derivative = _Tables.apply(c, multiplier, distance, query, self.L, self.eps)
        return feature, scale, derivative

    def _below_threshold(self, span: Span) -> bool:
        """Return whether all positions are below the threshold |multiplier| · `L`.

        If so, the denominator is the same for all queries, and the bias depends only on the distance. It is False in a
        graph of `torch.compile`, which cannot read the multiplier.
        """
        if self.L_multiplier is None or self.L_multiplier.is_meta or torch.compiler.is_compiling():
            return False
        return span.length - 1 < abs(self.L_multiplier.item() * self.L)


@torch.no_grad()
def feature_derivative(c: Tensor, distance: Tensor, L: float) -> Tensor:
    """Return the derivative of the distance feature ψ(distance) / ψ(`L`) by c."""
    size = c.to(table_dtype(distance.device)).abs()
    exact_unit = torch.log1p(size * L)
    unit = torch.where(exact_unit > 0, exact_unit, 1.0)
    unit_by_size = torch.where(exact_unit > 0, L / (1 + size * L), 0.0)
    feature = torch.log1p(size * distance) / unit
    return (distance / (1 + size * distance) - feature * unit_by_size) / unit * c.sign()


class _Tables(torch.autograd.Function):
    """Compute the two factors of x: the distance feature ψ(distance) / ψ(`L`) and the query scale ψ(`L`) / denominator.
    The third result is the derivative of the distance feature by c, or None.

    Without ψ(`L`), a change of c would scale all of the former up and all of the latter down. The two gradients would
    nearly cancel, and their rounding errors would remain.

    The backward pass is written by hand, as in piecewise.py: for short sequences most of the time was spent in autograd
    itself. It is a differentiable function of c and the multiplier, so that second derivatives exist.
    """

    @staticmethod
    def forward(
        ctx: Any, c: Tensor, multiplier: Tensor, distance: Tensor, query: Tensor, L: float, eps: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.save_for_backward(c, multiplier, distance, query)
        ctx.L, ctx.eps = L, eps
        if piecewise.uses_library(c, multiplier, distance, query):
            return *segments.fire_tables(abs(c.item()), abs(multiplier.item() * L), L, eps, distance, query), None
        if piecewise.uses_gpu_kernels(c, multiplier, distance, query):
            from lengthwise.native import gpu_segments

            feature, query_scale, derivative = gpu_segments.fire_tables(c, multiplier, distance, query, L, eps)
        else:
            size, reached, _, unit = _Tables.of(c, multiplier, query, L)
            value = torch.log1p(size * reached) + eps
            query_scale = unit / torch.where(value > 0, value, 1.0)  # if it is 0, every distance is 0 too
            feature = torch.log1p(size * distance) / unit
            derivative = feature_derivative(c, distance, L)
        ctx.mark_non_differentiable(derivative)
        return feature, query_scale, derivative

    @staticmethod
    def of(c: Tensor, multiplier: Tensor, query: Tensor, L: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return |c|, max(threshold, i), the threshold |multiplier| · `L`, and ψ(`L`), or 1 if that is 0."""
        threshold = (multiplier.to(table_dtype(query.device)) * L).abs()
        size = c.to(threshold.dtype).abs()
        unit = torch.log1p(size * L)
        return size, torch.maximum(threshold, query), threshold, torch.where(unit > 0, unit, 1.0)

    @staticmethod
    def backward(ctx: Any, grad_feature: Tensor, grad_scale: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        c, multiplier, distance, query = ctx.saved_tensors  # read once: under checkpointing a second access is an error
        tensors = (c, multiplier, distance, query, grad_feature, grad_scale)
        if not torch.is_grad_enabled() and piecewise.uses_library(*tensors):
            signed, times = c.item(), multiplier.item() * ctx.L
            gradients = segments.fire_tables_backward(
                abs(signed), abs(times), ctx.L, ctx.eps, distance, query, grad_feature, grad_scale
            )
            grad_c = c.new_full((), gradients[0] * _sign(signed))
            return grad_c, multiplier.new_full((), gradients[1] * _sign(times) * ctx.L), *[None] * 4
        if not torch.is_grad_enabled() and piecewise.uses_gpu_kernels(*tensors):
            from lengthwise.native import gpu_segments

            return *gpu_segments.fire_tables_backward(*tensors, ctx.L, ctx.eps), *[None] * 4
        size, reached, threshold, unit = _Tables.of(c, multiplier, query, ctx.L)
        value = torch.log1p(size * reached) + ctx.eps
        counts = value > 0
        over = 1 / torch.where(counts, value, 1.0)
        psi = torch.log1p(size * distance)
        grad_unit = (grad_scale * over).sum() - (grad_feature * psi).sum() / unit**2
        grad_unit = torch.where(size * ctx.L > 0, grad_unit, 0.0)
        grad_inner = torch.where(counts, grad_scale * over * over, 0.0) * unit / (-1 - size * reached)
        grad_size = (grad_feature * (distance / (1 + size * distance))).sum() / unit + (grad_inner * reached).sum()
        grad_size = grad_size + grad_unit * (ctx.L / (1 + size * ctx.L))
        above = ((threshold.detach() - query).sign() + 1) / 2  # 1/2 at ties, like the gradient of torch.maximum
        grad_threshold = (grad_inner * above).sum() * size
        return (
            (grad_size * c.sign()).to(c.dtype),
            (grad_threshold * multiplier.sign() * ctx.L).to(multiplier.dtype),
            *[None] * 4,
        )


def _sign(x: float) -> float:
    return float((x > 0) - (x < 0)) if x == x else x
