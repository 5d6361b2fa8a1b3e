"""What the methods of a user's position scheme return: one line that names the method if it is something else."""

from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.positions import PositionScheme, position_scheme_for
from lengthwise.tasks import Copy


class Own(PositionScheme):
    bound: Any = 8
    scheme: Any = None

    def positions(self, inputs: Any, documents: Any, generator: Any, training: bool) -> Any:
        return torch.arange(inputs.shape[1]).expand(inputs.shape[:2])

    def num_positions(self, tokens: int, training: bool) -> Any:
        return self.bound

    def for_task(self, task: Any) -> Any:
        return self.scheme


@pytest.mark.parametrize("bound", [None, {}, 3.0, "8", True, 0, torch.tensor(8)], ids=str)
def test_num_positions(bound: Any) -> None:
    scheme = Own()
    scheme.bound = bound
    with pytest.raises(
        ConfigError, match=r"test_scheme_contract\.py, line \d+: Own\.num_positions must return a whole number .*, got "
    ):
        scheme.checked_num_positions(4, training=False)


def test_for_task() -> None:
    with pytest.raises(ConfigError, match=r"Own\.for_task must return a position scheme, got None"):
        position_scheme_for(Copy(), choose(Own))
