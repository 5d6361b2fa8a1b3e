"""The arguments of fused attention after q, k and v, declared once.

`Arguments` is the list. The schemas of the operators (at the end), the structure of a call of the C++ library with its
header (call.py) and the tuple of the Triton kernels (gpu/call.py) are generated from it, so a new argument is a new
line here.
"""

import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

CALL_AXES = ("batch", "heads", "queries", "keys", "dim")  # axes with the sizes of the call
COMPUTE = None  # the dtype that attention computes in: float32 for half precision, otherwise the dtype of q
CPP, TRITON = "C++", "Triton"


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor. Its size is that of the axis `name`, less `less`; with `shared` it may also be 1."""

    name: str
    shared: bool
    less: int

    @property
    def is_sized_by_tensor(self) -> bool:
        """Whether the tensors with this axis, and not the call, say how large it is."""
        return self.name not in CALL_AXES and not self.name.isdigit() and not self.less

    @classmethod
    def parse(cls, text: str) -> "Axis":
        """Read an axis as annotations of forms write it: "heads", "#heads" or "segments-1"."""
        name, _, less = text.lstrip("#").partition("-")
        return cls(name, text.startswith("#"), int(less or 0))


@dataclass(frozen=True)
class TensorArgument:
    """What an argument that is a contiguous tensor looks like.

    `axes`: see `CALL_AXES`; other names have to agree among the tensors of a call. `learned`: whether it has a
    gradient. `group`: the arguments whose gradients are computed together. `sums`: the axes of the float64 tensor that
    the kernels write the gradient to (`gradient_sums` in buffers.py); none if they write the gradient itself.
    `by_distance`: whether it is a bias that depends on the distance. `kernels`: which kernels read it.
    """

    axes: tuple[Axis, ...]
    dtype: torch.dtype | None
    learned: bool
    group: str
    sums: tuple[str, ...]
    by_distance: bool
    kernels: tuple[str, ...]


def tensor(
    axes: str,
    dtype: torch.dtype | None = COMPUTE,
    *,
    learned: bool = False,
    group: str = "",
    sums: str = "",
    by_distance: bool = False,
    kernels: tuple[str, ...] = (CPP, TRITON),
) -> TensorArgument:
    parsed = tuple(map(Axis.parse, axes.split()))
    return TensorArgument(parsed, dtype, learned, group, tuple(sums.split()), by_distance, kernels)


def learned(axes: str, dtype: torch.dtype | None = COMPUTE, **more: Any) -> TensorArgument:
    return tensor(axes, dtype, learned=True, **more)


MaybeTensor = Tensor | None


class Arguments(NamedTuple):
    """The arguments, with their defaults. Tables of numbers are contiguous; None: there is no such thing in this call.

    A table over distances begins at the distance `..._first`, and distances past an end take the nearest entry.
    """

    # A bias for each distance: table[h, distance - table_first].
    table: Annotated[MaybeTensor, learned("#heads table_size", by_distance=True)] = None
    table_first: int = 0

    # A bias that is linear in each segment of x = distance_feature[distance] * query_scale[i]: slope[h, s] x +
    # intercept[h, s], where s is the number of knots <= x. The knots ascend. In float32, rounding would decide which
    # segment a pair is in wherever x is close to a knot.
    slope: Annotated[MaybeTensor, learned("#heads segments", torch.float64, group="segments", by_distance=True)] = None
    intercept: Annotated[MaybeTensor, learned("#heads segments", torch.float64, group="segments")] = None
    knots: Annotated[MaybeTensor, tensor("segments-1", torch.float64, group="segments")] = None
    distance_feature: Annotated[MaybeTensor, learned("feature_size", torch.float64, group="segments")] = None
    query_scale: Annotated[MaybeTensor, learned("#batch queries", torch.float64, group="segments")] = None

    # The number that distance_feature is computed from, and the derivative of distance_feature by it. Only the gradient
    # of this number is computed on a GPU, and that of distance_feature on a CPU.
    feature_parameter: Annotated[MaybeTensor, learned("1", group="segments", kernels=(TRITON,))] = None
    feature_derivative: Annotated[
        MaybeTensor, tensor("feature_size", torch.float64, group="segments", kernels=(TRITON,))
    ] = None

    # A bias for each query and distance: rows[b, h, i, distance - rows_first]. The operator makes it from `content` and
    # `key_vectors` on a GPU.
    rows: Annotated[MaybeTensor, learned("batch #heads queries rows_size", by_distance=True, kernels=(TRITON,))] = None
    rows_first: int = 0

    # A bias <content[b, h, i], key_vectors[h, distance - key_vectors_first]>, and vectors of distances that are added
    # to the values: v_j + value_vectors[h, distance - value_vectors_first].
    content: Annotated[MaybeTensor, learned("batch heads queries content_dim", group="vectors", kernels=(CPP,))] = None
    key_vectors: Annotated[
        MaybeTensor, learned("#heads key_vectors_size content_dim", group="vectors", kernels=(CPP,))
    ] = None
    key_vectors_first: int = 0
    value_vectors: Annotated[MaybeTensor, learned("#heads value_vectors_size dim", kernels=(CPP,))] = None
    value_vectors_first: int = 0

    # A running sum over the keys. The bias is prefix_sum[b, h, own key of i] - prefix_sum[b, h, j].
    prefix_sum: Annotated[MaybeTensor, learned("batch #heads keys", torch.float64, sums="batch heads keys")] = None

    # A logit of each head: exp(sink[h]) is added to the denominator of the softmax.
    sink: Annotated[MaybeTensor, learned("heads", sums="batch heads")] = None

    # Position IDs; None if the position of every token is its index. Document IDs: a query sees keys of its own
    # document only.
    position_q: Annotated[MaybeTensor, tensor("#batch queries", torch.int64)] = None
    position_k: Annotated[MaybeTensor, tensor("#batch keys", torch.int64)] = None
    documents: Annotated[MaybeTensor, tensor("#batch keys", torch.int64)] = None

    # Which other keys are visible, as in `Mask`; a window of 0 is none. What products of queries and keys are
    # multiplied by.
    causal: bool = True
    window: int = 0
    scale: float = 1.0

    # The cosines and then the sines of a rotation of q and k, multiplied by its gains. A pair is dims 2p and 2p + 1
    # (`interleaved`), or p and p + pairs.
    cos_sin_q: Annotated[MaybeTensor, tensor("#batch queries 2 pairs", kernels=(CPP,))] = None
    cos_sin_k: Annotated[MaybeTensor, tensor("#batch keys 2 pairs", kernels=(CPP,))] = None
    interleaved: bool = True


_HINTS = typing.get_type_hints(Arguments, include_extras=True)
TENSORS: dict[str, TensorArgument] = {
    name: hint.__metadata__[0] for name, hint in _HINTS.items() if hasattr(hint, "__metadata__")
}
NUMBERS: dict[str, type] = {name: hint for name, hint in _HINTS.items() if name not in TENSORS}
LEARNED = tuple(name for name, argument in TENSORS.items() if argument.learned)
BY_DISTANCE = tuple(name for name, argument in TENSORS.items() if argument.by_distance)
SEGMENT_GROUP = tuple(name for name, argument in TENSORS.items() if argument.group == "segments")
SEGMENTS = tuple(name for name in SEGMENT_GROUP if CPP in TENSORS[name].kernels)  # what the bias is computed from

Gradients = dict[str, Tensor]  # of q, k, v and everything in LEARNED, in this order
Needs = frozenset[str]  # the names in LEARNED whose gradients are needed


def names_for(kernel: str) -> list[str]:
    """Return the names of the arguments that a kernel reads. The first distance of a table belongs to the table."""
    owners = {name: TENSORS.get(name.removesuffix("_first")) for name in _HINTS}
    return [name for name, owner in owners.items() if owner is None or kernel in owner.kernels]


def with_groups(names: Iterable[str]) -> Needs:
    """Return the names of all learned arguments whose gradients are computed together with those of `names`."""
    groups = {TENSORS[name].group or name for name in names}
    return frozenset(name for name in LEARNED if (TENSORS[name].group or name) in groups)


# ---- the schemas of the operators, for torch.library

_SCHEMA_TYPES = {int: "SymInt", bool: "bool", float: "float"}
_DECLARED = ", ".join(f"{_SCHEMA_TYPES.get(hint, 'Tensor?')} {name}" for name, hint in _HINTS.items())
_QKV = "Tensor q, Tensor k, Tensor v"

ATTENTION = f"({_QKV}, {_DECLARED}) -> (Tensor, Tensor)"
ATTENTION_BACKWARD = (
    f"(Tensor grad, {_QKV}, Tensor out, Tensor lse, {_DECLARED}, str[] needs) -> "
    f"({', '.join(['Tensor'] * (3 + len(LEARNED)))})"
)
