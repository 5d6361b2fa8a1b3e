"""Scores by length, and what an evaluation stores beside them. The report has charts of its own for scores."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.measurements.base import SHOW, Chart, Excerpts, Measurement, Number, Numbers, Options, key, note, value
from lengthwise.measurements.table import Row, Table
from lengthwise.values import SCORES

UNREADABLE, BROKEN = "unreadable", "broken"


@dataclass(frozen=True, kw_only=True)
class ScoresOptions(Options):
    """The evaluation of a run at one length.

    `examples`: the number of examples, or `tokens`: that of tokens, for tasks that are scored per token. `prompt`: the
    length of the sequences whose prefixes are scored. `shift`: the settings of the task in which the test differs from
    training.
    """

    length: int
    examples: int | None = None
    tokens: int | None = None
    seed: int
    prompt: int | None = None
    shift: dict[str, Any] | None = None


class OfEvaluation(Measurement):
    """What the evaluation of a run stores for a question of its study."""

    Options = ScoresOptions
    command = SHOW


class Scores(OfEvaluation):
    """The score of a run at one length. Measured by `lengthwise run`, and shown by `lengthwise show KEY`.

    A run is done when every question of its study has a score. `groups`: the means of groups of examples, which are the
    same for all seeds. `baselines`: the scores of predictions without a model on the same examples; a model must beat
    the floors among them to count as having learned the task.
    """

    name = SCORES
    columns = (
        key("length"),
        value("mean", "score", bounds="metric", error="standard_error", groups="groups", examples="n"),
        note("standard_error"),
        note("n"),
        note("groups"),
        note("baselines"),
        note("note"),
    )
    tables = (Numbers(title="Scores", numbers=(Number(head="{length:,}", y="mean", by=("length",)),)),)
    chapter = "Scores"


class PositionScores(OfEvaluation):
    """The score by position, for tasks that are scored per target. Stored with each score that has several positions.

    `mean`: the mean score of `n` targets with `first` to `last` tokens before them.
    """

    name = "position-scores"
    columns = (
        key("before", "tokens before the target"),
        note("first"),
        note("last"),
        value("mean", "score", bounds="metric"),
        note("n"),
    )
    charts = (
        Chart(
            kind="lines",
            title="Score by position at length {length:,}",
            x="before",
            y="mean",
            about="The score of targets at the longest length, by the number of tokens before the target. A "
            "target with few tokens before it is harder to predict, because there is less to predict it from.",
        ),
    )
    tables = (Numbers(title="Scores by position", numbers=(Number(head="{before}", y="mean", by=("before",)),)),)
    chapter = "Score by position"
    counted = "targets"
    longest_only = True

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the range of positions as text, such as `4–7`."""
        ends = zip(answer.column("first"), answer.column("last"), strict=True)
        texts = [f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last in ends]
        return Table({**answer.columns, "before": texts})


class FurtherScores(OfEvaluation):
    """What else was found in the answers of a model: further scores of the task, the share of generated answers that
    cannot be read, and some of these.

    `name`: of the score, such as the component of a step whose share of correct answers is stored.
    """

    name = "further-scores"
    columns = (
        key("name"),
        key("length_kind"),
        value("mean", "score", weight="n"),
        note("n"),
        key("problem", "why an answer is shown"),
        note("question"),
        note("generated"),
    )
    tables = (
        Numbers(
            title="Further scores",
            numbers=(Number(head="{name}", y="mean", by=("name",)),),
            rows=("length_kind",),
            about="Means over all examples of these lengths, then over seeds.",
        ),
    )
    excerpts = (
        Excerpts("Sample answers that could not be read", {"problem": UNREADABLE}),
        Excerpts("Sample answers with steps that could not be read", {"problem": BROKEN}),
    )
    chapter = "Further scores"
    over_lengths = True


def score_tables(score: Any, remark: str | None) -> Iterator[tuple[str, Table]]:
    """Yield the answers that are stored for an `evaluation.Score`, by the names of their measurements.

    `remark`: of the task on the score.
    """
    details = score.details
    error = math.nan if score.standard_error is None else score.standard_error
    row = {"mean": score.mean, "standard_error": error, "n": score.n}
    more = {"groups": details.get("groups"), "baselines": details.get("baselines"), "note": remark}
    yield Scores.name, Table.from_rows([row | {name: cell for name, cell in more.items() if cell}])
    if positions := details.get("by_position"):
        yield PositionScores.name, Table.from_rows(positions)
    if rows := list(_further_rows(details, score.n)):
        yield FurtherScores.name, Table.from_rows(rows)


def _further_rows(details: Mapping[str, Any], n: int) -> Iterator[Row]:
    for name in details.get("order", ()):
        yield {"name": name, "mean": details["means"][name], "n": n}
    if "unreadable" in details:
        yield {"name": UNREADABLE, "mean": details["unreadable"] / n, "n": n}
    for problem, samples in ((UNREADABLE, "kept"), (BROKEN, "broken")):
        for sample in details.get(samples, ()):
            yield {"problem": problem, **sample}
