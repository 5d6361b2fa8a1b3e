"""Scores by the position of the answer in the prompt."""

from typing import TYPE_CHECKING

from lengthwise.probes.base import Column
from lengthwise.probes.lost_in_the_middle.question import LostInTheMiddleQuestion
from lengthwise.probes.repeated_examples import RepeatedExamples

if TYPE_CHECKING:
    from lengthwise.probes.repeated_examples.prompts import Prompt
    from lengthwise.probes.repeated_examples.section import Texts
    from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


class LostInTheMiddle(RepeatedExamples):
    """Scores by the position of the answer in the prompt.

    The answers to the questions at the end stand at the beginning, in the middle or at the end of copies of another example. A
    second kind of prompt has a single duplicate of its last example, at one of several positions or nowhere.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    question = LostInTheMiddleQuestion
    columns = tuple(map(Column, ("answers: begin", "middle", "end", "duplicate: first", "last", "none")))
    shown = (
        ("answers", "begin"),
        ("answers", "middle"),
        ("answers", "end"),
        ("serial", 0),
        ("serial", -1),
        ("serial", "none"),
    )

    def prompts(self, question: LostInTheMiddleQuestion, dims: int) -> "list[Prompt]":
        from lengthwise.probes.repeated_examples import prompts

        parts, length = prompts.Parts(dims, question.points, question.length), question.length
        positions = [*prompts.positions(length, question.positions), None]
        return [
            *(prompts.answers_prompt(parts, where) for where in prompts.WHERE),
            *(prompts.duplicate_prompt(length, position) for position in positions),
        ]

    def texts(self, summary: "RepeatedExamplesSummary") -> "Texts":
        from lengthwise.probes.lost_in_the_middle.section import texts

        return texts(summary)
