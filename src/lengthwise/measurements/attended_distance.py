"""How far back the heads of a model attend."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, OnProgress, Probe, key, note, value
from lengthwise.measurements.table import Row

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun


class AttendedDistance(Probe):
    """How far back the heads attend, from 0 (the token itself) to 1 (the first token).

    The distance of query i and key j is normalized: (i − j) / (i + 1). It is counted for the highest logit of each
    query that predicts a token of the answer, and for all attention weights of these queries.

    Source: Kazemnejad et al. 2023, section 5.2, figure 7.
    """

    name = "attended-distance"
    Options = ExampleOptions
    columns = (
        key("layer"),
        key("head"),
        key("distance", "normalized distance at which the bin starts"),
        value(
            "highest", "queries whose highest logit is in the bin", percent=True, bounds=(0.0, 1.0), weight="queries"
        ),
        value("mass", "attention weights in the bin", percent=True, bounds=(0.0, 1.0), weight="queries"),
        note("queries", "number of queries"),
        note("n", "number of examples"),
    )
    charts = (
        Chart(
            kind="bars",
            title="How far back heads attend",
            x="distance",
            y="highest",
            steps="mass",
            facet=("encoding",),
            about="Bars show the share of queries whose highest logit is in that bin, over all layers and heads; "
            "whiskers are 95 % intervals over seeds. The line shows the share of the attention weights in that bin. "
            "The normalized distance of query i and key j is (i − j) / (i + 1), from 0, the query itself, to 1, the "
            "first token. The queries are the tokens that predict the answers of {sequences}.",
        ),
    )
    tables = (
        Numbers(
            title="Share of queries by the distance of their highest logit",
            numbers=(Number(head="{distance}", y="highest", by=("distance",)),),
        ),
        Numbers(
            title="Share of the attention weights by distance",
            numbers=(Number(head="{distance}", y="mass", by=("distance",)),),
        ),
    )
    chapter = "Attention"
    over_lengths = True
    default_lengths = "those of the run's evaluation that are longer than training"

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[int]:
        return [length for length in evaluated if length > train_length] or evaluated

    def require(self, run: Run, options: ExampleOptions, against: Run | None = None) -> None:
        from lengthwise.evaluation import check_lengths
        from lengthwise.measurements.inside.trained import require_attention

        require_attention(run)
        check_lengths(run, [options.length])

    def measure(self, trained: "TrainedRun", options: ExampleOptions, progress: OnProgress) -> Iterator[Row]:
        """Yield a row for each layer, head and bin. Queries are the tokens of `Task.answer_mask`."""
        import functools
        import operator

        from lengthwise.measurements.inside.attended_distance import BINS, attended_distance
        from lengthwise.measurements.inside.trained import count_of_examples, example_batches, grid_rows

        batches, count = [], count_of_examples(trained, options)
        for batch, positions in example_batches(trained, options, [trained.run]):
            queries = trained.task.answer_mask(batch)
            batches.append(attended_distance(trained.model, batch.inputs, queries=queries, positions=positions[0]))
            progress(len(batch) / count)
        total = functools.reduce(operator.add, batches)
        layers, heads, _ = total.most.shape
        keys: dict[str, Any] = {"layer": layers, "head": heads, "distance": [n / BINS for n in range(BINS)]}
        highest, mass = (values.double() / total.queries for values in (total.most, total.mass))
        for row in grid_rows(keys, highest=highest, mass=mass):
            yield row | {"queries": total.queries, "n": count}
