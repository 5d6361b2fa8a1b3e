"""The training of a run: loss and learning rate by step, and its cost."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.measurements.base import SHOW, Chart, Measurement, Number, Numbers, key, value
from lengthwise.measurements.table import Table
from lengthwise.values import TRAINING

MOST_POINTS = 60  # of a curve on the page


class Training(Measurement):
    """The training curve of a run. Recorded by the training, and shown by `lengthwise show KEY`.

    `loss`: in nats per scored token. Each row is a mean over the steps since the row before.
    """

    name = TRAINING
    columns = (
        key("step", "training step"),
        value("loss", unit="nats per scored token", bounds=(0.0, math.inf)),
        value("learning_rate", bounds=(0.0, math.inf)),
        value("gradient_norm"),
        value("tokens_per_second"),
        value("last_loss"),
        value("seconds"),
        value("megabytes", "peak memory", "MB"),
        value("parameters", whole=True),
    )
    charts = (
        Chart(
            kind="curves",
            title="Training loss",
            x="step",
            y="loss",
            facet=("encoding",),
            seeds="each",
            to_scale=True,
            about="The loss on the training batches. Each seed has its own line.",
        ),
        Chart(
            kind="curves",
            title="Learning rate",
            x="step",
            y="learning_rate",
            seeds="first",
            to_scale=True,
            about="The learning rate of the first seed of each encoding.",
        ),
    )
    tables = (
        Numbers(
            title="Last loss and cost of the training",
            numbers=(
                Number(head="last loss", y="last_loss"),
                Number(head="training time (s)", y="seconds"),
                Number(head="peak memory (MB)", y="megabytes"),
                Number(head="parameters", y="parameters"),
            ),
            about="The last loss is that of the last batches. Times of runs that shared a machine with others are "
            "longer than those of runs that had it alone.",
        ),
    )
    chapter = "Training"
    command = SHOW

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Return at most `MOST_POINTS` points of the curve, and a row with the last loss and the training's cost."""
        losses = [loss for loss in answer.column("loss") if math.isfinite(loss)]
        ends = {"last_loss": losses[-1] if losses else None, "seconds": facts.get("seconds")}
        ends |= {"megabytes": facts["peak_memory"] / 1e6 if "peak_memory" in facts else None}
        return Table.from_rows([*answer.thinned(MOST_POINTS), ends | {"parameters": facts.get("parameters")}])
