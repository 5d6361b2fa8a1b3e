"""The base classes of position schemes: positions are a pure function of the tokens and a generator."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import CheckedArguments
from lengthwise.user_classes import is_builtin_class, not_repeatable, wrong_return
from lengthwise.values import require_at_most, require_integer

MOST_POSITIONS = 2**31  # positions of a scheme are below it


def require_number(what: str, low: int, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number from `low` to 2^31."""
    require_integer(what, low, **values)
    require_at_most(what, MOST_POSITIONS, **values)  # type: ignore[arg-type]


def by_document(
    place: Callable[[Tensor], Int[Tensor, "b t *axes"]],
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    documents: Int[Tensor, "#b t"] | None,
) -> Int[Tensor, "b t *axes"]:
    """Return what `place` returns for the tokens of each document, which need not be contiguous."""
    if documents is None or not inputs.numel():
        return place(inputs)
    ids, result = documents.cpu().expand(inputs.shape[:2]), None
    for row in range(len(inputs)):
        for document in ids[row].unique():
            members = ids[row] == document
            places = place(inputs[row, members][None])[0]
            result = places.new_zeros(*inputs.shape[:2], *places.shape[1:]) if result is None else result
            result[row, members] = places
    assert result is not None
    return result


class PositionScheme(CheckedArguments):
    """A rule that assigns position IDs to tokens, in training and in evaluation.

    Attention stays causal by index: a scheme changes positions, never which tokens are visible. Arguments are
    keyword-only settings, each with a default.
    """

    kind: ClassVar[str] = "position scheme"
    version: ClassVar[int] = 1  # part of a run's key; increase it in the class when its positions change
    num_axes: int = 1  # how many axes the positions have

    @abstractmethod
    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t *axes"] | None:
        """Return the positions of a batch, for each document separately. None: consecutive, which is faster.

        They have an axis of `num_axes` numbers if that is more than one.

        The generator is a CPU generator on every device, so the same state gives the same positions on every machine.
        """

    @abstractmethod
    def num_positions(self, tokens: int, training: bool) -> int:
        """Return a bound: the positions of a sequence of `tokens` tokens are 0 ... num_positions - 1, on every axis."""

    def require(self, tokens: int, training: bool) -> None:
        """Raise `ConfigError` if the scheme cannot assign positions to sequences of `tokens` tokens."""

    def for_task(self, task: Any) -> "PositionScheme":
        """Return this scheme for the sequences of a task. Raise `ConfigError` if it does not apply to the task."""
        return self

    def require_axes_of(self, encodings: Iterable[Any]) -> None:
        """Raise `ConfigError` if the positions have several axes and an encoding does not read as many."""
        if self.num_axes > 1:
            for encoding in encodings:
                encoding.require_axes(self.num_axes)

    def can_decode(self) -> bool:
        """Return whether, in evaluation, a generated token gets a final position and changes no position before it.

        Tasks that are scored by decoding refuse other schemes.
        """
        return False

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings; raise `ConfigError` if the constructor rejects them."""
        cls(**settings)
        return settings


def require_valid_positions(scheme: PositionScheme, tokens: int) -> None:
    """Raise `ConfigError` unless a user's scheme gives a small batch whole numbers from 0 to `num_positions` - 1.

    They have to be the same for the same state of the generator, because otherwise a run could not be repeated.
    """
    if is_builtin_class(type(scheme)):
        return
    inputs = torch.zeros(2, tokens, dtype=torch.long)
    shape = [*inputs.shape, *([] if scheme.num_axes == 1 else [scheme.num_axes])]
    for training in (True, False):
        scheme.require(tokens, training)
        bound: Any = scheme.num_positions(tokens, training)
        if not isinstance(bound, int) or bound < 1:
            raise wrong_return(scheme, "num_positions", "a whole number of at least 1", bound)
        positions: Any
        positions, again = (
            scheme.positions(inputs, None, torch.Generator().manual_seed(0), training) for _ in range(2)
        )
        if positions is None:
            continue
        if not isinstance(positions, Tensor) or positions.dtype != torch.int64 or list(positions.shape) != shape:
            expected = f"a tensor of int64 of shape {shape}, or None for consecutive positions"
            raise wrong_return(scheme, "positions", expected, positions)
        if again is None or not torch.equal(positions, again):
            raise not_repeatable(scheme, "positions", "positions")
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= bound:
            raise wrong_return(scheme, "positions", f"0 to {bound - 1}, as `num_positions` says", f"{low} to {high}")


class RandomPositions(PositionScheme):
    """A scheme that draws positions from the number of tokens of each sequence. Subclasses define `draw`."""

    at_evaluation: str = "consecutive"  # or "random": drawn as in training

    @abstractmethod
    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        """Return positions of `rows` sequences (or documents) of `tokens` tokens, drawn row after row."""

    def draws(self, training: bool) -> bool:
        """Whether positions are drawn in this mode; otherwise they are consecutive."""
        return training or self.at_evaluation == "random"

    def can_decode(self) -> bool:
        return not self.draws(training=False)

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        if not self.draws(training):
            return None
        longest = inputs.shape[1]
        if documents is not None:
            longest = max(int(row.unique(return_counts=True)[1].max()) for row in documents)
        self.require(longest, training)
        draw = lambda part: self.draw(len(part), part.shape[1], generator).to(inputs.device)  # noqa: E731
        return by_document(draw, inputs, documents)
