"""The arguments of the fused operators (operator.py, relative.py) in named groups.

torch.library knows only flat lists of arguments. The schemas and the methods `flatten` and `unflatten` of this module are the only
places that know their order. "The compute dtype" is float32 for half precision, otherwise the dtype of q. Tables of numbers
are contiguous.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Segments(NamedTuple):
    """A bias that is linear in each segment of x = distance_feature[distance] · query_scale[i]; see `PiecewiseLinearBias`.

    slope, intercept [h|1, s], knots [s-1], distance_feature [n], query_scale [b|1, i]: in the compute dtype or float64. With
    float64 their gradients are float64 too, and a CPU decides exactly on which side of a knot x lies.
    """

    slope: Tensor
    intercept: Tensor
    knots: Tensor
    distance_feature: Tensor
    query_scale: Tensor


class Biases(NamedTuple):
    """Biases that depend on the distance: a table [h|1, n] in the compute dtype, from distance `first` on, and segments."""

    table: Tensor | None = None
    first: int = 0
    segments: Segments | None = None

    def flatten(self) -> tuple[Any, ...]:
        return self.table, self.first, *(self.segments or (None,) * 5)

    @classmethod
    def unflatten(cls, flat: Sequence[Any]) -> "Biases":
        table, first, *segments = flat
        return cls(table, first, None if segments[0] is None else Segments(*segments))


class Rows(NamedTuple):
    """A bias for each query and distance: a table [b, h|1, i, r] in the compute dtype, from distance `first` on; on a GPU only."""

    table: Tensor | None = None
    first: int = 0


class Geometry(NamedTuple):
    """Which position each token has, and which keys are visible to each query.

    position_q [b|1, i], position_k [b|1, j]: None if the position of every token is its index. documents [b|1, j]; `causal` and
    `window` (0: none) as in `Mask`.
    """

    position_q: Tensor | None = None
    position_k: Tensor | None = None
    documents: Tensor | None = None
    causal: bool = True
    window: int = 0


class Rotary(NamedTuple):
    """The cosines and sines of a rotation, including its gains, that q and k are rotated by first; on a CPU only.

    cos_sin_q [b|1, i, 2, pairs], cos_sin_k [b|1, j, 2, pairs]: in the compute dtype, or None. Pairs are dims 2p and 2p + 1
    (`interleaved`), or p and p + pairs.
    """

    cos_sin_q: Tensor | None = None
    cos_sin_k: Tensor | None = None
    interleaved: bool = True


class Vectors(NamedTuple):
    """Products of a vector per query and a vector per distance: <content_i, table[h, distance - first]>.

    content [b, h, i, r] and table [h|1, n, r] in the compute dtype.
    """

    content: Tensor
    table: Tensor
    first: int


class ValueVectors(NamedTuple):
    """Vectors of distances that are added to the values, from distance `first` on.

    table [h|1, n, d] in the compute dtype, or None. A GPU's kernels need `Rows` of all heads with the same distances.
    """

    table: Tensor | None = None
    first: int = 0


class Arguments(NamedTuple):
    """The arguments of `lengthwise::attention` after q, k and v.

    sink [h]: a logit of each head in the denominator of the softmax, in the compute dtype, or None. prefix_sum [b, h|1, j]: a
    running sum over the keys in float64, or None; the bias of a pair is what it gained between the key and the query's own
    key.
    """

    biases: Biases = Biases()
    rows: Rows = Rows()
    geometry: Geometry = Geometry()
    scale: float = 1.0
    rotary: Rotary = Rotary()
    sink: Tensor | None = None
    prefix_sum: Tensor | None = None
    values: ValueVectors = ValueVectors()

    def flatten(self) -> tuple[Any, ...]:
        last = self.sink, self.prefix_sum, *self.values
        return *self.biases.flatten(), *self.rows, *self.geometry, self.scale, *self.rotary, *last

    @classmethod
    def unflatten(cls, flat: Sequence[Any]) -> "Arguments":
        """Return the groups. A dispatcher leaves out the last arguments if they are the defaults."""
        biases, rows, geometry, scale, rotary = flat[:7], flat[7:9], flat[9:14], flat[14], flat[15:18]
        (sink, prefix_sum), values = (*flat[18:20], None, None)[:2], ValueVectors(*flat[20:])
        groups = Biases.unflatten(biases), Rows(*rows), Geometry(*geometry), scale, Rotary(*rotary)
        return cls(*groups, sink, prefix_sum, values)


class RelativeArguments(NamedTuple):
    """The arguments of `lengthwise::relative_attention` after q, k and v."""

    vectors: Vectors
    biases: Biases
    geometry: Geometry
    scale: float
    sink: Tensor | None = None
    prefix_sum: Tensor | None = None
    values: ValueVectors = ValueVectors()

    def flatten(self) -> tuple[Any, ...]:
        last = self.sink, self.prefix_sum, *self.values
        return *self.vectors, *self.biases.flatten(), *self.geometry, self.scale, *last

    @classmethod
    def unflatten(cls, flat: Sequence[Any]) -> "RelativeArguments":
        vectors, biases, geometry, scale = flat[:3], flat[3:10], flat[10:15], flat[15]
        (sink, prefix_sum), values = (*flat[16:18], None, None)[:2], ValueVectors(*flat[18:])
        groups = Vectors(*vectors), Biases.unflatten(biases), Geometry(*geometry), scale
        return cls(*groups, sink, prefix_sum, values)


class NeedsGrad(NamedTuple):
    """Which gradients other than those of q, k and v a backward pass computes."""

    table: bool
    segments: bool
    rows: bool = False
    sink: bool = False
    prefix_sum: bool = False
    values: bool = False


_HEADS = "Tensor q, Tensor k, Tensor v"
_BIASES = (
    "Tensor? table, SymInt first, Tensor? slope, Tensor? intercept, Tensor? knots, Tensor? distance_feature, "
    "Tensor? query_scale"
)
_ROWS = "Tensor? rows, SymInt rows_first"
_GEOMETRY = "Tensor? position_q, Tensor? position_k, Tensor? documents, bool causal, SymInt window, float scale"
_ROTARY = "Tensor? cos_sin_q=None, Tensor? cos_sin_k=None, bool interleaved=True"
_LAST = "Tensor? sink=None, Tensor? prefix_sum=None, Tensor? value_vectors=None, SymInt value_first=0"
_LAST_NEEDS = "bool needs_sink_grad, bool needs_prefix_sum_grad, bool needs_value_grad"
_VECTORS = "Tensor content, Tensor relative, SymInt relative_first"
_SAVED = f"Tensor grad, {_HEADS}, Tensor out, Tensor lse"


def _schema(arguments: Iterable[str], results: int) -> str:
    return f"({', '.join(arguments)}) -> ({', '.join(['Tensor'] * results)})"


def _without_defaults(arguments: str) -> str:
    return ", ".join(argument.partition("=")[0] for argument in arguments.split(", "))


ATTENTION = _schema((_HEADS, _BIASES, _ROWS, _GEOMETRY, _ROTARY, _LAST), 2)
ATTENTION_BACKWARD = _schema(
    (
        *(_SAVED, _BIASES, _ROWS, _GEOMETRY, _without_defaults(_ROTARY), _without_defaults(_LAST)),
        f"bool needs_table_grad, bool needs_segment_grads, bool needs_rows_grad, {_LAST_NEEDS}",
    ),
    12,
)
RELATIVE = _schema((_HEADS, _VECTORS, _BIASES, _GEOMETRY, _LAST), 2)
RELATIVE_BACKWARD = _schema(
    (
        *(_SAVED, _VECTORS, _BIASES, _GEOMETRY, _without_defaults(_LAST)),
        f"bool needs_table_grad, bool needs_segment_grads, {_LAST_NEEDS}",
    ),
    13,
)


def declared(schema: str) -> list[tuple[str, str]]:
    """Return the type and the name of every argument of a schema, in order."""
    return [(kind, name.partition("=")[0]) for kind, name in map(str.split, schema[1 : schema.index(")")].split(", "))]
