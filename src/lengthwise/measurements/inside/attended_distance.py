"""How far back the heads of a trained model attend, relative to the number of visible tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.forms import table_dtype
from lengthwise.forms.tables import scatter_columns
from lengthwise.measurements.inside.attention import AttentionCall, attention_calls, block_rows
from lengthwise.models import Model

BINS = 20  # of the normalised distance 0 ... 1, each 0.05 wide
TOLERANCE = 1e-4  # nats: logits closer than this differ only by rounding, as for repeated tokens without an encoding


@dataclass(frozen=True)
class AttendedDistances:
    """For each layer and head, histograms over the normalised distance (i − j) / (i + 1).

    Query i sees keys 0 ... i, so 0 is the query's own token, and the first token comes close to 1. Bin n contains
    the distances from n / 20 up to, but not including, (n + 1) / 20. `most`: the number of queries whose highest
    logit is in the bin (at the first of the keys whose logits are within 1e-4 nats of the highest). `mass`: the sum
    of the weights of all queries in the bin. `queries`: the number of queries.
    """

    most: Int[Tensor, "l h n"]
    mass: Float[Tensor, "l h n"]
    queries: int

    def __add__(self, other: "AttendedDistances") -> "AttendedDistances":
        return AttendedDistances(self.most + other.most, self.mass + other.mass, self.queries + other.queries)


@torch.no_grad()
def attended_distance(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    *,
    queries: Bool[Tensor, "#b t"],
    positions: Int[Tensor, "#b t"] | None = None,
) -> AttendedDistances:
    """Return histograms of the distances that the selected `queries` attend to. Distances are differences of
    indices, not of position IDs.

    Source: Kazemnejad et al. 2023, section 5.2 (figure 7), which takes the highest logit.
    Differs: their text has distances one greater than their code, which this follows.
    """
    queries = queries.expand(inputs.shape[:2])
    layers = [_layer(call, queries) for call in attention_calls(model, inputs, positions)]
    most, mass = (torch.stack(values) for values in zip(*layers, strict=True))
    return AttendedDistances(most.cpu(), mass.cpu(), int(queries.sum()))


def _layer(call: AttentionCall, queries: Tensor) -> tuple[Tensor, Tensor]:
    most = torch.zeros(call.heads, BINS, dtype=torch.long, device=call.q.device)
    mass = most.to(table_dtype(call.q.device))
    index = torch.arange(call.mask.keys, device=call.q.device)
    for rows, keys, logits in call.blocks(block_rows(call.q.device, len(call.q) * call.mask.keys * 3 * call.heads)):
        selected = queries[:, rows]
        query_index = index[rows, None]
        # In integers, so that no rounding moves a distance across the edge of a bin.
        bins = (query_index - index[None, keys]).clamp(min=0) * BINS // (query_index + 1)
        column = bins.expand(logits.shape)
        # argmax of a 0/1 tensor returns the first of the keys whose logits are equal within the tolerance.
        highest = (logits >= logits.amax(-1, keepdim=True) - TOLERANCE).to(torch.uint8).argmax(-1, keepdim=True)
        highest_bin = torch.nn.functional.one_hot(column.gather(-1, highest)[..., 0], BINS)  # [b, h, i, n]
        most += (highest_bin * selected[:, None, :, None]).sum((0, 2))
        shares = scatter_columns(logits.softmax(-1), column, BINS)
        mass += (shares * selected[:, None, :, None]).sum((0, 2))
    return most, mass
