"""The family of probes that measure scores on prompts with repeated examples: what `duplicates` and `lost-in-the-middle` share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.probes.base import LENGTH, ModelQuestion, OnProgress, option
from lengthwise.probes.in_context import POINTS, InContextProbe

if TYPE_CHECKING:
    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.analysis.probe_rows import ProbeSummary
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.probes.repeated_examples.prompts import Prompt
    from lengthwise.probes.repeated_examples.summary import PromptSeries
    from lengthwise.report.palette import Look


@dataclass(frozen=True, kw_only=True)
class RepeatedExamplesQuestion(ModelQuestion):
    """Scores on prompts of `length` examples that are taken from `points` examples."""

    length: int = option(LENGTH, times_training=8, minimum=2)
    points: int = option(POINTS, times_training=1)
    resamples: int = option("Number of bootstrap resamples for intervals over prompts.", 100)


@dataclass(frozen=True, kw_only=True)
class KindTexts:
    """What the section says about prompts of one kind.

    In a text, {at} is what differs between the prompts, {where} the same as a place, and {start} the number of the first scored
    example. `title` and `below`: of the chart of scores, and its horizontal axis; without a title, there is no chart. `mark`: of a
    prompt on this axis. `to_scale`: whether it is an axis of numbers. `curve`: the title of the chart of the scores at each
    example; without it, there is no such chart. `column`: of the table; without it, the prompts have a table of their own.
    """

    title: str = ""
    below: str = ""
    mark: str = "{at}"
    to_scale: bool = False
    curve: str = ""
    column: str = ""


class RepeatedExamples(InContextProbe):
    """A probe of scores on prompts. A probe defines the prompts, its columns and the texts of its section.

    In `explanation` and `KindTexts.below`, {length} and {points} are those of the question.
    """

    needs_attention = False
    shown: ClassVar[tuple[tuple[str, int | str], ...]]
    """The prompt of each column, by its kind and its `at`: 0 is the first of the prompts of that kind that differ in a number, and
    -1 the last."""
    title: ClassVar[str]
    explanation: ClassVar[str]
    """What the section says about the prompts."""
    kinds: ClassVar[Mapping[str, KindTexts]]

    @abstractmethod
    def prompts(self, question: Any, dims: int) -> "list[Prompt]":
        """Return the prompts of a task with `dims` dimensions. Raise `ConfigError` if one of them cannot be built."""

    @classmethod
    def folder(cls) -> str:
        return __name__

    def prompt_lengths(self, question: Any, dims: int) -> list[int]:
        return [question.points, *(len(prompt.examples) for prompt in self.prompts(question, dims))]

    def measure(
        self, trained: "TrainedRun", question: Any, against: "TrainedRun | None", on_progress: OnProgress = None
    ) -> dict[str, Any]:
        from lengthwise.probes.repeated_examples.measure import measure

        return measure(trained, question, partial(self.prompts, question), on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | None]:
        scores = {(prompt["kind"], prompt["at"]): prompt["score"] for prompt in result["prompts"]}
        numbered = {kind: [at for other, at in scores if other == kind and at != "none"] for kind, _ in scores}
        return [scores[kind, numbered[kind][at] if at in (0, -1) else at] for kind, at in self.shown]

    def section(
        self, summary: "ProbeSummary[PromptSeries]", task: "TaskFindings", looks: "Mapping[str, Look]"
    ) -> dict[str, Any]:
        from lengthwise.probes.repeated_examples.section import section

        return section(self, summary, task, looks)
