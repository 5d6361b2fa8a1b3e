"""Induction heads: the attention to what followed the same x earlier."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.config import ConfigError
from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.in_context import POINTS, REPEATS, InContextProbe
from lengthwise.measurements.table import Row, Table

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.measurements.inside.trained import TrainedRun

DIGITS = 6  # of each stored number
HALF = 0.5  # smallest share of the weights with which a head counts as an induction head


@dataclass(frozen=True, kw_only=True)
class InductionOptions(ExampleOptions):
    """The attention in prompts that repeat `points` examples, and in the second half of prompts with `length`."""

    length: int = option(base.LENGTH, 80, minimum=2)
    points: int = option(POINTS, 12)
    repeats: int = option(REPEATS, 4, minimum=2)
    neighbours: int = option("Number of nearest neighbours that the induction probe considers.", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours > (limit := self.length // 2):
            raise ConfigError(
                f"neighbours must be at most {limit} in prompts of {self.length} examples, got {self.neighbours}; use "
                "fewer, or longer prompts"
            )


class Induction(InContextProbe):
    """The heads' attention to the label that followed the same input earlier in the prompt.

    Each prompt repeats its examples. The prefix score is the mean weight of a repeated input on the label of an
    earlier occurrence. The nearest-neighbour score is the weight on the labels of the most similar earlier inputs.
    """

    name = "induction"
    Options = InductionOptions
    columns = (
        key("layer"),
        key("head"),
        value("induction", "weight on the labels of earlier occurrences of the same x", bounds=(0.0, 1.0)),
        value("nearest", "weight on the labels of the nearest earlier x", bounds=(0.0, 1.0)),
        value("prefix_score", "mean weight on one earlier occurrence", bounds=(0.0, 1.0)),
        value("is_induction_head", "heads with at least half of their weight on these labels"),
        note("uniform_induction", "`induction` of a head with equal weights"),
        note("uniform_nearest", "`nearest` of a head with equal weights"),
        note("start", "first example that counts for `nearest`"),
        note("n", "number of prompts"),
    )
    charts = (
        Chart(
            kind="lines",
            title="Induction heads: the best head of each layer",
            x="layer",
            y="induction",
            how="max",
            about="Each prompt repeats {points} examples {repeats} times. The chart shows the attention weight of "
            "each repeated x on the labels of its earlier occurrences, as the mean over {n} prompts. For comparison: "
            "a head that gives the same weight to all tokens that it sees scores {uniform_induction:.3f}.",
        ),
    )
    tables = (
        Numbers(
            title="Induction scores",
            numbers=(
                Number(head="prefix score", y="prefix_score"),
                Number(head="best head", y="induction", how="max"),
                Number(head="nearest neighbour", y="nearest"),
                Number(head="best, layer {layer}", y="induction", by=("layer",), how="max"),
                Number(head="induction heads", y="is_induction_head", how="sum"),
            ),
            about="The prefix score is the mean weight of a repeated x on the label of one earlier occurrence, over "
            "all layers and heads. The nearest-neighbour score is measured in prompts of {length} examples: it is "
            "the weight of each x, from example {start} on, on the labels of the most similar earlier x (neighbours: "
            "{neighbours}). A head with equal weights has a nearest-neighbour score of {uniform_nearest:.3f}. "
            "Induction heads have at least half of their weight on these labels.",
        ),
    )

    def measure(self, trained: "TrainedRun", options: InductionOptions, progress: base.OnProgress) -> Iterator[Row]:
        """Yield the weights of each layer and head, as means over the prompts; see `inside.induction`."""
        import torch

        from lengthwise.measurements.inside.induction import induction, nearest
        from lengthwise.measurements.inside.prompts import repeated_prompts
        from lengthwise.measurements.inside.trained import grid_rows, number

        start, repeats = options.length // 2 + 1, options.repeats

        def mean_mass(mass: Callable[..., Any], length: int, repeats: int) -> "tuple[Tensor, float]":
            shares, uniform = [], 0.0
            for batch, positions in repeated_prompts(trained, options, length, repeats):
                batch_mass = mass(trained.model, batch.inputs, positions=positions)
                shares.append(batch_mass.shares.cpu())
                uniform += batch_mass.uniform * len(batch)
                progress(len(batch) / 2 / options.examples)
            return torch.cat(shares, 1).mean(1), number(uniform / options.examples, DIGITS)

        of_copies, even_copies = mean_mass(partial(induction, points=options.points), options.points, repeats)
        by_nearest = partial(nearest, start=start, neighbours=options.neighbours)
        of_neighbours, even_neighbours = mean_mass(by_nearest, options.length, 1)
        about = {
            "uniform_induction": even_copies,
            "uniform_nearest": even_neighbours,
            "start": start,
            "n": options.examples,
        }
        layers, heads = of_copies.shape
        for row in grid_rows({"layer": layers, "head": heads}, DIGITS, induction=of_copies, nearest=of_neighbours):
            yield row | about
        # Repeats 2, 3, ... have 1, 2, ... earlier occurrences: R (R − 1) / 2 pairs for R − 1 queries.
        yield about | {"prefix_score": number(float(of_copies.mean()) * 2 / repeats, DIGITS)}

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add whether a head is an induction head, as 1 or 0."""
        return Table.from_rows(
            row if row["layer"] is None else row | {"is_induction_head": int(row["induction"] >= HALF)}
            for row in answer
        )
