"""What probes of runs that learn functions in context have in common. Lengths are numbers of examples in a prompt."""

from collections.abc import Sequence
from typing import Any

from lengthwise.config import Run
from lengthwise.probes.base import IN_CONTEXT, ModelProbe

POINTS = "Number of different examples in a prompt."
REPEATS = "Number of times that a prompt repeats its examples."


class InContextProbe(ModelProbe):
    """A probe of runs that learn functions in context. The number of examples is that of the prompts.

    The published questions are relative to the training length, so runs of a study that do not support one are skipped.
    """

    chapter = IN_CONTEXT
    counted = "prompts"
    skips_unsupported = True

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[None]:
        return [None]

    def prompt_lengths(self, question: Any, dims: int) -> list[int]:
        """Return the lengths of the prompts of a task with `dims` dimensions. Raise `ConfigError` if one cannot be built."""
        return [question.length, question.points * question.repeats]

    def require(self, run: Run, questions: Sequence[Any], against: Run | None) -> None:
        from lengthwise.probes.measuring import in_context, trained_run

        for question in questions:
            dims = in_context.require_function_task(run, self.name)
            if self.needs_attention:
                trained_run.require_attention(run)
            in_context.require_lengths(run, self.prompt_lengths(question, dims))
