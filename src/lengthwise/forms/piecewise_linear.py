"""`PiecewiseLinearBias`: a bias that is linear in each segment of a coordinate."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.base import Term
from lengthwise.forms.pairs import Pair, column_of_pair, reader
from lengthwise.forms.plain import PairIndex, entry, number
from lengthwise.forms.tables import by_distance, column, piecewise_linear
from lengthwise.span import Span


@dataclass(frozen=True)
class PiecewiseLinearBias(Term):
    """`+ slope[h, s] · x + intercept[h, s]`, with the coordinate x = distance_feature[i−j] · query_scale[i], for FIRE.

    The bias is piecewise linear in x. The knots separate its segments, ascend, and are shared by all heads; s is the
    number of knots that are <= x. `distance_feature` has one entry per distance, `query_scale` one per query. A
    distance past either end of `distance_feature` takes the nearest entry.

    `exact`: the function of x that the segments approximate, x [..., 1] -> [..., h]; None if the segments are exact. It
    defines the result, so the reference evaluates it for every pair. Other backends use the segments. The encoding that
    builds them documents their error.

    `feature_parameter`, `feature_derivative`: the number that `distance_feature` is computed from, and the derivative
    of each entry by it. On a GPU, the fused kernels sum the gradient of this number, and none for each distance.
    """

    slope: Float[Tensor, "#h s"]
    intercept: Float[Tensor, "#h s"]
    knots: Float[Tensor, " s-1"]
    distance_feature: Float[Tensor, " n"]
    query_scale: Float[Tensor, "#b i"]
    exact: Callable[[Tensor], Tensor] | None = None
    distances: Int[Tensor, " n"] | None = None
    feature_parameter: Float[Tensor, "1"] | None = None
    feature_derivative: Float[Tensor, " n"] | None = None

    cost = ("line segments, and a number for each distance and each query: O(n)", "O(h n²)")
    cacheable = True
    kernel = "arguments"

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b #h i j"]:
        feature = self.distance_feature[column(span.distance(), len(self.distance_feature), 0, self.distances)]
        x = feature * self.query_scale[..., None]
        if self.exact is not None:
            return self.exact(x[..., None]).movedim(-1, 1)
        s = torch.bucketize(x.detach(), self.knots, right=True)  # the number of knots <= x
        return (self.slope[:, s] * x + self.intercept[:, s]).transpose(0, 1)

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        feature = float(entry(self.distance_feature[None], 0, distance, 0, self.distances))
        x, h = feature * number(self.query_scale, index[0], index[2]), index[1]
        if self.exact is not None:
            return float(self.exact(torch.tensor([x], dtype=torch.float64))[h])
        s = sum(knot <= x for knot in self.knots.tolist())
        return number(self.slope, h, s) * x + number(self.intercept, h, s)

    def block(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b #h i j"]:
        feature = by_distance(self.distance_feature[None], span, 0, self.distances)[0]
        x = feature * self.query_scale[..., None]
        return piecewise_linear(self.slope, self.intercept, self.knots, x).transpose(0, 1)

    def pair(self, q: Tensor, k: Tensor, span: Span, scale: float, dtype: torch.dtype) -> Pair:
        """Return the bias as a function of one pair. It finds the segment by bisection in a fixed number of steps."""
        if self.distances is not None:  # see ToeplitzBias
            return reader(replace(self, exact=None).dense(q, k, span, scale).to(dtype))
        knots = self.knots.detach().to(dtype)
        halves = [2**n for n in reversed(range(len(knots).bit_length()))]
        knots = torch.cat([knots, knots.new_full((sum(halves) - len(knots),), torch.inf)])
        # x = inf also lies past the padding knots, so the last segment is repeated.
        segment = torch.arange(len(knots) + 1, device=knots.device).clamp(max=self.slope.shape[1] - 1)
        slope, intercept = (reader(x.to(dtype).index_select(1, segment)) for x in (self.slope, self.intercept))
        distance_feature, query_scale = (reader(x.to(dtype)) for x in (self.distance_feature, self.query_scale))
        column_of = column_of_pair(span, 0, len(self.distance_feature))

        @no_type_check
        def pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            x = distance_feature(column_of(b, h, i, j)) * query_scale(b, i)
            s = torch.zeros_like(j)
            for half in halves:
                s = s + half * (knots[s + half - 1] <= x)
            return slope(h, s) * x + intercept(h, s)

        return pair
