"""The measurement of the parts of logits: their shares and sizes, for each layer and head."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.evaluation import check_lengths, encodings_of
from lengthwise.models import require_decoder
from lengthwise.probes.base import OnProgress
from lengthwise.probes.logit_parts import PARTS, LogitPartsQuestion
from lengthwise.probes.logit_parts.split import no_split_reason, split_logits
from lengthwise.probes.measuring.trained_run import (
    TrainedRun,
    example_batches,
    measurement,
    numbers,
    report,
    require_attention,
)

DIGITS = 6  # of each stored number


def require(run: Run, questions: Sequence[LogitPartsQuestion], against: Run | None = None) -> None:
    """Raise `ConfigError` unless the run's encoding adds vectors to the embeddings, and nothing else. Builds no model."""
    require_attention(run)
    encoding, *_ = encodings_of(run, run.task.build())
    reason = no_split_reason(encoding, run.model.d_model)
    if any(layer.layer.window is not None for layer in run.encoding.layers):
        reason = "its layers have a window"
    if reason:
        raise ConfigError(
            f"the logits of run {run.key[:8]} have no parts of words and positions: {reason}; name a run of an absolute encoding "
            "(Sinusoidal, Learned)"
        )
    check_lengths(run, [question.length for question in questions])


class PartSums:
    """Sums over queries and their visible keys, for each head of one layer.

    `products` [h, 4]: of each part with the logit. `squares` [h, 4]: of each part. `logit_squares` [h]: of the logit. All are minus
    their means over the query's keys. `pairs`: the number of pairs.
    """

    def __init__(self, heads: int):
        self.products = torch.zeros(heads, len(PARTS), dtype=torch.float64)
        self.squares = torch.zeros_like(self.products)
        self.logit_squares = torch.zeros(heads, dtype=torch.float64)
        self.pairs = 0

    def add(self, parts: Float[Tensor, "p b h i j"], queries: slice, selected: Bool[Tensor, "b i"]) -> None:
        """Add a block of queries. `selected`: the queries that count."""
        index = torch.arange(queries.start, queries.stop, device=parts.device)
        visible = torch.arange(parts.shape[-1], device=parts.device) <= index[:, None]
        counts = (visible & selected[:, :, None])[:, None]
        means = (parts * visible).sum(-1, keepdim=True) / (index[:, None] + 1)
        parts = (parts - means) * counts
        logits = parts.sum(0)
        self.products += torch.einsum("pbhij,bhij->hp", parts, logits).double().cpu()
        self.squares += parts.square().sum((1, 3, 4)).T.double().cpu()
        self.logit_squares += logits.square().sum((0, 2, 3)).double().cpu()
        self.pairs += int(counts.sum())

    @property
    def shares(self) -> Float[Tensor, "h p"]:
        """Return the share of each part; NaN for a head whose logits are the same for all keys."""
        return self.products / self.logit_squares[:, None]

    @property
    def deviations(self) -> Float[Tensor, "h p"]:
        """Return the root mean square of each part, in nats."""
        return (self.squares / self.pairs).sqrt()

    @property
    def logit_deviations(self) -> Float[Tensor, " h"]:
        return (self.logit_squares / self.pairs).sqrt()


@measurement
def measure(trained: TrainedRun, question: LogitPartsQuestion, on_progress: OnProgress = None) -> dict[str, Any]:
    """Return the result for one run.

    `shares` and `deviations` [layer][head][part], with the parts in the order of `parts`; `logit_deviations` [layer][head]. See
    `PartSums`. Queries up to the last scored token count, which are those of question and answer, without padding. `n`: number of
    examples.
    """
    model = require_decoder(trained.model)
    layers = [PartSums(model.config.num_heads) for _ in range(model.config.num_layers)]
    examples = 0
    for batch, (ids,) in example_batches(trained, question, [trained.run]):
        selected = batch.scored.flip(1).cumsum(1).flip(1) > 0

        def add(layer: int, queries: slice, parts: Tensor, selected: Tensor = selected) -> None:
            layers[layer].add(parts, queries, selected[:, queries])

        split_logits(model, batch.inputs, ids, add)
        examples += len(batch)
        report(on_progress, len(batch))
    return {
        "parts": list(PARTS),
        "shares": numbers(torch.stack([layer.shares for layer in layers]), DIGITS),
        "deviations": numbers(torch.stack([layer.deviations for layer in layers]), DIGITS),
        "logit_deviations": numbers(torch.stack([layer.logit_deviations for layer in layers]), DIGITS),
        "n": examples,
    }
