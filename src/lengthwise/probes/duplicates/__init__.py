"""Scores on prompts in which examples are repeated."""

from typing import TYPE_CHECKING

from lengthwise.probes.base import Column
from lengthwise.probes.duplicates.question import DuplicatesQuestion
from lengthwise.probes.repeated_examples import RepeatedExamples

if TYPE_CHECKING:
    from lengthwise.probes.repeated_examples.prompts import Prompt
    from lengthwise.probes.repeated_examples.section import Texts
    from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary


class Duplicates(RepeatedExamples):
    """Scores on prompts in which examples are repeated.

    The prompts consist of an instruction, noise (copies of one example) and a target, which repeats examples of the prompt. The
    table has the scores of the target after the least and the most noise, and by where the target starts, and of copies alone.

    Source: "How Do Position Encodings Affect Length Generalization?", which calls them duplicated examples.
    """

    question = DuplicatesQuestion
    columns = tuple(
        map(Column, ("least noise", "most noise", "target: begin", "middle", "end", "all the same")),
    )
    shown = (
        ("noise", 0),
        ("noise", -1),
        ("target", "begin"),
        ("target", "middle"),
        ("target", "end"),
        ("all", "all"),
    )

    def prompts(self, question: DuplicatesQuestion, dims: int) -> "list[Prompt]":
        from lengthwise.probes.repeated_examples import prompts

        parts = prompts.Parts(dims, question.points, question.length)
        return [
            *(prompts.noise_prompt(parts, count) for count in question.noise),
            prompts.all_noise_prompt(parts),
            *(prompts.instruction_prompt(parts, where) for where in prompts.WHERE),
            *(prompts.target_prompt(parts, where) for where in prompts.WHERE),
        ]

    def texts(self, summary: "RepeatedExamplesSummary") -> "Texts":
        from lengthwise.probes.duplicates.section import texts

        return texts(summary)
