"""The development of an encoding's own numbers during training, which the training records."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from lengthwise.measurements.base import SHOW, Chart, Measurement, Number, Numbers, key, value
from lengthwise.measurements.table import Row, Table


class Development(Measurement):
    """How the encoding's own numbers develop during training. Recorded by the training, and shown by `lengthwise
    show KEY`.

    FIRE records c and L, ALiBi its learned slopes, KERPLE its parameters, and T5 the bias of each bucket. Runs that
    were trained before these numbers were recorded have none.
    """

    name = "development"
    columns = (
        key("quantity"),
        key("layers", "layers that share it"),
        key("head"),
        key("entry", "entry of a table of the encoding"),
        key("step", "training step"),
        value("value", "value"),
        value("before"),
        value("after"),
        value("change"),
    )
    charts = (
        Chart(
            kind="curves",
            title="The encodings’ own numbers during training",
            x="step",
            y="value",
            colour="head",
            facet=("encoding", "quantity", "layers"),
            where={"entry": None},
            seeds="each",
            about="The training recorded these numbers. Lines of the first seed are in full colour, or get darker "
            "from the first head to the last; lines of other seeds are pale.",
        ),
        Chart(
            kind="curves",
            title="The encodings’ own tables during training",
            x="step",
            y="value",
            colour="entry",
            facet=("encoding", "quantity", "layers", "head"),
            seeds="first",
            about="One chart for each head of the first seed; lines get darker from the first entry of the table to "
            "the last.",
        ),
    )
    tables = (
        Numbers(
            title="The encodings’ own numbers before and after training",
            numbers=(
                Number(head="before training", y="before"),
                Number(head="after training", y="after"),
                Number(head="change", y="change"),
            ),
            rows=("quantity", "layers"),
            about="Means over the heads, or over all entries of a table of the encoding. The change is computed for "
            "each run.",
        ),
    )
    chapter = "During training"
    command = SHOW

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add a row for each quantity with the means before and after training, and the change."""
        rows: list[Row] = []
        steps = answer.column("step")
        ends = [answer.combined("value", ("quantity", "layers"), {"step": step}) for step in (min(steps), max(steps))]
        for (quantity, layers), before in ends[0].items():
            after = ends[1][quantity, layers]
            rows.append(
                {"quantity": quantity, "layers": layers, "before": before, "after": after, "change": after - before}
            )
        return Table.from_rows([*answer, *rows])


def development_rows(tracked: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of what a training recorded: `steps`, and `quantities` with values by step and line.

    A scalar has one line, and a quantity per head one for each head. A table has one for each of its `entries` of
    each head.
    """
    for quantity in tracked["quantities"]:
        shape, entries = quantity["shape"], quantity["entries"] or [None]
        heads: Sequence[Any] = range(1, shape[0] + 1) if shape else ["all"]
        lines = list(product(heads, entries if len(shape) == 2 else [None]))
        about = {"quantity": quantity["name"], "layers": layers_text(quantity["layers"])}
        for step, values in zip(tracked["steps"], quantity["values"], strict=True):
            for (head, entry), number in zip(lines, values, strict=True):
                row = about | {"head": head, "step": step, "value": math.nan if number is None else number}
                yield row if entry is None else row | {"entry": entry}


def layers_text(layers: Sequence[int]) -> str:
    """Return layers in words: `layer 3`, `layers 1 to 4`, `4 layers from 1 to 7`."""
    first, last = layers[0], layers[-1]
    if first == last:
        return f"layer {first}"
    return (
        f"layers {first} to {last}"
        if last - first + 1 == len(layers)
        else f"{len(layers)} layers from {first} to {last}"
    )
