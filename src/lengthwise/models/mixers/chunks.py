"""Linear attention with a decay for each head: matrix products within a chunk of tokens, a state between chunks.

S_t = γ_h S_{t−1} + k_t v_tᵀ,        out_t = S_tᵀ q_t
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 64  # tokens: the work within chunks grows with it, and the number of states shrinks


@dataclass(frozen=True)
class _Masks:
    """Which tokens of a chunk see each other and the state before it, and how far they have decayed."""

    within: Float[Tensor, "#b h #n c c"]  # of query and key
    before: Float[Tensor, "#b h #n c 1"]  # of the state before the chunk, for each query
    after: Float[Tensor, "#b h #n c 1"]  # of each key in the state after the chunk
    state_decay: Float[Tensor, "#b h #n 1 1"]  # of the state before the chunk in that after it


def chunkwise(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    *,
    decay: Float[Tensor, " h"],
    state: Float[Tensor, "b h k v"] | None = None,
    documents: Int[Tensor, "b j"] | None = None,
) -> tuple[Float[Tensor, "b h t v"], Float[Tensor, "b h k v"]]:
    """Return the output of every token, and the state after the last one.

    `decay`: γ of each head, in (0, 1]. `state`: the state before the first token. `documents`: the IDs of all tokens so
    far; a token sees only its own document. Time and memory are linear in the number of tokens.
    """
    tokens, outputs = q.shape[2], []
    whole = tokens - tokens % CHUNK
    if state is None:
        state = q.new_zeros(*k.shape[:2], k.shape[3], v.shape[3])
    # The rest is a shorter chunk, because padding would let the state decay.
    for start, end in ((0, whole), (whole, tokens)):
        if end > start:
            cut, size = slice(start, end), min(CHUNK, end - start)
            masks = _masks(decay.to(q.dtype), size, end - start, tokens - end, documents)
            q_chunks, k_chunks, v_chunks = (x[:, :, cut].unflatten(2, (-1, size)) for x in (q, k, v))
            out, state = _chunks(q_chunks, k_chunks, v_chunks, masks, state)
            outputs.append(out.flatten(2, 3))
    return torch.cat(outputs, 2) if len(outputs) > 1 else outputs[0], state


def _chunks(q: Tensor, k: Tensor, v: Tensor, masks: _Masks, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output [b, h, n, c, v] of n chunks, and the state after the last one."""
    added = (k * masks.after).transpose(-1, -2) @ v
    state_decay, states = masks.state_decay.expand(-1, -1, k.shape[2], -1, -1), []
    for n, of_chunk in enumerate(added.unbind(2)):
        states.append(state)
        state = torch.addcmul(of_chunk, state_decay[:, :, n], state)
    within = ((q @ k.transpose(-1, -2)) * masks.within) @ v
    return within + (q * masks.before) @ torch.stack(states, 2), state


def _masks(decay: Tensor, size: int, tokens: int, later: int, documents: Tensor | None) -> _Masks:
    """Return the masks of `tokens` tokens in chunks of `size`, after which `later` tokens follow."""
    index = torch.arange(size, device=decay.device)
    distance = index[:, None] - index
    gamma = decay[None, :, None, None, None]
    masks = _Masks(
        within=torch.where(distance >= 0, gamma ** distance.clamp(min=0), 0.0),
        before=gamma ** (index + 1)[:, None],
        after=gamma ** (size - 1 - index)[:, None],
        state_decay=gamma**size,
    )
    if documents is None:
        return masks
    end = documents.shape[1] - later
    ids = documents[:, end - tokens : end].unflatten(1, (-1, size))[:, None]  # [b, 1, n, c]
    # Before the first token of all there is no state, so it does not matter which document it has.
    first = documents[:, max(0, end - tokens - 1)][:, None, None]
    previous, last = torch.cat([first, ids[:, :, :-1, -1]], 2), ids[..., -1:]
    same = ids[..., :, None] == ids[..., None, :]
    sees_state = ids == previous[..., None]
    return _Masks(
        masks.within * same,
        masks.before * sees_state[..., None],
        masks.after * (ids == last)[..., None],
        masks.state_decay * sees_state[..., -1:, None],
    )
