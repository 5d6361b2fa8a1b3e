"""What probes of runs that learn functions in context have in common. Lengths are numbers of examples in a prompt."""

from typing import Any

from lengthwise.config import Run
from lengthwise.measurements.base import Probe

POINTS = "Number of different examples in a prompt."
REPEATS = "Number of times that a prompt repeats its examples."


class InContextProbe(Probe):
    """A probe of runs that learn functions in context.

    The published questions are relative to the training length, so runs of a study that do not support one are skipped.
    """

    chapter = "Learning in context"
    counted = "prompts"
    skips_unsupported = True

    def prompt_lengths(self, options: Any, dims: int) -> list[int]:
        """Return the lengths of the prompts for a task with `dims`. Raise `ConfigError` if one cannot be built."""
        return [options.length, options.points * options.repeats]

    def require(self, run: Run, options: Any, against: Run | None = None) -> None:
        from lengthwise.evaluation import check_lengths
        from lengthwise.measurements.inside import prompts, trained

        dims = prompts.require_function_task(run, self.name)
        if self.needs_attention:
            trained.require_attention(run)
        check_lengths(run, sorted(set(self.prompt_lengths(options, dims)), reverse=True))  # an error names the longest
