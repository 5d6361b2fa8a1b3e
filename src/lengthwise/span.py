"""Span: where the queries and keys of one attention call stand.

Letters, for the whole project: `b` batch, `h` heads, `i` queries, `j` keys, `n` distances, `d` head dim, `c` model width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError

LARGEST = 2**53  # lengths up to it: positions are exact in float64 then


@dataclass(frozen=True)
class Span:
    """The positions of one attention call.

    A *position* is what a token claims, an *index* where it lies in the tensor: packed documents restart positions, a
    KV cache makes queries fewer than keys, a position scheme may leave gaps. All are numbers here. The batch axis is 1 where
    every row of the batch has the same positions.

    `length`: every position is below it; the only length an encoding may look at (a plain int, so that nothing waits
    for the device). `consecutive`: keys stand at 0 ... length-1 and queries are the last of them; known, not looked up.

    `first`: no position is below it, so that every distance is below `reach` = length - first: as much as a table of
    distances has to say.

    `length_q`, `length_k`: for every token the length of its own document in its own row (its furthest position + 1), for
    encodings that depend on the current length; None where that is `length` for all, or where nobody asks.
    """

    q: Int[Tensor, "b i"]
    k: Int[Tensor, "b j"]
    length: int
    consecutive: bool = False
    length_q: Int[Tensor, "b i"] | None = None
    length_k: Int[Tensor, "b j"] | None = None
    first: int = 0

    def __post_init__(self) -> None:
        for name, positions in (("q", self.q), ("k", self.k)):
            _require_whole(f"Span: {name}", positions)
        if torch.compiler.is_compiling():  # a length of a graph is a symbol, which has no size to compare
            return
        if isinstance(self.length, int) and not 0 <= self.length <= LARGEST:
            raise ConfigError(f"Span: length is {self.length}; it has to be 0 to 2^53, the highest position + 1")

    @property
    def reach(self) -> int:
        """Every distance is below it."""
        return self.length - self.first

    @classmethod
    def of(cls, keys: int, queries: int | None = None, device: torch.device | str | None = None) -> "Span":
        """Keys at 0 ... keys-1; queries are the last `queries` of them (all, when not given)."""
        k = torch.arange(keys, device=device)[None]
        return cls(k[:, keys - (keys if queries is None else queries) :], k, keys, consecutive=True)

    def distance(self) -> Int[Tensor, "b i j"]:
        """Query position - key position: at least 0 looking back."""
        return self.q[:, :, None] - self.k[:, None, :]


def own_lengths(positions: Int[Tensor, "#b t"], documents: Int[Tensor, "#b t"] | None) -> Int[Tensor, "b t"]:
    """For every token the furthest position + 1 of its own document in its own row.

    >>> own_lengths(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([[7, 7, 7, 8, 8]]))
    tensor([[3, 3, 3, 2, 2]])
    """
    if documents is None:
        return (positions.amax(1, keepdim=True) + 1).expand_as(positions)
    positions, documents = torch.broadcast_tensors(positions, documents)
    together, order = documents.sort(dim=1, stable=True)
    starts = torch.zeros_like(documents)
    starts[:, 1:] = together[:, 1:] != together[:, :-1]
    which = torch.zeros_like(order).scatter_(1, order, starts.cumsum(1))  # the documents of a row, counted from 0
    return torch.zeros_like(positions).scatter_reduce_(1, which, positions + 1, "amax").gather(1, which)


def ends(positions: Int[Tensor, "b t"]) -> tuple[int, int]:
    """The lowest and the highest position (waits for the device once). `ConfigError` when one is below 0 or not below 2^53."""
    if not positions.numel():
        return 0, 0
    if torch.compiler.is_compiling():  # a graph speaks of no number, but for the one that tables need: 0 is low enough
        torch._assert_async((positions >= 0).all(), "positions go down below 0; the first position is 0")
        highest = int(positions.max().item())
        torch._check(highest >= 0)
        return 0, highest
    lowest, highest = (int(p) for p in torch.stack(torch.aminmax(positions)).tolist())
    if lowest < 0:
        raise ConfigError(f"positions go down to {lowest}; the first position is 0")
    if highest >= LARGEST:
        raise ConfigError(
            f"positions go up to {highest}; they have to be below 2^53, up to where float64 holds whole numbers exactly: "
            "subtract the first one, or count in larger units"
        )
    return lowest, highest


def whole_numbers(name: str, given: object, rows: int, tokens: int) -> Int[Tensor, "#b t"] | None:
    """`given` as int64, in which nothing wraps around; `ConfigError` unless it is None or [rows or 1, tokens] whole numbers."""
    if given is None:
        return None
    whole = _require_whole(name, given)
    if whole.ndim != 2 or whole.shape[1] != tokens or whole.shape[0] not in (1, rows):
        raise ConfigError(f"{name} has shape {tuple(whole.shape)}; it has to be [{rows} or 1, {tokens}], one per token")
    return whole.long()


def _require_whole(name: str, given: object) -> Tensor:
    """Return `given`; raise `ConfigError` unless it is a tensor of whole numbers that int64 holds."""
    if not isinstance(given, Tensor):
        raise ConfigError(f"{name} is a {type(given).__name__}; it has to be a tensor of whole numbers (int64)")
    if given.is_floating_point() or given.is_complex() or given.dtype in (torch.bool, torch.uint64):
        raise ConfigError(f"{name} is {given.dtype}; it has to hold whole numbers (int64)")
    return given
