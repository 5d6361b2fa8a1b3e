"""Classify lengths as shorter than training, trained, or longer than training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lengthwise.store import RunRow

Kind = Literal["shorter", "trained", "longer"]
KIND_WORDS: dict[Kind, str] = {
    "shorter": "shorter than training",
    "trained": "in distribution",
    "longer": "longer than training",
}
CONTAINS_SHORTER = ("tokens", "prompt")  # members of questions to tasks whose sequences contain all shorter ones


def kind_of(length: int, trained: tuple[int, int]) -> Kind:
    """Return whether a length is "shorter" than the range of `trained_lengths`, "trained" (within it), or "longer"."""
    shortest, longest = trained
    return "longer" if length > longest else "shorter" if length < shortest else "trained"


def length_kind(run: "RunRow", question: Mapping[str, Any]) -> Kind:
    """Return the kind of the length of a question about a run."""
    return kind_of(question["length"], trained_lengths(run.config, run.train_length, question))


def trained_lengths(config: Mapping[str, Any], longest: int, question: Mapping[str, Any]) -> tuple[int, int]:
    """Return the shortest and the longest trained length. `longest`: the run's `train_length`.

    For text and prompts of functions the shortest is 1, because training on the longest length covers all shorter ones.
    For other tasks, each example has a single length.
    """
    return (1 if any(name in question for name in CONTAINS_SHORTER) else shortest_drawn(config, longest)), longest


def shortest_drawn(config: Mapping[str, Any], longest: int) -> int:
    """Return the shortest length of a training step: `min_length`, or the first length of a curriculum."""
    training = config.get("training") or {}
    begin = (training.get("curriculum") or {}).get("length")
    return min(int(training.get("min_length") or longest), int(begin or longest))
