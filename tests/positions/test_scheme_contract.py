"""What the methods of a user's position scheme return: one line that names the method if it is something else."""

from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.positions import PositionScheme
from lengthwise.positions.base import require_valid_positions

PLAIN = torch.arange(4).expand(2, 4)
ON_TWO_AXES = torch.zeros(2, 4, 2, dtype=torch.long)


class Own(PositionScheme):
    def __init__(self, *, result: Any = PLAIN, bound: Any = 8, axes: int = 1):
        self.result, self.bound, self.num_axes = result, bound, axes

    def positions(self, inputs: Any, documents: Any, generator: Any, training: bool) -> Any:
        return self.result

    def num_positions(self, tokens: int, training: bool) -> Any:
        return self.bound


@pytest.mark.parametrize(
    "settings", [{}, {"result": None}, {"result": ON_TWO_AXES, "axes": 2}, {"result": PLAIN + 4}], ids=range(4)
)
def test_correct_positions_pass(settings: dict[str, Any]) -> None:
    require_valid_positions(Own(**settings), 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bound": None}, "num_positions must return a whole number of at least 1, got None"),
        ({"bound": 3.0}, "num_positions must return a whole number of at least 1, got 3.0"),
        (
            {"result": [[0]]},
            r"positions must return a tensor of int64 of shape \[2, 4\], or None .*, got an object of type",
        ),
        ({"result": PLAIN.float()}, r"positions .* of shape \[2, 4\], .*, got torch.float32 of shape \[2, 4\]"),
        ({"result": PLAIN[:1]}, r"positions .* of shape \[2, 4\], .*, got torch.int64 of shape \[1, 4\]"),
        ({"result": PLAIN, "axes": 2}, r"positions .* of shape \[2, 4, 2\], .*, got torch.int64 of shape \[2, 4\]"),
        ({"result": PLAIN + 5}, "positions must return 0 to 7, as `num_positions` says, got '5 to 8'"),
        ({"result": PLAIN - 1}, "positions must return 0 to 7, as `num_positions` says, got '-1 to 2'"),
    ],
)
def test_other_values(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=rf"test_scheme_contract\.py, line \d+: Own\.{says}") as error:
        require_valid_positions(Own(**settings), 4)
    assert "\n" not in str(error.value)


class Unseeded(Own):
    """A scheme that does not draw with its generator."""

    def positions(self, inputs: Any, documents: Any, generator: Any, training: bool) -> Any:
        return PLAIN + torch.randint(1000, (1,))


def test_positions_that_do_not_follow_the_generator() -> None:
    with pytest.raises(ConfigError, match=r"line \d+: Unseeded\.positions must return the same positions"):
        require_valid_positions(Unseeded(bound=10_000), 4)
