"""Coupled: tokens of a task that mean the same place share a position ID."""

from copy import copy
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import PositionScheme, by_document, require_number


class Coupled(PositionScheme):
    """Position coupling: tokens that the task couples, such as digits of equal significance, share a position ID.

    The task says which place every token has (`Task.coupling`): in `Addition(reverse=true, pad=true)`, + and SEP have
    place 1, the units of both numbers and of the sum have place 2, the tens 3, and so on. The position of a token is
    its place plus k, and tokens without a place (BOS, EOS) have position 0. In training every sequence draws k
    uniformly from {0, ..., max_position - m}, where m is its highest place; in evaluation k = 0. So all positions up to
    `max_position` are trained, also those that only longer sequences have in evaluation. With k = 0, addition of n
    digits has positions up to n + 2.

    Positions repeat and decrease, so their distances do not reflect order, and attention is still causal by index.
    Causal encodings that use distances treat a key at a higher position than its query as distance 0 (see `Digits`).
    The scheme is meant for a table that is added to the embeddings: `Learned(max_length=103)` has rows for the
    positions up to 102.

    Source: Cho et al. 2024, "Position Coupling: Improving Length Generalization of Arithmetic Transformers Using Task
    Structure".
    Code: HanseulJo/position-coupling (max_position = 102 in its example).
    Differs: the code draws k for each example of a data set once per epoch, here each sequence of each batch has its
    own.

    >>> from lengthwise.tasks import Addition
    >>> task = Addition(reverse=True, pad=True)
    >>> inputs = torch.tensor([[task.bos, *task.ids("653+049"), task.sep, *task.ids("2070")]])
    >>> Coupled().for_task(task).positions(inputs, None, torch.Generator(), training=False)
    tensor([[0, 4, 3, 2, 1, 4, 3, 2, 1, 2, 3, 4, 5]])
    """

    def __init__(self, *, max_position: int = 102):
        require_number("Coupled", 1, max_position=max_position)
        self.max_position = max_position
        self._coupling: Any = None

    def for_task(self, task: Any) -> PositionScheme:
        scheme = copy(self)
        scheme._coupling = task.coupling()
        return scheme

    def can_decode(self) -> bool:
        return True

    def require(self, tokens: int, training: bool) -> None:
        highest = self._task_coupling().highest(tokens)
        if training and highest > self.max_position:
            self._refuse(highest, tokens)

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t"] | None:
        places = self._places(inputs, documents)
        if not training:
            return places
        rows = torch.arange(len(inputs), device=inputs.device)[:, None].expand(inputs.shape)
        ids = torch.zeros_like(inputs) if documents is None else documents.expand(inputs.shape)
        sequences, sequence = torch.stack([rows, ids], -1).flatten(0, 1).unique(dim=0, return_inverse=True)
        highest = torch.zeros(len(sequences), dtype=torch.int64, device=inputs.device)
        highest = highest.scatter_reduce(0, sequence, places.flatten(), "amax")
        if bool((highest > self.max_position).any()):
            self._refuse(int(highest.max()), inputs.shape[1])
        shares = torch.rand(len(sequences), dtype=torch.float64, generator=generator).to(inputs.device)
        offsets = (shares * (self.max_position - highest + 1)).long()
        return torch.where(places > 0, places + offsets[sequence].view_as(places), 0)

    def num_positions(self, tokens: int, training: bool) -> int:
        return self.max_position + 1 if training else self._task_coupling().highest(tokens) + 1

    def _refuse(self, highest: int, tokens: int) -> NoReturn:
        raise ConfigError(
            f"Coupled: max_position must be at least {highest}, the highest position of a training sequence of "
            f"{tokens} tokens, got {self.max_position}"
        )

    def _task_coupling(self) -> Any:
        if self._coupling is None:
            raise ConfigError(
                "Coupled: the task must say which tokens share a position, got no task; call for_task(task) first"
            )
        return self._coupling

    def _places(self, inputs: Tensor, documents: Tensor | None) -> Int[Tensor, "b t"]:
        """Return the place of every token in its own document, whose tokens need not be contiguous."""
        return by_document(self._task_coupling().places, inputs, documents)
