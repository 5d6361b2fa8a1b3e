"""Scores by the position of the answer in the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lengthwise.probes.base import Column, option
from lengthwise.probes.repeated_examples import KindTexts, RepeatedExamples, RepeatedExamplesQuestion

if TYPE_CHECKING:
    from lengthwise.probes.repeated_examples.prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class LostInTheMiddleQuestion(RepeatedExamplesQuestion):
    """Scores by the position of the answers, and by `positions` of a single duplicate."""

    probe: ClassVar[str] = "lost-in-the-middle"
    positions: int = option("Number of answer positions, evenly spaced over the prompt.", 21, minimum=2)


class LostInTheMiddle(RepeatedExamples):
    """Scores by the position of the answer in the prompt.

    The answers to the questions at the end stand at the beginning, in the middle or at the end of copies of another example. A
    second kind of prompt has a single duplicate of its last example, at one of several positions or nowhere.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    question = LostInTheMiddleQuestion
    columns = tuple(map(Column, ("answers: begin", "middle", "end", "duplicate: first", "last", "none")))
    shown = (*(("answers", where) for where in ("begin", "middle", "end")), *(("serial", at) for at in (0, -1, "none")))
    title = "Lost in the middle"
    explanation = (
        "All prompts have {length:,} examples of one function, whose inputs have d dimensions. In the first chart, a prompt begins "
        "with an instruction (2 d examples) and ends with the target (d / 2 examples, rounded up). The answers are d examples "
        "between these two, which include all examples of the target. Copies of one example of the instruction fill the rest of "
        "the prompt. In the second chart, a prompt consists of copies of one example and ends with another one. That last example "
        "also occurs once before; this earlier occurrence is the duplicate."
    )
    kinds: ClassVar[Mapping[str, KindTexts]] = {
        "answers": KindTexts(
            title="Position of the answers",
            below="position of the answers among the copies of one example of the instruction",
            curve="answers {where}",
            column="answers {at}",
        ),
        "serial": KindTexts(
            title="Position of the duplicate",
            below="number of examples before the duplicate of the last of the {length:,} examples",
            to_scale=True,
        ),
    }

    def prompts(self, question: LostInTheMiddleQuestion, dims: int) -> "list[Prompt]":
        from lengthwise.probes.repeated_examples import prompts

        parts, length = prompts.Parts(dims, question.points, question.length), question.length
        positions = [*prompts.positions(length, question.positions), None]
        return [
            *(prompts.answers_prompt(parts, where) for where in prompts.WHERE),
            *(prompts.duplicate_prompt(length, position) for position in positions),
        ]
