"""The parts of attention logits that come from words and from positions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.config import ConfigError, Run
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.table import Row

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun

PARTS = ("word-word", "word-position", "position-word", "position-position")
"""The parts of a logit <q, k>: first what the query comes from, then what the key comes from."""
DIGITS = 6  # of each stored number


@dataclass(frozen=True, kw_only=True)
class LogitPartsOptions(ExampleOptions):
    """The parts of the logits on test examples."""

    length: int = option(base.LENGTH, times_training=1)


class LogitParts(base.Probe):
    """Attention logits with absolute encodings, split into word-word, word-position, position-word and
    position-position parts.

    Each query and key is the sum of what it gets from the token's embedding and of what it gets from the position's
    vector, with the norms held at their values (in upper layers also attention weights and the MLPs' gates). The
    four products add up to the logit. A part's share is Σ P L / Σ L², over all pairs of a query and a visible key,
    where P is the part and L the logit, both minus their means over the query's keys. The shares of a head add up to
    1; a part that opposes the others has a negative one. The table has the means over the heads of the first layer.

    Source: the expansion of (W_q (x_i + p_i)) · (W_k (x_j + p_j)) in Dai et al. 2019 (Transformer-XL), section 3.3.
    """

    name = "logit-parts"
    Options = LogitPartsOptions
    columns = (
        key("layer"),
        key("head"),
        key("part", "part; “logit” is their sum"),
        value("share", "share of the logit", percent=True),
        value("deviation", "standard deviation over a query’s keys", "nats"),
        note("n", "number of examples"),
    )
    charts = (
        Chart(
            kind="bars",
            title="Words and positions in the logits",
            x="layer",
            y="deviation",
            colour="part",
            facet=("encoding",),
            where={"part": PARTS},
            about="A query and a key are each the sum of a part from the word and a part from its position, so their "
            "product has four parts: “word-position” is a query’s word and a key’s position. The charts show the "
            "root mean square of each part, after its mean over the keys of a query is subtracted, because a "
            "constant has no effect on attention. They are means over heads and seeds, in {sequences}. The split is "
            "exact in layer 1, with the norm’s variance held at its value. In upper layers, attention weights and "
            "the gates of the MLPs are also held at their values, so a part there says where a vector comes from, "
            "and not why the model moved it.",
        ),
    )
    tables = (
        Numbers(
            title="Shares of the parts of logits, means over heads",
            numbers=(Number(head="layer {layer}: {part}", y="share", by=("layer", "part")),),
            about="A share is Σ P L / Σ L² over all pairs of a query and a visible key, where P is the part and L is "
            "the logit, both minus their means over the query’s keys. The four shares add up to 100 %; a part that "
            "opposes the others has a negative share.",
        ),
        Numbers(
            title="Standard deviations in nats, means over heads",
            numbers=(Number(head="layer {layer}: {part}", y="deviation", by=("layer", "part")),),
        ),
        Numbers(
            title="Shares by head, first seed",
            numbers=(Number(head="{part}, head {head}", y="share", by=("part", "head")),),
            rows=("layer",),
            first_seed=True,
        ),
    )
    chapter = "Attention"
    skips_unsupported = True

    def require(self, run: Run, options: LogitPartsOptions, against: Run | None = None) -> None:
        from lengthwise.evaluation import check_lengths, encodings_of
        from lengthwise.measurements.inside.logit_split import split_unsupported_reason
        from lengthwise.measurements.inside.trained import require_attention

        require_attention(run)
        encoding, *_ = encodings_of(run, run.task.build())
        reason = split_unsupported_reason(encoding, run.model.d_model)
        if any(layer.layer.window is not None for layer in run.encoding.layers):
            reason = "its layers have a window"
        if reason:
            raise ConfigError(
                f"the logits of run {run.key[:8]} have no parts of words and positions: {reason}; name a run of an "
                "absolute encoding (Sinusoidal, Learned)"
            )
        check_lengths(run, [options.length])

    def measure(self, trained: "TrainedRun", options: LogitPartsOptions, progress: base.OnProgress) -> Iterator[Row]:
        """Yield a row for each layer, head and part. Queries up to the last scored token count, without padding."""
        import torch

        from lengthwise.measurements.inside.logit_split import PartSums, split_logits
        from lengthwise.measurements.inside.trained import count_of_examples, example_batches, grid_rows
        from lengthwise.models import require_decoder

        model, count = require_decoder(trained.model), count_of_examples(trained, options)
        layers = [PartSums(model.config.num_heads) for _ in range(model.config.num_layers)]
        for batch, (ids,) in example_batches(trained, options, [trained.run]):
            selected = batch.scored.flip(1).cumsum(1).flip(1) > 0

            def add(layer: int, queries: slice, parts: torch.Tensor, selected: torch.Tensor = selected) -> None:
                layers[layer].add(parts, queries, selected[:, queries])

            split_logits(model, batch.inputs, ids, add)
            progress(len(batch) / count)
        keys = {"layer": len(layers), "head": model.config.num_heads}
        shares, sizes = (torch.stack([getattr(of, name) for of in layers]) for name in ("shares", "deviations"))
        for row in grid_rows(keys | {"part": PARTS}, DIGITS, share=shares, deviation=sizes):
            yield row | {"n": count}
        yield from grid_rows(
            keys | {"part": ["logit"]}, DIGITS, deviation=torch.stack([of.logit_deviations for of in layers])
        )
