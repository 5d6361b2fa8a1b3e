"""Documents as rows of their own, for mixers that cannot begin a new document within a row."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Documents of similar lengths, as rows that are padded on the right to the longest.

    `rows`: their rows in the batch. `lengths`: their numbers of tokens. `index`: the index of each of their tokens in
    its row of the batch, and `real`: whether it is one. `continued`: whether the document began in an earlier call.
    `last`: whether it is the last one of its row.
    """

    rows: Int[Tensor, " s"]
    lengths: Int[Tensor, " s"]
    index: Int[Tensor, "s n"]
    real: Bool[Tensor, "s n"]
    continued: Bool[Tensor, " s"]
    last: Bool[Tensor, " s"]

    def take(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "s n d"]:
        """Return the tokens of these documents. Padding repeats the last token."""
        return x[self.rows[:, None], self.index]

    def put(self, out: Float[Tensor, "b t d"], values: Float[Tensor, "s n d"]) -> Float[Tensor, "b t d"]:
        """Return `out` with the values of these documents in their places."""
        rows = self.rows[:, None].expand_as(self.index)
        return out.index_put((rows[self.real], self.index[self.real]), values[self.real])

    def start_state(self, state: Tensor | None, like: Float[Tensor, "s *n"]) -> Float[Tensor, "s *n"]:
        """Return the state before each document: that of the earlier call if it continues, else 0."""
        if state is None:
            return torch.zeros_like(like)
        continued = self.continued.reshape(-1, *[1] * (state.ndim - 1))
        return torch.where(continued, state[self.rows], torch.zeros_like(state[:1]))


def segments(documents: Int[Tensor, "b j"], tokens: int) -> Iterator[Segments]:
    """Yield the documents of the last `tokens` tokens in groups whose lengths differ by less than a factor of 2.

    So all groups together have fewer than twice as many tokens as the batch.
    """
    ids = documents[:, -tokens:]
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    rows, starts = begins.nonzero(as_tuple=True)
    ends = torch.full_like(starts, tokens)
    ends[:-1] = torch.where(rows[1:] == rows[:-1], starts[1:], ends[:-1])
    lengths = ends - starts
    continued = starts == 0
    if documents.shape[1] > tokens:
        continued = continued & (ids[:, 0] == documents[:, -tokens - 1])[rows]
    else:
        continued = torch.zeros_like(continued)
    sizes = [int(n).bit_length() for n in lengths.tolist()]
    for size in sorted(set(sizes)):
        group = torch.tensor([n for n, s in enumerate(sizes) if s == size], device=documents.device)
        longest = int(lengths[group].max())
        offset = torch.arange(longest, device=documents.device)
        real = offset < lengths[group, None]
        index = torch.minimum(starts[group, None] + offset, ends[group, None] - 1)
        yield Segments(rows[group], lengths[group], index, real, continued[group], ends[group] == tokens)
