"""The bias that an encoding adds to the logits of one query, and whether a head prefers near or far keys."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.base import Chart, Number, Numbers, OnProgress, Options, Probe, key, option, value
from lengthwise.measurements.table import Row, Table

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun

MAX_QUERY = 2**20  # the largest position of a query
MAX_STORED = 257  # distances of a stored bias, evenly spaced
KINDS = ("local", "flat", "anti-local", "mixed")
HEADS = tuple(Number(head=f"{kind} heads", y=kind, how="sum") for kind in KINDS)
TOLERANCE = 0.05  # of the relative mean distance of a flat head from 1, and of its weights from equal ones


@dataclass(frozen=True, kw_only=True)
class LearnedBiasOptions(Options):
    """The bias for the query at one position, and all keys from position 0 up to it."""

    query: int = option("Position of the query whose bias is measured.", 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.query > MAX_QUERY:
            raise ConfigError(f"query must be at most {MAX_QUERY:,}, got {self.query:,}")


class LearnedBias(Probe):
    """The bias that additive encodings add to the logits, by layer and head, and the heads that are local or
    anti-local.

    With w the softmax of the bias b(i, j) over the keys j = 0 ... i, the relative mean distance is r = Σ_j w_j (i −
    j) / (i / 2), and the variation is v = ½ Σ_j |w_j − 1 / (i + 1)|. A head is local if r < 0.95, anti-local if r >
    1.05, and otherwise flat if v ≤ 0.05, or mixed. Adding a constant to the bias changes nothing.

    Source: the curves are those of Li et al. 2024 (FIRE), who call heads local and anti-local by eye; the measure is
    ours.
    """

    name = "learned-bias"
    Options = LearnedBiasOptions
    columns = (
        key("layer"),
        key("head"),
        key("distance", "distance from the query to the key"),
        value("bias", "bias", "nats"),
        value("relative", "bias minus that of the query itself", "nats"),
        value("relative_distance", "relative mean distance", bounds=(0.0, 2.0)),
        value("variation"),
        *(value(kind, f"{kind} heads") for kind in KINDS),
    )
    charts = (
        Chart(
            kind="curves",
            title="Bias of the encoding",
            x="distance",
            y="relative",
            colour="head",
            facet=("encoding", "layer"),
            seeds="first",
            cut=10.0,  # nats: a key with a bias this much lower has e^-10 of the weight
            about="What is added to the logits of the query at position {query:,}. Each line is a head of the first "
            "seed; pale lines are the first heads. The bias of the query’s own position is subtracted, because a "
            "constant has no effect on attention.",
        ),
    )
    tables = (
        Numbers(
            title="Local, flat, anti-local and mixed heads",
            numbers=HEADS,
            about="If the bias alone decided, the weights of the keys would be its softmax. The relative mean "
            "distance is the mean distance under these weights, divided by that under equal weights: 0 if all weight "
            "is on the query’s own position, 1 for equal weights, and 2 if all weight is on the first key. A head is "
            "local below 0.95 and anti-local above 1.05; otherwise it is flat (at most 5 % of the weight differs from "
            "equal weights) or mixed. The numbers of heads are means over seeds.",
        ),
        Numbers(
            title="Relative mean distance and kinds of heads by layer",
            numbers=(Number(head="relative mean distance", y="relative_distance"), *HEADS),
            rows=("layer",),
        ),
    )
    chapter = "Attention"
    skips_unsupported = True

    def require(self, run: Run, options: LearnedBiasOptions, against: Run | None = None) -> None:
        from lengthwise.evaluation import encodings_of
        from lengthwise.measurements.inside.bias import bias_unsupported_reason
        from lengthwise.measurements.inside.trained import require_attention

        require_attention(run)
        encodings = encodings_of(run, run.task.build())
        reasons = [bias_unsupported_reason(encoding) for encoding in encodings]
        if all(reason is not None for reason in reasons):
            raise ConfigError(
                f"run {run.key[:8]} has no bias to measure: {reasons[0]}; name a run of an encoding with a bias "
                "(ALiBi, T5, FIRE)"
            )
        longest = min((e.max_length for e in encodings if e.max_length is not None), default=math.inf)
        if options.query >= longest:
            raise ConfigError(f"query must be below the encoding's {longest} positions, got {options.query}")

    def measure(self, trained: "TrainedRun", options: LearnedBiasOptions, progress: OnProgress) -> Iterator[Row]:
        """Yield a row for each head, and its bias at 257 distances or fewer. Layers without a bias are left out."""
        import torch

        from lengthwise.measurements.inside.bias import layer_biases, relative_distance, variation
        from lengthwise.measurements.inside.trained import grid_rows
        from lengthwise.models import require_decoder

        biases = layer_biases(require_decoder(trained.model), options.query)
        layers = [n for n, layer in enumerate(biases) if not layer.isnan().any()]
        points = min(options.query + 1, MAX_STORED)
        distances = torch.linspace(0, options.query, points, dtype=torch.float64).round().long()
        keys: dict[str, Any] = {"layer": [n + 1 for n in layers], "head": biases.shape[1]}
        biases = biases[layers]
        yield from grid_rows(keys, 6, relative_distance=relative_distance(biases), variation=variation(biases))
        bias = biases[..., options.query - distances]
        yield from grid_rows(keys | {"distance": distances.tolist()}, 6, bias=bias)
        progress(1)

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the kind of each head, as 1 and 0 in the columns of `KINDS`, and the biases minus that at distance 0."""
        rows, zero = [], math.nan
        for row in answer:
            if row["distance"] is None:
                kind = kind_of(row["relative_distance"], row["variation"])
                rows.append(row | {name: int(kind == name) for name in KINDS})
            else:
                zero = row["bias"] if row["distance"] == 0 else zero  # the rows of a head begin with distance 0
                rows.append(row | {"relative": row["bias"] - zero})
        return Table.from_rows(rows)


def kind_of(relative: float, variation: float) -> str:
    """Return the kind of a head, one of `KINDS`, or "" if a number is not finite.

    >>> kind_of(0.4, 0.3), kind_of(1.01, 0.02), kind_of(1.3, 0.2), kind_of(1.0, 0.4)
    ('local', 'flat', 'anti-local', 'mixed')
    """
    if not math.isfinite(relative + variation):
        return ""
    if abs(relative - 1) > TOLERANCE:
        return "local" if relative < 1 else "anti-local"
    return "flat" if variation <= TOLERANCE else "mixed"
