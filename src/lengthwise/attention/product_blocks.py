"""`HouseholderProduct` and `DecayProduct` for some queries at a time, with memory in proportion to the number of keys.

Keys are divided into blocks. What does not depend on queries is computed once for each block, and a block of queries walks
back over the blocks of its keys. The reference has the definitions.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms import DecayProduct, HouseholderProduct

_BLOCK = 64  # keys


class ProductBlocks(ABC):
    """The products of blocks of queries and their keys. The queries are the last tokens."""

    def __init__(self, documents: Tensor | None, queries: int, keys: int):
        self.documents, self.first_query, self.keys = documents, keys - queries, keys

    @abstractmethod
    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        """Return the products of the queries `rows`, which are `q`, and the keys `keys`, which end with the last query."""

    def _blocks(self, keys: slice) -> list[tuple[int, slice]]:
        """Return the number of every block with some of the keys, in ascending order, and the indices of its keys."""
        numbers = range(keys.start // _BLOCK, -(-keys.stop // _BLOCK))
        return [(n, slice(n * _BLOCK, min((n + 1) * _BLOCK, self.keys))) for n in numbers]

    def _same_document(self, one: slice, other: slice) -> Tensor | None:
        """Return whether tokens belong to the same document, [b|1, one, other]. None: all do."""
        if self.documents is None:
            return None
        return self.documents[:, one, None] == self.documents[:, None, other]


def product_blocks(product: object, k: Float[Tensor, "b h j d"], queries: int) -> ProductBlocks | None:
    """Return the blocks of a product with these keys, for the last `queries` tokens; None if it has none."""
    match product:
        case HouseholderProduct():
            return _HouseholderBlocks(product, k, queries)
        case DecayProduct():
            return _DecayBlocks(product, k, queries)
    return None


def decayed(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    query_sum: Float[Tensor, "#b #h i d"],
    key_sum: Float[Tensor, "#b #h j d"],
) -> Float[Tensor, "b h i j"]:
    """Return Σ_n q_in k_jn exp(query_sum_in - key_sum_jn) for all pairs, one channel after the other.

    Differences above 0, of keys that are hidden from the query, count as 0.
    """
    total = q.new_zeros(*q.shape[:3], k.shape[2])
    for q_n, k_n, query_n, key_n in zip(*(x.unbind(-1) for x in (q, k, query_sum, key_sum)), strict=True):
        log_decay = (query_n[..., None] - key_n[..., None, :]).clamp(max=0.0)
        total = total + q_n[..., None] * k_n[..., None, :] * log_decay.to(q.dtype).exp()
    return total


class _HouseholderBlocks(ProductBlocks):
    """Queries pass all tokens of a block at once.

    Token t takes c_t w_t off a query x, where c_t = beta_t <w_t, x - Σ_s c_s w_s> and the sum goes over the later tokens s of the
    block. This is a triangular system of equations. So c = y M, where y_t = <w_t, x> and the matrix M depends on w and beta alone,
    and a query needs only M times the w of the block and times <w_s, k_j>. (The paper calls it the UT transform.) If a query does
    not pass a token, because it comes after the query or belongs to another document, its y_t is 0.
    """

    def __init__(self, product: HouseholderProduct, k: Tensor, queries: int):
        super().__init__(product.documents, queries, k.shape[2])
        w, beta = (x.to(k.dtype).expand(*k.shape[:2], *x.shape[2:]) for x in (product.w, product.beta[..., None]))
        size = min(_BLOCK, self.keys)
        padding = -self.keys % size
        w_blocks, k_blocks, beta_blocks = (F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, size)) for x in (w, k, beta))
        later = torch.ones(size, size, dtype=torch.bool, device=k.device).tril(-1)  # s, t: whether s comes after t
        if product.documents is not None:
            ids = F.pad(product.documents, (0, padding)).unflatten(1, (-1, size))[:, None]
            later = later & (ids[..., :, None] == ids[..., None, :])
        overlap = torch.where(later, w_blocks @ (beta_blocks * w_blocks).mT, 0.0)
        of_keys = torch.where(later, w_blocks @ k_blocks.mT, 0.0)
        system = overlap + torch.eye(size, dtype=k.dtype, device=k.device)
        solved = torch.linalg.solve_triangular(
            system, torch.cat([of_keys, w_blocks], -1), upper=False, unitriangular=True
        )
        from_logits, from_query = (beta_blocks * solved).split([size, k.shape[3]], -1)
        self._parts = list(zip(*(x.unbind(2) for x in (w_blocks, k_blocks, from_logits, from_query)), strict=True))

    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        blocks, logits = self._blocks(keys), []
        for n, at in reversed(blocks):
            w, k, from_logits, from_query = self._parts[n]
            y = q @ w.mT
            passed = self._passed(rows, at)
            if passed is not None:
                y = torch.where(F.pad(passed, (0, w.shape[2] - passed.shape[-1]))[:, None], y, 0.0)
            logits.append(q @ k.mT - y @ from_logits)
            if n > blocks[0][0]:
                q = q - y @ from_query
        first = blocks[0][1].start
        return torch.cat(logits[::-1], -1)[..., keys.start - first : keys.stop - first]

    def _passed(self, rows: slice, block: slice) -> Tensor | None:
        """Return which tokens of a block a query passes on its way back, [b|1, i, tokens]. None: all of them."""
        first, last = self.first_query + rows.start, self.first_query + rows.stop
        same = self._same_document(slice(first, last), block)
        if block.stop <= first + 1:
            return same
        query, token = (
            torch.arange(s.start, s.stop, device=self._parts[0][0].device) for s in (slice(first, last), block)
        )
        before = (token <= query[:, None])[None]
        return before if same is None else before & same


class _DecayBlocks(ProductBlocks):
    """Queries after a block meet keys that have decayed to the end of the block.

    exp(P_i - P_j) = exp(P_i - R) exp(R - P_j), where R is the running sum P at the last token of the block that belongs to the
    query's document. It lies between both, so no exponent is above 0. R gets no gradient, because it cancels. Pairs of queries
    with a block that does not end before them are computed one by one.
    """

    def __init__(self, product: DecayProduct, k: Tensor, queries: int):
        super().__init__(product.documents, queries, k.shape[2])
        self.sums, self._parts = product.prefix_sum, []
        key_blocks, sum_blocks = (x.split(_BLOCK, 2) for x in (k, self.sums))
        for (_, at), of_keys, key_sum in zip(self._blocks(slice(0, self.keys)), key_blocks, sum_blocks, strict=True):
            decay = (self._anchor(key_sum, at, key_sum, at) - key_sum).to(k.dtype).exp()
            self._parts.append((of_keys, key_sum, of_keys * decay))

    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        tokens = slice(self.first_query + rows.start, self.first_query + rows.stop)
        query_sum, blocks, logits = self.sums[:, :, tokens], self._blocks(keys), []
        for n, at in blocks:
            of_keys, key_sum, decayed_keys = self._parts[n]
            if at.stop > tokens.start:
                logits.append(decayed(q, of_keys, query_sum, key_sum))
                continue
            decay = (query_sum - self._anchor(query_sum, tokens, key_sum, at)).to(q.dtype).exp()
            logits.append((q * decay) @ decayed_keys.mT)
        first = blocks[0][1].start
        return torch.cat(logits, -1)[..., keys.start - first : keys.stop - first]

    def _anchor(self, own: Tensor, tokens: slice, key_sum: Tensor, block: slice) -> Tensor:
        """Return R of each token for a block; the token's own sum if no token of its document is in the block."""
        if self.documents is None:
            return key_sum[:, :, -1:].detach()
        same = self._same_document(tokens, block)
        assert same is not None
        last = (same * torch.arange(1, same.shape[2] + 1, device=same.device)).amax(-1)[:, None, :, None]  # 0: none
        shape = torch.broadcast_shapes(last.shape, own.shape)
        found = key_sum.detach().expand(shape[0], -1, -1, -1).gather(2, (last - 1).clamp(min=0).expand(shape))
        return torch.where(last > 0, found, own.detach())
