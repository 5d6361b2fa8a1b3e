"""`Span`: the position IDs of the queries and keys of one attention call.

Axis letters in the whole project: `b` batch, `h` heads, `i` queries, `j` keys, `n` distances, `d` head dim, `c` model
width.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError

MAX_LENGTH = 2**53  # position IDs below it are exact in float64


class PairBlock(NamedTuple):
    """Some rows of the batch, some queries, and keys: indices with a beginning and an end, or all of them."""

    batch: slice = slice(None)
    queries: slice = slice(None)
    keys: slice = slice(None)


@dataclass(frozen=True)
class Span:
    """The position IDs of the queries and keys of one attention call.

    A *position* (position ID) is the number that a token gives to the encoding; an *index* is where the token lies in
    the tensor. They differ because packed documents restart positions and position schemes may leave gaps. With a KV
    cache there are fewer queries than keys. The batch axis is 1 if every row of the batch has the same positions.

    `q`, `k`: the positions of queries and keys. For positions with several axes, the highest of a token's axes. So the
    length, and the position of a token that follows without positions of its own, are those of Qwen2-VL.
    `length`: every position is below it. It is the only length that an encoding may read. It is a plain int, so reading
    it does not wait for the device.
    `consecutive`: whether keys are known to have positions 0 ... length-1, with the queries as the last of them. It is
    set by the caller and not computed from the tensors.
    `first`: no position is below it. So every distance is below `distance_bound` = length - first, the size that a
    table over distances needs.
    `length_q`, `length_k`: for every token the length of its own document in its row (the highest position + 1), for
    encodings that depend on the current length. None if it is `length` for all tokens, or if no encoding needs it.
    `lag`: the position of the first query less that of the first key, if the positions of queries and keys are known to
    ascend one by one. It follows from `consecutive`, and `select` keeps it.
    `axes_q`, `axes_k`: positions with several axes, for example time, row and column. None: every axis of a token is
    its position ID, as for text. Only encodings with several axes read them; `modifiers_of` raises for any other.
    """

    q: Int[Tensor, "b i"]
    k: Int[Tensor, "b j"]
    length: int
    consecutive: bool = False
    length_q: Int[Tensor, "_ i"] | None = None
    length_k: Int[Tensor, "_ j"] | None = None
    first: int = 0
    axes_q: Int[Tensor, "_ i axes"] | None = None
    axes_k: Int[Tensor, "_ j axes"] | None = None
    lag: int | None = None

    def __post_init__(self) -> None:
        if self.consecutive:
            object.__setattr__(self, "lag", self.k.shape[1] - self.q.shape[1])
        for name, positions in (("q", self.q), ("k", self.k)):
            _require_integers(f"Span: {name}", positions)
        if torch.compiler.is_compiling():  # lengths are symbols in a graph and cannot be compared
            return
        if isinstance(self.length, int) and not 0 <= self.length <= MAX_LENGTH:
            raise ConfigError(f"Span: length must be the highest position + 1, from 0 to 2^53, got {self.length}")

    @property
    def distance_bound(self) -> int:
        """A bound: every distance is below it."""
        return self.length - self.first

    @classmethod
    def of(cls, keys: int, queries: int | None = None, device: torch.device | str | None = None) -> "Span":
        """Return the span of keys at 0 ... keys-1, whose last `queries` tokens (default: all) are the queries."""
        k = torch.arange(keys, device=device)[None]
        return cls(k[:, keys - (keys if queries is None else queries) :], k, keys, consecutive=True)

    @property
    def num_axes(self) -> int:
        """How many axes the positions have."""
        return 1 if self.axes_k is None else self.axes_k.shape[-1]

    def select(self, block: PairBlock) -> "Span":
        """Return the span of some rows of the batch, queries and keys."""

        def tokens_of(x: Tensor, tokens: slice) -> Tensor:
            return x[block.batch if len(x) > 1 else slice(None), tokens]

        def optional(x: Tensor | None, tokens: slice) -> Tensor | None:
            return None if x is None else tokens_of(x, tokens)

        queries, keys = block.queries, block.keys
        return replace(
            self,
            q=tokens_of(self.q, queries),
            k=tokens_of(self.k, keys),
            consecutive=False,
            length_q=optional(self.length_q, queries),
            length_k=optional(self.length_k, keys),
            axes_q=optional(self.axes_q, queries),
            axes_k=optional(self.axes_k, keys),
            lag=None if self.lag is None else self.lag + (queries.start or 0) - (keys.start or 0),
        )

    def distance(self) -> Int[Tensor, "b i j"]:
        """Return query position - key position for every pair; it is at least 0 when the query looks back."""
        return self.q[:, :, None] - self.k[:, None, :]


def document_lengths(positions: Int[Tensor, "#b t"], documents: Int[Tensor, "#b t"] | None) -> Int[Tensor, "b t"]:
    """Return for every token the length of its own document in its row: the highest position + 1.

    >>> document_lengths(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([[7, 7, 7, 8, 8]]))
    tensor([[3, 3, 3, 2, 2]])
    """
    if documents is None:
        return (positions.amax(1, keepdim=True) + 1).expand_as(positions)
    positions, documents = torch.broadcast_tensors(positions, documents)
    sorted_documents, order = documents.sort(dim=1, stable=True)
    starts = torch.zeros_like(documents)
    starts[:, 1:] = sorted_documents[:, 1:] != sorted_documents[:, :-1]
    number = torch.zeros_like(order).scatter_(1, order, starts.cumsum(1))  # the documents of a row, counted from 0
    return torch.zeros_like(positions).scatter_reduce_(1, number, positions + 1, "amax").gather(1, number)


def lowest_and_highest(positions: Int[Tensor, "b t *axes"]) -> tuple[int, int]:
    """Return the lowest and the highest position. This waits for the device once.

    Raise `ConfigError` for positions below 0 or from 2^53 on.
    """
    if not positions.numel():
        return 0, 0
    if torch.compiler.is_compiling():  # a graph reads only the number that tables need; 0 serves as the lower bound
        torch._assert_async((positions >= 0).all(), "positions must be at least 0")
        highest = int(positions.max().item())
        torch._check(highest >= 0)
        torch._check(highest < MAX_LENGTH)
        return 0, highest
    lowest, highest = (int(p) for p in torch.stack(torch.aminmax(positions)).tolist())
    if lowest < 0:
        raise ConfigError(f"positions must be at least 0, got {lowest}")
    if highest >= MAX_LENGTH:
        raise ConfigError(
            f"positions must be below 2^53, up to where float64 holds whole numbers exactly, got {highest}; subtract "
            "the first position from all, or count in larger units"
        )
    return lowest, highest


def token_integers(name: str, value: object, rows: int, tokens: int) -> Int[Tensor, "#b t"] | None:
    """Return `value` as int64, so that smaller dtypes do not wrap around later. None stays None.

    Raise `ConfigError` unless it holds whole numbers with the shape [rows or 1, tokens].
    """
    if value is None:
        return None
    integers = _require_integers(name, value)
    if integers.ndim != 2 or integers.shape[1] != tokens or integers.shape[0] not in (1, rows):
        raise ConfigError(
            f"{name} must have the shape [{rows} or 1, {tokens}], one per token, got {tuple(integers.shape)}"
        )
    return integers.long()


def all_axes(positions: Int[Tensor, "b t"], axes: int) -> Int[Tensor, "b t axes"]:
    """Return positions in which every axis of a token is its position ID."""
    return positions[..., None].expand(-1, -1, axes)


def token_positions(
    name: str, value: object, rows: int, tokens: int
) -> tuple[Int[Tensor, "#b t"] | None, Int[Tensor, "#b t axes"] | None]:
    """Return positions [rows or 1, tokens] or [rows or 1, tokens, axes] as int64: one number for each token, and its
    axes.

    With axes, the number is the highest of them. A single axis is the same as none. None stays None. Raise
    `ConfigError` for other shapes.
    """
    if not isinstance(value, Tensor) or value.ndim != 3:
        return token_integers(name, value, rows, tokens), None
    axes = _require_integers(name, value).long()
    if axes.shape[1] != tokens or axes.shape[0] not in (1, rows) or not axes.shape[2]:
        raise ConfigError(
            f"{name} must have the shape [{rows} or 1, {tokens}] or [{rows} or 1, {tokens}, axes], got "
            f"{tuple(axes.shape)}"
        )
    if axes.shape[2] == 1:
        return axes[..., 0], None
    return axes.amax(-1), axes


def _require_integers(name: str, value: object) -> Tensor:
    """Return `value`; raise `ConfigError` unless it is a tensor of whole numbers that int64 can represent."""
    if not isinstance(value, Tensor):
        raise ConfigError(f"{name} must be a tensor of whole numbers (int64), got a {type(value).__name__}")
    if value.is_floating_point() or value.is_complex() or value.dtype in (torch.bool, torch.uint64):
        raise ConfigError(f"{name} must hold whole numbers (int64), got {value.dtype}")
    return value
