"""Operations along the tokens of each document, for encodings whose features depend on earlier tokens.

The tokens of a document need not be adjacent. A result depends only on numbers of the same document, to the last bit
and also if those of other documents are NaN.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.encodings.base import MAX_DISTANCES


def cumulative_sum(x: Float[Tensor, "b c j"], documents: Int[Tensor, "#b j"] | None) -> Float[Tensor, "b c j"]:
    """Return the sum of each token and those before it in its document. None: all tokens belong to one document.

    For several documents, sums of 1, 2, 4, ... tokens are added up (a parallel prefix sum), which never reach before
    the first token of the document.
    """
    if documents is None:
        return x.cumsum(-1)
    order, start, index = _sorted(x, documents)
    total = x.gather(2, order)
    # A compiled graph serves all lengths, so it has as many steps as the longest needs.
    steps = MAX_DISTANCES.bit_length() if torch.compiler.is_compiling() else (x.shape[2] - 1).bit_length()
    for n in range(steps):
        total = total + _earlier(total, 2**n, start, index)
    return torch.zeros_like(x).scatter(2, order, total)


def shifted(x: Float[Tensor, "b c j"], n: int, documents: Int[Tensor, "#b j"] | None) -> Float[Tensor, "b c j"]:
    """Return, for each token, the numbers of the n-th token before it in its document, or 0 if there is none."""
    if documents is None:
        return F.pad(x, (n, 0))[..., : x.shape[2]]
    order, start, index = _sorted(x, documents)
    return torch.zeros_like(x).scatter(2, order, _earlier(x.gather(2, order), n, start, index))


def _sorted(x: Tensor, documents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return an order of the tokens by document [b, c, j], the begin of each one's document [b, 1, j], and indices."""
    sorted_documents, order = documents.expand(len(x), -1).sort(dim=1, stable=True)
    is_first = F.pad(sorted_documents[:, 1:] != sorted_documents[:, :-1], (1, 0))
    index = torch.arange(x.shape[2], device=x.device)
    start = (is_first * index).cummax(1).values[:, None]
    return order[:, None].expand_as(x), start, index


def _earlier(x: Tensor, n: int, start: Tensor, index: Tensor) -> Tensor:
    """Return the numbers of the n-th token before each, if it belongs to the same piece, else 0."""
    source = index - n
    return torch.where(source >= start, x.gather(2, source.clamp(min=0).expand_as(x)), 0.0)
