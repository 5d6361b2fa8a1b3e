"""The distance between the attention of two trained models, layer by layer."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.special import entr

from lengthwise.config import ConfigError
from lengthwise.measurements.inside.attention import AttentionCall, attention_calls, block_rows
from lengthwise.models import Model

# ---- divergences in nats ------------------------------------------------------------------------------------------


def jensen_shannon(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """Return ½ KL(P‖M) + ½ KL(Q‖M) with M = (P + Q) / 2: 0 for equal distributions, ln 2 for those without a common
    key.

    Computed as H(M) − ½ H(P) − ½ H(Q), with H the entropy in nats: exact to rounding, zeros included.

    >>> jensen_shannon(torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9]))  # 0.9 ln(0.9/0.5) + 0.1 ln(0.1/0.5)
    tensor(0.3681)
    """
    divergence: Tensor = entr((p + q) / 2).sum(-1) - (entr(p).sum(-1) + entr(q).sum(-1)) / 2
    return divergence.clamp(min=0)  # rounding can make it negative


def published_divergence(p: Float[Tensor, "*#n j"], q: Float[Tensor, "*#n j"]) -> Float[Tensor, "*n"]:
    """Return ½ KL(M‖P) + ½ KL(M‖Q) with M = (P + Q) / 2, which the published code computes instead of `jensen_shannon`.

    It is at least 0, has no upper bound, and is infinite if only one of the two distributions is zero at some key.
    """
    m = (p + q) / 2
    cross = (m * (p.log() + q.log())).masked_fill(m == 0, 0)
    divergence: Tensor = -entr(m).sum(-1) - cross.sum(-1) / 2
    return divergence.clamp(min=0)  # rounding can make it negative


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "jensen-shannon": jensen_shannon,
    "published": published_divergence,
}
"""The divergence of each variant of `attention_distance`. "published" also pairs heads as the published code does; see
`pair_distances`."""


# ---- models ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def attention_distance(
    a: Model,
    b: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    *,
    queries: Bool[Tensor, "#b t"] | None = None,
    positions: tuple[Tensor | None, Tensor | None] = (None, None),
    variant: str = "jensen-shannon",
) -> Float[Tensor, "b l"]:
    """Return for each example and layer the distance between the attention weights of the two models' most similar
    heads, in nats.

        D_AT(P, Q) = 1/T Σ_t JSD(P_t ‖ Q_t)        P_t, Q_t: rows of weights of two heads, one of either model
        D^(l)(A, B) = min over all pairs of a head of A and a head of B in layer l

    The variant `jensen-shannon` ranges from 0, for a model and itself, to ln 2. `variant="published"` follows the
    published code, see `pair_distances`, and has no upper bound. `queries`: the rows t that count (None: all).
    `positions`: the position IDs in `a` and in `b`. The models may differ in the number of heads, but not of layers.
    Each model reads the inputs once; weights are then recomputed from q and k, a block of queries of all heads at a
    time.

    Source: Kazemnejad et al. 2023, section 5.2, equation 2. Differs: the published code swaps the arguments of the
    divergence, and compares head m of one model with head n of the other only for m < n.
    """
    selected = torch.ones(1, inputs.shape[1], dtype=torch.bool, device=inputs.device) if queries is None else queries
    layers = zip(attention_calls(a, inputs, positions[0]), attention_calls(b, inputs, positions[1]), strict=True)
    return torch.stack([_layer(call_a, call_b, selected, variant) for call_a, call_b in layers], -1)


def pair_distances(
    p: Float[Tensor, "b h i j"], q: Float[Tensor, "b g i j"], selected: Bool[Tensor, "#b i"], variant: str
) -> Float[Tensor, "b h g"]:
    """Return the divergence of two heads' weights, summed over the selected rows i, for every pair of heads.

    Weights on masked keys are 0. `published`: the divergence of that name, and infinity for the pairs that the
    published code skips, which are head m and head n with m >= n.
    """
    divergence = DIVERGENCES[variant]
    weight = selected.to(p.dtype)[:, None]
    # Compare one head of A with all of B at a time, which limits memory to a few blocks of rows.
    distances = torch.stack([(divergence(head[:, None], q) * weight).sum(-1) for head in p.unbind(1)], 1)
    if variant == "published":
        skipped = torch.ones_like(distances, dtype=torch.bool).tril()
        distances = distances.masked_fill(skipped, torch.inf)
    return distances


def _layer(a: AttentionCall, b: AttentionCall, selected: Tensor, variant: str) -> Float[Tensor, " b"]:
    if variant == "published" and b.heads < 2:
        raise ConfigError(
            "the published variant compares head m with head n for m < n, so it needs at least 2 heads, got 1"
        )
    numbers = len(a.q) * a.mask.keys * (a.heads + 2 * b.heads)
    total = sum(pair_distances(p, q, selected[:, rows], variant) for rows, p, q in _weights(a, b, numbers))
    assert isinstance(total, Tensor)
    return total.flatten(1).amin(1) / selected.sum(-1)


def _weights(a: AttentionCall, b: AttentionCall, numbers: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the weights of both models for the same queries and keys."""
    size = block_rows(a.q.device, numbers)
    for (rows_a, keys_a, logits_a), (rows_b, keys_b, logits_b) in zip(a.blocks(size), b.blocks(size), strict=True):
        assert (rows_a, keys_a) == (rows_b, keys_b), "two decoders with the same inputs have the same mask"
        yield rows_a, logits_a.softmax(-1), logits_b.softmax(-1)
