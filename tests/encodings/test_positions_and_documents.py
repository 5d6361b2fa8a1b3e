"""Positions that all rows of a batch share, with documents of each row's own."""

import pytest
import torch

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import context_of
from lengthwise.encodings import ENCODINGS, PositionEncoding, RotaryEncoding

SIZES = {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 2}
ROTARY = [make for make in ENCODINGS if issubclass(make, RotaryEncoding)]


@pytest.mark.parametrize("make", ROTARY, ids=lambda make: make.__name__)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_shared_positions_are_those_of_every_row(make: type[PositionEncoding], backend: str) -> None:
    encoding = make(**{name: SIZES[name] for name in context_of(make)})
    q, k, v = torch.randn(3, 2, 2, 4, 8).unbind(0)
    documents = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]])
    positions = torch.arange(4)[None]
    shared = attend(q, k, v, encoding, tokens=TokenInfo(positions=positions, documents=documents), backend=backend)
    own = attend(
        q, k, v, encoding, tokens=TokenInfo(positions=positions.expand(2, -1), documents=documents), backend=backend
    )
    torch.testing.assert_close(shared, own)
