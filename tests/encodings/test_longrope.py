"""LongRoPE: two lists of divisors, which one by the current length; lists as settings."""

import json

import pytest
import torch

from lengthwise.config import ConfigError, choice_from_data, choose
from lengthwise.encodings import ENCODINGS, LongRoPE, NTKAware, RoPE

SHORT, LONG = (1.0, 1.1, 1.2, 1.3), (1.0, 2.0, 4.0, 60.5)


def test_the_current_length_chooses_for_all_tokens() -> None:
    plain = RoPE(head_dim=8).frequencies(torch.tensor(1))
    made = LongRoPE(head_dim=8, train_length=64, short_factor=SHORT, long_factor=LONG)
    length = torch.tensor([[1, 64, 65], [0, 10_000, 63]])
    got = made.frequencies(length)
    assert got.shape == (2, 3, 4)
    for n, frequencies in zip(length.flatten().tolist(), got.flatten(0, 1), strict=True):
        torch.testing.assert_close(frequencies, plain / torch.tensor(LONG if n > 64 else SHORT), rtol=1e-7, atol=0)
        assert torch.equal(frequencies, made.frequencies(torch.tensor(n)))
    # Two stretches: all lengths up to L, and all beyond.
    assert made.effective_length(length).tolist() == [[64, 64, 65], [64, 65, 64]]
    assert made.effective_length(length).dtype == length.dtype


def test_without_lists_it_is_rope_up_to_the_trained_length_and_ntk_aware_beyond() -> None:
    made = LongRoPE(head_dim=64, train_length=512, factor=8.0, base=500.0)
    for n, other in ((512, RoPE(head_dim=64, base=500.0)), (513, NTKAware(head_dim=64, factor=8.0, base=500.0))):
        at = torch.tensor(n)
        torch.testing.assert_close(made.frequencies(at), other.frequencies(at), rtol=1e-13, atol=0)


def test_a_list_is_a_setting_like_any_other() -> None:
    choice = choose(LongRoPE, short_factor=[1, 1.5], long_factor=(2, 3))
    assert dict(choice.settings)["short_factor"] == (1.0, 1.5)
    assert hash(choice) == hash(choose(LongRoPE, short_factor=(1.0, 1.5), long_factor=[2.0, 3.0]))
    assert choice_from_data("encoding", json.loads(json.dumps(choice.to_data()))) == choice
    assert ENCODINGS.parse("longrope:short_factor=[1,1.5],long_factor=[2, 3]") == choice
    assert choice.build(head_dim=4, train_length=16).long_factor == (2.0, 3.0)
    # A list is for one size of head, which the model tells: 8 dims have 4 pairs.
    with pytest.raises(
        ConfigError, match=r"short_factor must have 4 numbers, .* 4 pairs of 8 rotated dimensions, got 2"
    ):
        choice.build(head_dim=8, train_length=16)
