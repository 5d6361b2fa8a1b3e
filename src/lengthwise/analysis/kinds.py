"""Which lengths a run was trained on: a score at any other says something else."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lengthwise.store import RunRow, ScoreRow

Kind = Literal["shorter", "trained", "longer"]  # of a length: than any in training
HOLD_SHORTER = ("tokens", "prompt")  # words of questions to tasks whose sequences hold those of every shorter length


def kind_of(length: int, trained: tuple[int, int]) -> Kind:
    """Whether a length is "longer" than any in training, "shorter", or "trained": within the two of `trained_lengths`."""
    shortest, longest = trained
    return "longer" if length > longest else "shorter" if length < shortest else "trained"


def kind_of_score(run: "RunRow", score: "ScoreRow") -> Kind:
    """That of a stored score's length, by what its run was trained on and what was asked."""
    return kind_of(score.length, trained_lengths(run.config, run.train_length, score.asked))


def trained_lengths(config: Mapping[str, Any], longest: int, question: Mapping[str, Any]) -> tuple[int, int]:
    """The shortest and the longest length that was trained, by a run's config, its `train_length`, and what it is asked.

    A question and its answer are of one length. Text and prompts of functions hold what is shorter, and every length up to the
    longest was trained with it.
    """
    return (1 if any(word in question for word in HOLD_SHORTER) else shortest_drawn(config, longest)), longest


def shortest_drawn(config: Mapping[str, Any], longest: int) -> int:
    """The shortest length of a training step: `min_length`, or where a curriculum began."""
    training = config.get("training") or {}
    begin = (training.get("curriculum") or {}).get("length")
    return min(int(training.get("min_length") or longest), int(begin or longest))
