"""What probes of runs that learn functions in context have in common. Lengths are numbers of examples in a prompt."""

from collections.abc import Sequence

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
