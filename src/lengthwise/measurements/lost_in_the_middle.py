"""Scores by the position of the answer in the prompt."""

from dataclasses import dataclass

from lengthwise.measurements.base import Chart, Number, Numbers, option
from lengthwise.measurements.repeated_examples import (
    WHERE,
    Parts,
    Prompt,
    RepeatedExamples,
    RepeatedExamplesOptions,
    answers_prompt,
    curves,
    duplicate_prompt,
    positions,
)


@dataclass(frozen=True, kw_only=True)
class LostInTheMiddleOptions(RepeatedExamplesOptions):
    """Scores by the position of the answers, and by `positions` of a single duplicate."""

    positions: int = option("Number of answer positions, evenly spaced over the prompt.", 21, minimum=2)


class LostInTheMiddle(RepeatedExamples):
    """Scores by the position of the answer in the prompt.

    The answers to the questions at the end stand at the beginning, in the middle or at the end of copies of another
    example. A second kind of prompt has a single duplicate of its last example, at one of several positions or
    nowhere.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    name = "lost-in-the-middle"
    Options = LostInTheMiddleOptions
    charts = (
        Chart(
            kind="lines",
            title="Position of the answers",
            x="at",
            y="score",
            where={"kind": "answers", "example": None},
            across="position of the answers",
            about="Among the copies of one example of the instruction.",
        ),
        Chart(
            kind="lines",
            title="Position of the duplicate",
            x="at",
            y="score",
            where={"kind": "serial", "example": None},
            to_scale=True,
            across="number of examples before the duplicate",
            about="The duplicate is that of the last of the {length:,} examples.",
        ),
        curves(
            "Lost in the middle: score at each example",
            "All prompts have {length:,} examples of one function, whose inputs have d dimensions. In the first "
            "chart, a prompt begins with an instruction (2 d examples) and ends with the target (d / 2 examples, "
            "rounded up). The answers are d examples between these two, which include all examples of the target. "
            "Copies of one example of the instruction fill the rest of the prompt. In the second chart, a prompt "
            "consists of copies of one example and ends with another one. That last example also occurs once before; "
            "this earlier occurrence is the duplicate. All scores are means over {n} prompts.",
        ),
    )
    tables = (
        Numbers(
            title="Scores by prompt",
            numbers=(
                Number(head="{kind} {at}", y="score", by=("kind", "at"), where={"example": None, "kind": "answers"}),
                Number(head="duplicate at {at}", y="score", by=("at",), where={"example": None, "kind": "serial"}),
            ),
            about="Of the duplicate, by the number of examples before it; “none” is without a duplicate.",
        ),
    )

    def prompts(self, options: LostInTheMiddleOptions, dims: int) -> list[Prompt]:
        parts, length = Parts(dims, options.points, options.length), options.length
        places = [*positions(length, options.positions), None]
        return [
            *(answers_prompt(parts, where) for where in WHERE),
            *(duplicate_prompt(length, place) for place in places),
        ]
