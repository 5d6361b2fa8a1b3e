"""How far the attention of one trained model is from another's, layer by layer."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.models import Model, attending
from lengthwise.probes.divergence import VARIANTS
from lengthwise.probes.rows import Call, block_rows, calls_of


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
    """Of each example and layer, the distance between what the two models' most similar heads attend to, in nats.

        D_AT(P, Q) = 1/T Σ_t JSD(P_t ‖ Q_t)        P_t, Q_t: rows of weights of two heads, one of either model
        D^(l)(A, B) = min over all pairs of a head of A and a head of B in layer l

    `jensen-shannon` is from 0, for a model and itself, to ln 2. `queries`: the rows t that count (all, when None).
    `positions`: what the tokens claim in `a` and in `b`. The number of heads may differ, the number of layers may not.
    Both models read the inputs once; rows of weights are made again from their q and k, a block of queries of all heads at a
    time.

    `variant="published"`: as the published code has it, see `pair_distances`; without upper bound.

    Source: Kazemnejad et al. 2023, section 5.2, equation 2.
    Differs: the published code has the arguments of the divergence the wrong way round, and compares head m of one model with
    head n of the other for m < n alone.
    """
    require_variant(variant)
    a, b = attending(a), attending(b)
    if len(a.blocks) != len(b.blocks):
        raise ConfigError(
            f"the models have {len(a.blocks)} and {len(b.blocks)} layers; layers are compared one to one, so take models "
            "of equal depth"
        )
    counts = torch.ones(1, inputs.shape[1], dtype=torch.bool, device=inputs.device) if queries is None else queries
    if not bool(counts.any(-1).all()):
        raise ConfigError("queries asks for none in some row, and there is no mean of nothing; leave the row out")
    layers = zip(calls_of(a, inputs, positions[0]), calls_of(b, inputs, positions[1]), strict=True)
    return torch.stack([_layer(one, other, counts, variant) for one, other in layers], -1)


def require_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise ConfigError(
            f"there is no variant {variant!r}{near_miss(str(variant), VARIANTS)}; there are: {', '.join(VARIANTS)}"
        )


def pair_distances(
    p: Float[Tensor, "b h i j"], q: Float[Tensor, "b g i j"], counts: Bool[Tensor, "#b i"], variant: str
) -> Float[Tensor, "b h g"]:
    """The sum over the rows i that count of the divergence of two heads' weights, for every pair of heads.

    Weights on keys that a query does not see are 0. `published`: the divergence of that name, and infinity for the pairs that
    the published code leaves out, which are those of head m and head n with m >= n.
    """
    divergence = VARIANTS[variant]
    weight = counts.to(p.dtype)[:, None]
    # One head of A against all of B: a block of rows is never there more than a few times.
    sums = [(divergence(p[:, n, None], q) * weight).sum(-1) for n in range(p.shape[1])]
    found = torch.stack(sums, 1)
    if variant == "published":
        left_out = torch.ones(found.shape[1:], dtype=torch.bool, device=found.device).tril()
        found = found.masked_fill(left_out, torch.inf)
    return found


def _layer(a: Call, b: Call, counts: Tensor, variant: str) -> Float[Tensor, " b"]:
    if variant == "published" and b.heads < 2:
        raise ConfigError("the published variant compares head m with head n for m < n, and one head has no such pair")
    numbers = len(a.q) * a.mask.keys * (a.heads + 2 * b.heads)
    total = sum(pair_distances(p, q, counts[:, rows], variant) for rows, p, q in _weights(a, b, numbers))
    assert isinstance(total, Tensor)
    return total.flatten(1).amin(1) / counts.sum(-1)


def _weights(a: Call, b: Call, numbers: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """The weights of both models for the same queries and keys."""
    size = block_rows(a.q.device, numbers)
    for (rows, keys, one), (same, as_well, other) in zip(a.blocks(size), b.blocks(size), strict=True):
        assert (rows, keys) == (same, as_well), "two decoders that read the same see the same"
        yield rows, one.softmax(-1), other.softmax(-1)
