"""How far back the heads of a trained model look, relative to what there is to look at."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention.tables import spread
from lengthwise.config import ConfigError
from lengthwise.models import Model
from lengthwise.probes.rows import Call, block_rows, calls_of

BINS = 20  # of the normalised distance 0 ... 1, each 0.05 wide
EQUAL = 1e-4  # nats: logits that differ by rounding alone are equal, as those of the same token without an encoding


@dataclass(frozen=True)
class Attended:
    """Of every layer and head, how much falls on each bin of the normalised distance (i − j) / (i + 1).

    Query i sees keys 0 ... i, so 0 is the query's own token, and the first token comes close to 1. Bin n has the distances from
    n / 20 up to, not including, (n + 1) / 20. `most`: how many queries have their highest logit there (at the first of the
    keys whose logits are within 1e-4 nats of the highest). `mass`: the sum of the weights there, of all queries. `queries`:
    how many there are.
    """

    most: Int[Tensor, "l h n"]
    mass: Float[Tensor, "l h n"]
    queries: int

    def __add__(self, other: "Attended") -> "Attended":
        return Attended(self.most + other.most, self.mass + other.mass, self.queries + other.queries)


@torch.no_grad()
def attended_distance(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    *,
    queries: Bool[Tensor, "#b t"],
    positions: Int[Tensor, "#b t"] | None = None,
) -> Attended:
    """Where the queries that are asked for look. Distances are of indices, whatever positions the tokens claim.

    Source: Kazemnejad et al. 2023, section 5.2 (figure 7), which takes the highest logit.
    Differs: their text has distances one greater than their code, which this follows.
    """
    queries = queries.expand(inputs.shape[:2])
    count = int(queries.sum())
    if not count:
        raise ConfigError("queries asks for none, and there is nothing to count; ask for some places")
    layers = [_layer(call, queries) for call in calls_of(model, inputs, positions)]
    most, mass = (torch.stack(part) for part in zip(*layers, strict=True))
    return Attended(most.cpu(), mass.cpu(), count)


def _layer(call: Call, queries: Tensor) -> tuple[Tensor, Tensor]:
    most: Tensor | int = 0
    mass: Tensor | int = 0
    index = torch.arange(call.mask.keys, device=call.q.device)
    for rows, keys, logits in call.blocks(block_rows(call.q.device, len(call.q) * call.mask.keys * 3 * call.heads)):
        asked = queries[:, rows]
        own = index[rows, None]
        bins = (own - index[None, keys]).clamp(min=0) * BINS // (own + 1)  # in whole numbers: no rounding at an edge
        column = bins.expand(logits.shape)
        # The first of equal ones: a comparison of truth values, whose argmax is the first.
        highest = (logits >= logits.amax(-1, keepdim=True) - EQUAL).to(torch.uint8).argmax(-1, keepdim=True)
        of_query = torch.nn.functional.one_hot(column.gather(-1, highest)[..., 0], BINS)  # [b, h, i, n]
        most = most + (of_query * asked[:, None, :, None]).sum((0, 2))
        shares = spread(logits.softmax(-1), column, BINS)
        mass = mass + (shares * asked[:, None, :, None]).sum((0, 2))
    assert isinstance(most, Tensor) and isinstance(mass, Tensor)
    return most, mass
