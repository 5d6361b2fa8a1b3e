"""The lengths of a run's training and test examples, which need no model."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.probes.base import EXAMPLES, Probe, StoredAnswers
from lengthwise.probes.example_lengths.question import ExampleLengthsQuestion

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.example_lengths.summary import ExampleLengthsSummary
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check
    from lengthwise.store.rows import ProbeRow


class ExampleLengths(Probe):
    """The number of training and test examples of each length. Needs no model and has its own command, `lengthwise lengths KEY`."""

    question = ExampleLengthsQuestion
    chapter = EXAMPLES
    command = "lengthwise lengths KEY"

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.example_lengths.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def summarize(self, answers: StoredAnswers) -> "Sequence[ExampleLengthsSummary]":
        from lengthwise.probes.example_lengths.summary import summarize

        return summarize(answers)

    def section(
        self, summary: "ExampleLengthsSummary", task: "TaskFindings", looks: "Mapping[str, Look]"
    ) -> dict[str, Any]:
        from lengthwise.probes.example_lengths.section import section

        return section(summary, task)

    def stored_note(self, key: str, rows: "Sequence[ProbeRow]") -> str:
        return f"the lengths of its examples are stored; `lengthwise lengths {key}` shows them"
