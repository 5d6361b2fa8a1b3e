"""`DecayProduct`: a product of query and key in which every channel decays from the key to the query."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.products import BLOCK, Product, ProductBlocks
from lengthwise.span import Span


@dataclass(frozen=True)
class DecayProduct(Product):
    """The product of query i and key j is `Σ_n q_in k_jn exp(prefix_sum_in - prefix_sum_jn)`, for Wall attention.

    The difference is what a running sum over the tokens of a document gained between a key and its query: the logarithm
    of a decay for each channel n. The sum never increases within a document. The queries are the last tokens, and
    `documents` is None if all keys belong to one document. Backends subtract before they round, because the sums can be
    large while their differences are small, and never take the exponential of a number above 0.
    """

    prefix_sum: Float[Tensor, "#b #h j d"]
    documents: Int[Tensor, "#b j"] | None = None

    cost = ("a number for each token and channel: O(h n d)", "O(h n² d)")

    def dense(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span) -> Float[Tensor, "b h i j"]:
        compute = torch.promote_types(q.dtype, torch.float32)
        return _decayed(q.to(compute), k.to(compute), self.prefix_sum[:, :, -q.shape[2] :], self.prefix_sum)

    def in_blocks(self, k: Float[Tensor, "b h j d"], queries: int) -> ProductBlocks:
        return _DecayBlocks(self, k, queries)

    def unsupported_reason(self, kernel: str) -> str:
        return f"DecayProduct has a weight for every channel of every pair, and {kernel} has one product of q and k"


def _decayed(
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


class _DecayBlocks(ProductBlocks):
    """Queries after a block meet keys that have decayed to the end of the block.

    exp(P_i - P_j) = exp(P_i - R) exp(R - P_j), where R is the running sum P at the last token of the block that belongs
    to the query's document. It lies between both, so no exponent is above 0. R gets no gradient, because it cancels.
    Pairs of queries with a block that does not end before them are computed one by one.
    """

    def __init__(self, product: DecayProduct, k: Tensor, queries: int):
        super().__init__(product.documents, queries, k.shape[2])
        self.sums, self._block_tensors = product.prefix_sum, []
        key_blocks, sum_blocks = (x.split(BLOCK, 2) for x in (k, self.sums))
        for (_, at), of_keys, key_sum in zip(self.blocks(slice(0, self.keys)), key_blocks, sum_blocks, strict=True):
            decay = (self._anchor(key_sum, at, key_sum, at) - key_sum).to(k.dtype).exp()
            self._block_tensors.append((of_keys, key_sum, of_keys * decay))

    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        tokens = slice(self.first_query + rows.start, self.first_query + rows.stop)
        query_sum, blocks, logits = self.sums[:, :, tokens], self.blocks(keys), []
        for n, at in blocks:
            of_keys, key_sum, decayed_keys = self._block_tensors[n]
            if at.stop > tokens.start:
                logits.append(_decayed(q, of_keys, query_sum, key_sum))
                continue
            decay = (query_sum - self._anchor(query_sum, tokens, key_sum, at)).to(q.dtype).exp()
            logits.append((q * decay) @ decayed_keys.mT)
        first = blocks[0][1].start
        return torch.cat(logits, -1)[..., keys.start - first : keys.stop - first]

    def _anchor(self, token_sum: Tensor, tokens: slice, key_sum: Tensor, block: slice) -> Tensor:
        """Return R of each token for a block; the token's own sum if no token of its document is in the block."""
        if self.documents is None:
            return key_sum[:, :, -1:].detach()
        same = self.same_document(tokens, block)
        assert same is not None
        last = (same * torch.arange(1, same.shape[2] + 1, device=same.device)).amax(-1)[:, None, :, None]  # 0: none
        shape = torch.broadcast_shapes(last.shape, token_sum.shape)
        anchor = key_sum.detach().expand(shape[0], -1, -1, -1).gather(2, (last - 1).clamp(min=0).expand(shape))
        return torch.where(last > 0, anchor, token_sum.detach())
