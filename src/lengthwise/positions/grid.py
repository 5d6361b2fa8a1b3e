"""Grid: the position of a token is its row and column, or other coordinates that the task gives."""

from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.positions.base import PositionScheme, by_document


class Grid(PositionScheme):
    """Positions with several axes: every token has the coordinates that the task gives it (`Task.coordinates`).

    In `CopyColumn`, they are the row and column of each symbol; the answer is a column to the right of the grid.
    Positions are the same in training and in evaluation. More rows than in training are positions that did not occur on
    the axis of the rows, and none on that of the columns. Only encodings with several axes read them: `AxialRoPE`,
    `RoPEMixed`, `LieRE` and `MRoPE` with two sections.

    Source: the row and column of an image's patches, as in Heo et al. 2024, "Rotary Position Embedding for Vision
    Transformer".

    >>> from lengthwise.tasks import CopyColumn
    >>> task = CopyColumn(columns=2)
    >>> inputs = torch.tensor([[task.bos, *task.ids(["a", "b", "c", "d", "[2]"]), task.sep, *task.ids(["b", "d"])]])
    >>> Grid().for_task(task).positions(inputs, None, torch.Generator(), training=False)[0].tolist()
    [[0, 0], [1, 1], [1, 2], [2, 1], [2, 2], [0, 0], [0, 3], [1, 3], [2, 3]]
    """

    def __init__(self) -> None:
        self._coordinates: Any = None

    def for_task(self, task: Any) -> PositionScheme:
        scheme = copy(self)
        scheme._coordinates = task.coordinates()
        return scheme

    @property
    def num_axes(self) -> int:  # type: ignore[override]
        return int(self._task_coordinates().axes)

    def can_decode(self) -> bool:
        return True

    def positions(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        documents: Int[Tensor, "#b t"] | None,
        generator: torch.Generator,
        training: bool,
    ) -> Int[Tensor, "b t axes"]:
        return by_document(self._task_coordinates().of, inputs, documents)

    def num_positions(self, tokens: int, training: bool) -> int:
        return int(self._task_coordinates().highest(tokens)) + 1

    def _task_coordinates(self) -> Any:
        if self._coordinates is None:
            raise ConfigError(
                "Grid: the task must give the coordinates of its tokens, got no task; call for_task(task) first"
            )
        return self._coordinates
