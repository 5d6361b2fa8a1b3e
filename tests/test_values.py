"""Values of settings: strict conversion, and messages that name what was expected."""

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError, EvaluationConfig, near_miss, settings_of
from lengthwise.encodings import NoPE
from lengthwise.validation import from_json, parse_value, validated
from lengthwise.values import unlisted


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()))
def test_a_value_typed_in_is_the_value(value):
    wanted = type(value)
    assert parse_value(json.dumps(value), wanted, "x") == value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, int),
        (1, bool),
        ("1", int),
        (1.0, int),
        (None, int),
        (float("inf"), float),
        pytest.param(10**400, float, id="huge"),
    ],
)
def test_nothing_bends_in_silence(value, wanted):
    with pytest.raises(ConfigError):
        validated(value, wanted, "x")


def test_near_miss_is_silent_when_nothing_is_near():
    assert near_miss("qqqq", ["alibi", "rope"]) == ""
    assert settings_of(NoPE) == {}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (int | None, "must be int or None"),
        (int | tuple[int, ...] | None, "must be int or tuple of int or None"),
        (Literal["a", "b"] | None, "must be 'a' or 'b' or None"),
        (tuple[int, str], r"must be tuple \(int, str\)"),
        (dict[str, int], "must be dict of int"),
    ],
)
def test_a_type_is_said_as_it_is_written(wanted, says):
    with pytest.raises(ConfigError, match=rf"^X\.y {says}, got 1\.5 \(float\)$"):
        validated(1.5, wanted, "X.y")


def test_a_hint_for_tuples_is_given_for_tuples_alone() -> None:
    with pytest.raises(
        ConfigError, match=r"^x must be tuple of int, got '1,2' \(str\); write a tuple with square brackets"
    ):
        parse_value("1,2", tuple[int, ...], "x")
    with pytest.raises(ConfigError, match=r"^x must be int, got '1,2' \(str\)$"):
        parse_value("1,2", int, "x")


def test_a_wrong_entry_of_a_tuple_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^EvaluationConfig\.lengths\[1\] must be int, got 'x' \(str\)$"):
        from_json(EvaluationConfig, '{"lengths": [8, "x"]}')


@pytest.mark.parametrize(
    ("name", "near"),
    [("fier", "FIRE"), ("eno", "NoE"), ("sin", "Sinusoidal"), ("kerple-lgo", "KerpleLog"), ("long_rope", "LongRoPE")],
)
def test_a_near_miss_is_near(name: str, near: str) -> None:
    assert near_miss(name, ["FIRE", "NoE", "Sinusoidal", "KerpleLog", "LongRoPE"]) == f"; did you mean {near!r}?"


@pytest.mark.parametrize("name", ["log-slopes", "si", "", "largest"])
def test_a_distant_name_is_no_near_miss(name: str) -> None:
    assert near_miss(name, ["FIRE", "NoE", "Sinusoidal", "KerpleLog", "LongRoPE", "LogN", "ALiBi"]) == ""


def test_a_suggestion_takes_the_place_of_a_long_list() -> None:
    many = [f"encoding{n}" for n in range(20)]
    assert unlisted("fier", ["fire", "rope"]) == "'fier'; did you mean 'fire'?; available: fire, rope"
    assert unlisted("encodign7", many) == "'encodign7'; did you mean 'encoding7'?"
    assert unlisted("other", many) == f"'other'; available: {', '.join(many)}"
