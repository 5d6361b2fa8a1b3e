"""The family of probes that measure scores on prompts with repeated examples: what `duplicates` and `lost-in-the-middle` share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.config import Run
from lengthwise.probes.base import OnProgress, StoredAnswers
from lengthwise.probes.in_context import InContextProbe
from lengthwise.probes.repeated_examples.question import RepeatedExamplesQuestion

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.probes.repeated_examples.prompts import Prompt
    from lengthwise.probes.repeated_examples.section import Texts
    from lengthwise.probes.repeated_examples.summary import RepeatedExamplesSummary
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check


class RepeatedExamples(InContextProbe):
    """A probe of scores on prompts. A probe defines the prompts, its columns and the texts of its section."""

    needs_attention = False
    shown: ClassVar[tuple[tuple[str, int | str], ...]]
    """The prompt of each column, by its kind and its `at`: 0 is the first of the prompts of that kind that differ in a number, and
    -1 the last."""

    @abstractmethod
    def prompts(self, question: Any, dims: int) -> "list[Prompt]":
        """Return the prompts of a task with `dims` dimensions. Raise `ConfigError` if one of them cannot be built."""

    @abstractmethod
    def texts(self, summary: "RepeatedExamplesSummary") -> "Texts":
        """Return the texts of the section."""

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.repeated_examples.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def require(self, run: Run, questions: Sequence[RepeatedExamplesQuestion], against: Run | None) -> None:
        from lengthwise.probes.repeated_examples.measure import require

        for question in questions:
            require(run, question, partial(self.prompts, question))

    def measure(
        self,
        trained: "TrainedRun",
        question: RepeatedExamplesQuestion,
        against: "TrainedRun | None",
        on_progress: OnProgress = None,
    ) -> dict[str, Any]:
        from lengthwise.probes.repeated_examples.measure import measure

        return measure(trained, question, partial(self.prompts, question), on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | None]:
        scores = {(prompt["kind"], prompt["at"]): prompt["score"] for prompt in result["prompts"]}
        numbered = {kind: [at for other, at in scores if other == kind and at != "none"] for kind, _ in scores}
        return [scores[kind, numbered[kind][at] if at in (0, -1) else at] for kind, at in self.shown]

    def summarize(self, answers: StoredAnswers) -> "Sequence[RepeatedExamplesSummary]":
        from lengthwise.probes.repeated_examples.summary import summarize

        return summarize(answers)

    def labels(self, summary: "RepeatedExamplesSummary") -> list[str]:
        return [series.label for panel in summary.panels for series in panel.series]

    def section(
        self, summary: "RepeatedExamplesSummary", task: "TaskFindings", looks: "Mapping[str, Look]"
    ) -> dict[str, Any]:
        from lengthwise.probes.repeated_examples.section import section

        return section(summary, self.texts(summary), task, looks)
