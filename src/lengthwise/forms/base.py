"""`Form`, the protocol of what an encoding may ask of attention, and `Term`, that of what is added to logits."""

import itertools
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms.pairs import Pair, reader
from lengthwise.forms.plain import PairIndex
from lengthwise.span import PairBlock, Span
from lengthwise.values import ConfigError

F = TypeVar("F", bound="Form")  # beartype, which checks annotations in the tests, knows no `Self` in methods alone
T = TypeVar("T", bound="Term")
# Functions of a tensor and one of its axes, by the name of the axis; None removes every tensor with this axis.
AxisFunctions = Mapping[str, Callable[[Tensor, int], Tensor] | None]

_WORDS = {"b": "batch", "h": "heads", "i": "queries", "j": "keys", "d": "head dim"}


class CallSizes(NamedTuple):
    """What the tensors of a form have to fit."""

    b: int
    h: int
    i: int
    j: int
    d: int
    device: torch.device
    owner: str  # of the form, for messages: " of ALiBi", or nothing


@dataclass(frozen=True)
class Form:
    """One thing that an encoding may ask of attention. A subclass is a frozen dataclass.

    The annotation of a tensor names its axes: b (batch), h (heads), i (queries), j (keys) and d (head dim) are those of
    the call, and #h means 1 or h. Other names have to agree within one form. From these names follow `heads`, `select`,
    `map_axes` and `check`.
    """

    axes: ClassVar[dict[str, tuple[str, ...]]]  # of every field that is a tensor with named axes
    dtypes: ClassVar[dict[str, tuple[str, ...]]]  # that these fields may have
    cacheable: ClassVar[bool] = (
        False  # whether it is indexed by distances or by the positions of queries and keys alone
    )
    # The memory of the form, and the time in each layer in addition to attention itself, for the documentation of
    # encodings: n tokens, h heads, d dimensions of a head.
    cost: ClassVar[tuple[str, str] | None] = None

    def __init_subclass__(cls) -> None:
        cls.axes, cls.dtypes = {}, {}
        for name, hint in typing.get_type_hints(cls).items():
            for member in (hint, *typing.get_args(hint)):
                axes = getattr(member, "dim_str", None)
                if axes is not None and "..." not in axes:
                    cls.axes[name], cls.dtypes[name] = tuple(axes.split()), tuple(member.dtypes)

    @property
    def bidirectional(self) -> bool:
        """Whether the form is also defined for keys after the query."""
        return False

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors with named axes."""
        return {name: x for name in self.axes if (x := getattr(self, name)) is not None}

    @property
    def heads(self) -> int:
        """How many heads the form has; 1 if all heads share it."""
        # torch.compile knows no `default` of max.
        return max([1, *(x.shape[axis] for x, axis in self.along("h"))])

    def along(self, *names: str) -> list[tuple[Tensor, int]]:
        """Return the tensors with an axis that has one of the names, and this axis."""
        return [
            (x, n)
            for name, x in self.tensors.items()
            for n, axis in enumerate(self.axes[name])
            if axis.lstrip("#") in names
        ]

    def map_axes(self: F, functions: AxisFunctions) -> F:
        """Return the form with functions applied along axes of its tensors; itself if no tensor has such an axis."""
        if not self.along(*functions):
            return self
        return replace(self, **{name: along_axes(x, self.axes[name], functions) for name, x in self.tensors.items()})

    def select(self: F, block: PairBlock) -> F:
        """Return the part of the form for some rows of the batch, queries and keys."""
        return self.map_axes(selection(block))

    def check(self, sizes: CallSizes) -> None:
        """Raise `ConfigError` unless every tensor has the shape of its annotation, and is on the device of q.

        Backends rely on it: the compiled kernel would read beyond a table with too few heads.
        """
        axis_sizes: dict[str, int] = dict(zip("bhijd", sizes[:5], strict=True))
        for name, axes in self.axes.items():
            if (x := getattr(self, name)) is None:
                continue
            title = f"{type(self).__name__}.{name}{sizes.owner}"
            require_tensor(title, x, sizes.device, self.dtypes[name])
            if len(axes) != x.ndim or not all(map(_fits, axes, x.shape, itertools.repeat(axis_sizes))):
                expected = ", ".join(_in_words(axis, axis_sizes) for axis in axes)
                raise ConfigError(f"{title} has shape {list(x.shape)}; it must be [{expected}]")


class Term(Form, ABC):
    """Something that is added to logits, in nats.

    `dense` is its definition. Everything else has a default that follows from it.
    """

    reads_q: ClassVar[bool] = False  # whether `dense` reads q
    reads_k: ClassVar[bool] = False
    keeps_dtype: ClassVar[bool] = (
        False  # `dense` is computed in the dtype of the tensors, because differences are small
    )
    kernel: ClassVar[str | None] = (
        None  # what the fused kernels take it as (`terms_for` in fused/tables.py); None: nothing
    )

    @property
    def has_bias(self) -> bool:
        """Whether a part of the values depends neither on q nor on k."""
        return not (self.reads_q or self.reads_k)

    @abstractmethod
    def dense(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span, scale: float
    ) -> Float[Tensor, "#b #h #i #j"]:
        """Return the values for every pair of a query and a key. q and k are those before rotation."""

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        """Return the value of one pair in plain Python: a second definition, for `lengthwise check`.

        index: where the pair is in the tensors of the form. q, k: the numbers of the query and the key.
        """
        raise ConfigError(
            f"{type(self).__name__} has no plain_value, with which its dense has to be compared; define it as "
            "forms.Term says"
        )

    def bind_content(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], scale: float) -> "Term":
        """Return a term with the same values that does not read this q and k; itself if it has no such form."""
        return self

    def block(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span, scale: float
    ) -> Float[Tensor, "#b #h #i #j"]:
        """Return the same as `dense`, perhaps faster, with sums in a fixed order; for one derivative."""
        return self.dense(q, k, span, scale)

    def pair(self, q: Tensor, k: Tensor, span: Span, scale: float, dtype: torch.dtype) -> Pair:
        """Return the values as a function of one pair, for FlexAttention. By default it reads those of all pairs."""
        return reader(self.dense(q, k, span, scale).to(dtype))

    def in_dtype(self: T, dtype: torch.dtype) -> T:
        """Return the term with its numbers in another dtype, unless it `keeps_dtype`."""
        numbers = {name: x.to(dtype) for name, x in self.tensors.items() if x.is_floating_point()}
        return self if self.keeps_dtype else replace(self, **numbers)


def along_axes(x: Tensor, axes: tuple[str, ...], functions: AxisFunctions) -> Any:
    """Return a tensor with functions applied along its axes. An axis of size 1 serves all entries and stays."""
    for n, axis in enumerate(axes):
        name = axis.lstrip("#")
        if name not in functions:
            continue
        if (function := functions[name]) is None:
            return None
        if x.shape[n] != 1:
            x = function(x, n)
    return x


def selection(block: PairBlock) -> AxisFunctions:
    """Return the functions that select a block along the axes of the batch, the queries and the keys."""

    def entries(indices: slice) -> Callable[[Tensor, int], Tensor]:
        return lambda x, axis: x[(slice(None),) * axis + (indices,)]

    return {"b": entries(block.batch), "i": entries(block.queries), "j": entries(block.keys)}


def require_tensor(name: str, value: object, device: torch.device, dtypes: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless `value` is a tensor on the device of q with one of the dtypes.

    Kernels read the memory of a tensor at its address, which means nothing on another device.
    """
    if not isinstance(value, Tensor):
        raise ConfigError(f"{name} must be a tensor, got {type(value).__name__}")
    if (dtype := str(value.dtype).removeprefix("torch.")) not in dtypes:
        raise ConfigError(f"{name} must be a tensor of {', '.join(dtypes[-2:])}, got {dtype}; convert it")
    if value.device != device:
        raise ConfigError(f"{name} must be on the device of q, {device}, got {value.device}")


def _fits(axis: str, size: int, axis_sizes: dict[str, int]) -> bool:
    broadcasts, name, less = axis.startswith("#"), axis.lstrip("#"), 0
    if match := re.fullmatch(r"(\w+)-(\d+)", name):
        name, less = match[1], int(match[2])
    if broadcasts and size == 1:
        return True
    if size < 1 and not less and name not in _WORDS:
        return False  # an empty table has no nearest column
    return size == axis_sizes.setdefault(name, size + less) - less


def _in_words(axis: str, axis_sizes: dict[str, int]) -> str:
    name = axis.lstrip("#")
    words = f"{axis_sizes[name]} {_WORDS[name]}" if name in _WORDS else name if "-" in name else f"{name} >= 1"
    return f"1 or {words}" if axis.startswith("#") else words
