"""What a position scheme cannot be, in one line of plain words."""

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.positions import POSITION_SCHEMES, Consecutive, Coupled, Digits, Randomized, Shift, Skip


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (Randomized, {"max_length": 0}, "at least 1"),
        (Randomized, {"max_length": 2.5}, "max_length must be int, got 2.5"),
        (Randomized, {"at_evaluation": "never"}, "consecutive"),
        (Shift, {"max_shift": -1}, "at least 0"),
        (Shift, {"max_shift": True}, "whole number|int"),
        (Skip, {"chunks": 1}, "at least 2"),
        (Skip, {"target_length": 0}, "at least 1"),
        (Skip, {"target_length": 3, "chunks": 4}, "at most target_length 3, got 4"),
        (Digits, {"max_offset": -1}, "at least 0"),
        (Digits, {"zero": -1}, "at least 0"),
        (Coupled, {"max_position": 0}, "at least 1"),
        *(
            (make, {name: number}, "must be at most 2,147,483,648, got")
            for make, name in (
                (Shift, "max_shift"),
                (Randomized, "max_length"),
                (Digits, "max_offset"),
                (Digits, "zero"),
                (Coupled, "max_position"),
                (Skip, "target_length"),
            )
            for number in (2**31 + 1, 10**13, 2**63 - 1, 2**70)
        ),
        (Consecutive, {"start": 1}, "no setting 'start'"),
        (Randomized, {"max_lenght": 8}, "did you mean 'max_length'"),
    ],
)
def test_settings_that_cannot_be(make, settings, words):
    with pytest.raises(ConfigError, match=words) as error:
        choose(make, **settings)
    assert "\n" not in str(error.value)
    with pytest.raises((ConfigError, TypeError)):
        make(**settings)


@pytest.mark.parametrize(
    ("scheme", "tokens", "words"),
    [
        (Randomized(max_length=8), 9, "max_length must be at least the number of tokens, 9, got 8"),
        (Skip(target_length=8), 9, "target_length must be at least the number of tokens, 9, got 8"),
        (Skip(target_length=8, chunks=3), 2, "chunks must be at most the number of tokens, 2, got 3"),
        (Skip(target_length=8), 1, "chunks must be at most the number of tokens, 1, got 2"),
    ],
)
def test_sequences_that_cannot_be_laid_out(scheme, tokens, words):
    inputs = torch.zeros(2, tokens, dtype=torch.int64)
    for refuse in (
        lambda: scheme.require(tokens, True),
        lambda: scheme.positions(inputs, None, torch.Generator(), True),
        lambda: scheme.positions(inputs, torch.zeros_like(inputs), torch.Generator(), True),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            refuse()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "scheme",
    [
        Shift(max_shift=2**31),
        Randomized(max_length=2**31),
        Digits(max_offset=2**31),
        Digits(zero=2**31),
        Skip(target_length=2**31),
        Skip(target_length=2**31, chunks=9),
    ],
    ids=lambda scheme: type(scheme).__name__,
)
def test_what_is_not_refused_is_drawn(scheme):
    inputs = torch.full((2, 9), 48)
    positions = scheme.positions(inputs, None, torch.Generator(), True)
    assert positions.dtype == torch.int64
    assert 0 <= int(positions.min()) <= int(positions.max()) < scheme.num_positions(9, training=True)


def test_evaluation_is_refused_only_where_it_draws():
    inputs = torch.zeros(2, 9, dtype=torch.int64)
    with pytest.raises(ConfigError):
        Randomized(max_length=8).positions(inputs, None, torch.Generator(), False)
    for scheme in (Randomized(max_length=8, at_evaluation="consecutive"), Skip(target_length=8)):
        scheme.require(9, training=False)
        assert scheme.positions(inputs, None, torch.Generator(), False) is None


def test_words_of_a_command_line():
    assert POSITION_SCHEMES.parse("randomized:max_length=64,at-evaluation=consecutive") == choose(
        Randomized, max_length=64, at_evaluation="consecutive"
    )
    with pytest.raises(ConfigError, match="did you mean 'Randomized'"):
        POSITION_SCHEMES.parse("randomised")
