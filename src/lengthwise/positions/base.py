"""What a position scheme is: positions as a pure function of the tokens and a generator."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.values import require_whole

MOST_POSITIONS = 2**31  # that a position scheme may claim


def require_number(what: str, low: int, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number, `low` ... 2^31."""
    require_whole(what, low, **values)
    for name, value in values.items():
        if isinstance(value, int) and value > MOST_POSITIONS:
            raise ConfigError(f"{what}: {name} is {value}; positions end below {MOST_POSITIONS:,}, so make it smaller")


class PositionScheme(ABC):
    """Which position each token claims, in training and in evaluation.

    Attention stays causal by index: a position scheme moves positions, never what a token may see. Arguments are keyword-only
    settings, each with a default.
    """

    kind: ClassVar[str] = "position scheme"
    version: ClassVar[int] = (
        1  # counts for a run's key; raise it in the class whenever the positions that it gives change
    )

    @abstractmethod
    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        """The positions of a batch, each document by itself; None: consecutive ones, which the model counts faster.

        The generator is a CPU generator whatever the device: the same state gives the same positions on every machine.
        """

    @abstractmethod
    def num_positions(self, tokens: int, training: bool) -> int:
        """The positions that a sequence of so many tokens may claim are 0 ... num_positions - 1."""

    def require(self, tokens: int, training: bool) -> None:  # noqa: B027  (most can lay out anything)
        """Raise `ConfigError` where sequences of so many tokens cannot be laid out."""

    def for_task(self, task: Any) -> "PositionScheme":
        """This position scheme for the sequences of a task (its `vocab_size`, ...); `ConfigError` where it makes no sense there."""
        return self

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Raise `ConfigError` for settings that cannot be: the constructor judges."""
        cls(**settings)
        return settings


class RandomPositions(PositionScheme):
    """A position scheme that draws the positions of each sequence from its number of tokens alone: a method gives `draw`."""

    at_evaluation: str = "consecutive"  # or "random": drawn as in training

    @abstractmethod
    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> Int[Tensor, "b t"]:
        """Positions of `rows` sequences (or documents) of so many tokens, each drawn by itself; row after row."""

    def draws(self, training: bool) -> bool:
        return training or self.at_evaluation == "random"

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        if not self.draws(training):
            return None
        rows, tokens = inputs.shape[:2]
        if documents is None:
            self.require(tokens, training)
            return self.draw(rows, tokens, generator).to(inputs.device)
        ids = documents.cpu().expand(rows, tokens)
        parts = [(row, ids[row] == one) for row in range(rows) for one in ids[row].unique()]
        self.require(max((int(own.sum()) for _, own in parts), default=0), training)
        made = torch.empty(rows, tokens, dtype=torch.int64)
        for row, own in parts:
            made[row, own] = self.draw(1, int(own.sum()), generator)[0]
        return made.to(inputs.device)
