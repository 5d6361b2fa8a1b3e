"""How much the attention of two models differs, layer by layer."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lengthwise.config import ConfigError, Run
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, Column, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.table import Row

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun


@dataclass(frozen=True, kw_only=True)
class AttentionDistanceOptions(ExampleOptions):
    """The distance from the attention of the run with the key `against`."""

    against: str
    examples: int = option(base.EXAMPLES_AT_LENGTH, 10)
    variant: Literal["jensen-shannon", "published"] = option(
        "How attention distances are computed: jensen-shannon, or published (as in the NoPE study's code).",
        "jensen-shannon",
    )


class AttentionDistance(base.Probe):
    """How much a run's attention differs from another run's, per layer, in nats, from 0 to ln 2.

    Two runs of the same task and depth read the same test examples. In each layer, the distance of their most
    similar heads counts.

    Source: Kazemnejad et al. 2023, section 5.2, equation 2.
    """

    name = "attention-distance"
    Options = AttentionDistanceOptions
    columns = (
        key("layer"),
        value("distance", "distance", "nats", bounds=(0.0, math.inf), error="error"),
        note("error", "standard error over the examples"),
        note("n", "number of examples"),
        note("places", "number of queries in all examples"),
    )
    charts = (
        Chart(
            kind="lines",
            title="Distance from {reference}’s attention in each layer",
            x="layer",
            y="distance",
            about="Compared with {reference}’s runs of {pairing}, by the variant {variant}. The distance of two rows "
            "of attention weights is a divergence; the distance of two heads is its mean over the rows of the "
            "question’s and the answer’s tokens. In each layer, every head of one model is compared with every head "
            "of the other (published: only head m with head n for m < n), and the pair with the smallest distance "
            "counts. The chart shows the mean of this smallest distance over {sequences}. A line named “another "
            "seed” is the baseline: runs of {reference} compared with each other.",
        ),
    )
    tables = (
        Numbers(
            title="Distances by layer",
            numbers=(Number(head="mean", y="distance"), Number(head="layer {layer}", y="distance", by=("layer",))),
        ),
    )
    chapter = "Attention"
    compares = True
    over_lengths = True
    in_report_table = True

    def bounds(self, column: Column, question: Mapping[str, object]) -> base.Bounds | Literal["metric"]:
        # The published divergence, half the sum of KL(M‖P) and KL(M‖Q), has no upper end.
        return (0.0, math.log(2)) if question["variant"] == "jensen-shannon" else super().bounds(column, question)

    def remarks(self, answers: Mapping[str, object]) -> list[str]:
        return [
            "Runs with the same seed start from the same weights, whatever their encoding, so they are closer to "
            "each other than runs of different seeds are. To compare encodings with the baseline, measure runs with "
            "different seeds (--across-seeds)."
        ]

    def require(self, run: Run, options: AttentionDistanceOptions, against: Run | None) -> None:
        from lengthwise.evaluation import check_lengths
        from lengthwise.measurements.inside.trained import require_attention

        assert against is not None
        if run.key == against.key:
            raise ConfigError(f"run {run.key[:8]} cannot be compared with itself; name another run")
        for one in (run, against):
            require_attention(one)
        if run.task.identity() != against.task.identity():
            raise ConfigError(
                f"run {run.key[:8]} is trained on {_task(run)} and run {against.key[:8]} on {_task(against)}, but "
                "attention is compared on the same examples; name runs of the same task with the same settings"
            )
        if (a := run.model.num_layers) != (b := against.model.num_layers):
            raise ConfigError(
                f"run {run.key[:8]} has {a} layers and run {against.key[:8]} has {b}, but layers are compared one to "
                "one; name runs of equal depth"
            )
        for one in (run, against):
            check_lengths(one, [options.length])

    def measure(
        self, trained: "TrainedRun", options: AttentionDistanceOptions, progress: base.OnProgress
    ) -> Iterator[Row]:
        """Yield the mean distance in each layer. Queries up to the last scored token count, without padding."""
        import torch

        from lengthwise.measurements.inside.attention_distance import attention_distance
        from lengthwise.measurements.inside.trained import count_of_examples, example_batches, grid_rows

        other = trained.against
        assert other is not None
        distances, places, count = [], 0, count_of_examples(trained, options)
        for batch, (in_a, in_b) in example_batches(trained, options, [trained.run, other.run]):
            queries = batch.scored.flip(1).cumsum(1).flip(1) > 0
            places += int(queries.sum())
            distance = attention_distance(
                trained.model,
                other.model,
                batch.inputs,
                queries=queries,
                positions=(in_a, in_b),
                variant=options.variant,
            )
            distances.append(distance.cpu())
            progress(len(batch) / count)
        values = torch.cat(distances).double()
        errors = values.std(0) / math.sqrt(count) if count > 1 else torch.full(values.shape[1:], math.nan)
        for row in grid_rows({"layer": values.shape[1]}, distance=values.mean(0), error=errors):
            yield row | {"n": count, "places": places}


def _task(run: Run) -> str:
    settings = ", ".join(f"{k}={json.dumps(v)}" for k, v in run.task.identity().items() if k not in ("is", "class"))
    return f"{run.task.name}({settings})"
