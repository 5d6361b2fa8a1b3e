"""How much the attention of two models differs, layer by layer."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.probes.attention_distance.question import AttentionDistanceQuestion
from lengthwise.probes.base import ATTENTION, Column, ModelProbe, OnProgress, StoredAnswers

if TYPE_CHECKING:
    from rich.table import Table

    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.attention_distance.summary import AttentionDistanceSummary
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.report.palette import Look
    from lengthwise.store.checks import Check


class AttentionDistance(ModelProbe):
    """How much a run's attention differs from another run's, per layer, in nats, from 0 to ln 2.

    Two runs of the same task and depth read the same test examples. In each layer, the distance of their most similar heads counts.

    Source: Kazemnejad et al. 2023, section 5.2, equation 2.
    """

    question = AttentionDistanceQuestion
    chapter = ATTENTION
    compares = True
    columns = (Column("mean"), Column("nats per layer, from first to last", is_text=True))

    def checks(self) -> "tuple[Check, Check]":
        from lengthwise.probes.attention_distance.answer import QUESTION, RESULT

        return QUESTION, RESULT

    def require(self, run: Run, questions: Sequence[AttentionDistanceQuestion], against: Run | None) -> None:
        from lengthwise.probes.attention_distance.measure import require_comparable

        assert against is not None
        require_comparable(run, against, [question.length for question in questions])

    def measure(
        self,
        trained: "TrainedRun",
        question: AttentionDistanceQuestion,
        against: "TrainedRun | None",
        on_progress: OnProgress = None,
    ) -> dict[str, Any]:
        from lengthwise.probes.attention_distance.measure import measure

        assert against is not None
        return measure(trained, against, question, on_progress)

    def cells(self, result: Mapping[str, Any]) -> Sequence[str]:
        layers = [math.nan if value is None else value for value in result["layers"]]
        return [_nats(sum(layers) / len(layers)), " ".join(map(_nats, layers))]

    def summarize(self, answers: StoredAnswers) -> "Sequence[AttentionDistanceSummary]":
        from lengthwise.probes.attention_distance.summary import summarize

        return summarize(answers)

    def section(
        self, summary: "AttentionDistanceSummary", task: "TaskFindings", looks: "Mapping[str, Look]"
    ) -> dict[str, Any]:
        from lengthwise.probes.attention_distance.section import section

        return section(summary, task, looks)

    def report_table(self, summary: "AttentionDistanceSummary", task: "TaskFindings") -> "Table":
        from lengthwise.probes.attention_distance.section import report_table

        return report_table(summary, task)


def _nats(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"
