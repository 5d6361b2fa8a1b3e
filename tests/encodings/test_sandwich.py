"""Sandwich: far distances in pieces, small numbers with all their digits, and settings that cannot be."""

import math

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.encodings import Sandwich, sandwich


def test_distances_in_pieces_are_the_same(monkeypatch):
    encoding, distance = Sandwich(num_heads=3), torch.arange(1000)
    whole = encoding.bias(distance)
    monkeypatch.setattr(sandwich, "_CHUNK_SIZE", 7)
    torch.testing.assert_close(encoding.bias(distance), whole, rtol=1e-14, atol=0)


def test_many_distances_never_need_all_cosines_at_once(monkeypatch):
    """64 times as many numbers as distances would be half a gigabyte for a million."""
    seen = []
    sin = torch.sin
    monkeypatch.setattr(torch, "sin", lambda x: seen.append(x.numel()) or sin(x))
    assert Sandwich(num_heads=2).bias(torch.arange(100_000)).shape == (2, 100_000)
    assert sum(seen) == 64 * 100_000
    assert max(seen) <= 64 * 32_768


def test_small_angles_keep_their_digits():
    """1 - cos of 10^-8 is 0 in float64, and the bias is not."""
    found = Sandwich(num_heads=1, dim=2, base=1e8).bias(torch.tensor([1, 3]))
    torch.testing.assert_close(found, torch.tensor([[-0.5e-16, -4.5e-16]], dtype=torch.float64) / 8, rtol=1e-12, atol=0)
    assert math.cos(1e-8) == 1.0


def test_never_above_zero_and_the_last_head_is_the_flattest():
    bias = Sandwich(num_heads=8).bias(torch.arange(20_000))
    assert (bias <= 0).all()
    assert (bias[:, 0] == 0).all()
    assert (bias[:-1, 1:] < bias[1:, 1:]).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_heads": 0}, "num_heads must be .* got 0"),
        ({"dim": 0}, "dim must be .* got 0"),
        ({"dim": 7}, "dim must be even, because sines and cosines come in pairs, got 7"),
        ({"base": 0.0}, "base must be .* got 0.0"),
        ({"base": math.inf}, "base must be .* got inf"),
    ],
)
def test_what_cannot_be_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Sandwich(**{"num_heads": 2, **settings})
