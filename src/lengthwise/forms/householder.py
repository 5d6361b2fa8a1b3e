"""`HouseholderProduct`: a product of query and key with reflections by the tokens between them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.products import BLOCK, Product, ProductBlocks
from lengthwise.span import Span


@dataclass(frozen=True)
class HouseholderProduct(Product):
    """The product of query i and key j is `<q_i, H_i H_i-1 ... H_j+1 k_j>` with H_t = I - beta_t w_t w_tᵀ, for PaTH.

    The matrices are those of the tokens after the key, up to the query, in the query's document; `documents` is None if
    all keys belong to one document. The queries are the last tokens. With |w_t| at most 1 and beta_t in [0, 2], no H_t
    makes a vector longer.
    """

    w: Float[Tensor, "#b #h j d"]
    beta: Float[Tensor, "#b #h j"]
    documents: Int[Tensor, "#b j"] | None = None

    cost = (
        "a vector for each token, and numbers for each token and the tokens of its block: O(h n d)",
        "O(h n² d): four products of the size of q kᵀ",
    )

    def dense(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span) -> Float[Tensor, "b h i j"]:
        """Return <q_i, H_i ... H_j+1 k_j> for all pairs.

        On the way back from query i, token t takes c_it w_t off what the later tokens have left of q_i, with c_it =
        beta_t <w_t, q_i - Σ_s>t c_is w_s>. So c solves a triangular system of equations, and key j meets q_i - Σ_s>j
        c_is w_s. The system is solved for some tokens at a time, because it has a number for each pair of tokens.
        """
        compute = torch.promote_types(q.dtype, torch.float32)
        q, k, w, beta = (x.to(compute) for x in (q, k, self.w, self.beta))
        tokens = k.shape[2]
        logits: list[Tensor] = []
        # A compiled graph serves all lengths, so it has no loop over tokens.
        for at in [slice(0, tokens)] if torch.compiler.is_compiling() else _chunks(tokens)[::-1]:
            passed = self._not_after(slice(tokens - q.shape[2], tokens), at, q.device)  # i, t: t is not after i
            later = self._not_after(at, at, q.device).tril(-1)  # s, t: s is after t
            w_t, k_t, beta_t = w[:, :, at], k[:, :, at], beta[:, :, None, at]
            system = torch.where(later, w_t @ w_t.mT * beta_t, 0.0) + torch.eye(
                later.shape[-1], dtype=compute, device=q.device
            )
            taken = torch.where(passed, q @ w_t.mT * beta_t, 0.0)
            c = torch.linalg.solve_triangular(system, taken, upper=False, left=False, unitriangular=True)
            logits.insert(0, q @ k_t.mT - c @ torch.where(later, w_t @ k_t.mT, 0.0))
            q = q - c @ w_t
        return torch.cat(logits, -1)

    def in_blocks(self, k: Float[Tensor, "b h j d"], queries: int) -> ProductBlocks:
        return _HouseholderBlocks(self, k, queries)

    def unsupported_reason(self, kernel: str) -> str:
        return (
            f"HouseholderProduct changes q at every token between query and key, and {kernel} multiplies it by all keys"
        )

    def _not_after(self, tokens: slice, others: slice, device: torch.device) -> Tensor:
        """Return which of the others are not after a token and in its document, [b|1, 1, tokens, others]."""
        token, other = (torch.arange(s.start, s.stop, device=device) for s in (tokens, others))
        visible = (other <= token[:, None])[None]
        if self.documents is not None:
            visible = visible & (self.documents[:, tokens, None] == self.documents[:, None, others])
        return visible[:, None]


def _chunks(tokens: int) -> list[slice]:
    return [slice(start, min(start + 256, tokens)) for start in range(0, tokens, 256)]


class _HouseholderBlocks(ProductBlocks):
    """Queries pass all tokens of a block at once.

    Token t takes c_t w_t off a query x, where c_t = beta_t <w_t, x - Σ_s c_s w_s> and the sum goes over the later
    tokens s of the block. This is a triangular system of equations. So c = y M, where y_t = <w_t, x> and the matrix M
    depends on w and beta alone, and a query needs only M times the w of the block and times <w_s, k_j>. (The paper
    calls it the UT transform.) If a query does not pass a token, because it comes after the query or belongs to another
    document, its y_t is 0.
    """

    def __init__(self, product: HouseholderProduct, k: Tensor, queries: int):
        super().__init__(product.documents, queries, k.shape[2])
        w, beta = (x.to(k.dtype).expand(*k.shape[:2], *x.shape[2:]) for x in (product.w, product.beta[..., None]))
        size = min(BLOCK, self.keys)
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
        self._block_tensors = list(
            zip(*(x.unbind(2) for x in (w_blocks, k_blocks, from_logits, from_query)), strict=True)
        )

    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        blocks, logits = self.blocks(keys), []
        for n, at in reversed(blocks):
            w, k, from_logits, from_query = self._block_tensors[n]
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
        same = self.same_document(slice(first, last), block)
        if block.stop <= first + 1:
            return same
        query, token = (
            torch.arange(s.start, s.stop, device=self._block_tensors[0][0].device) for s in (slice(first, last), block)
        )
        before = (token <= query[:, None])[None]
        return before if same is None else before & same
