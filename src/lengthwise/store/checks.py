"""Which values a database may hold: what each column and each JSON object has to be before the rest of the program sees it.

SQLite puts no type on a cell, and a results folder may come from anybody. A check takes a value and returns it as Python has it, or
raises `Unreadable` with the reason. JSON objects may have more members than are named here; those that are named have to fit.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from lengthwise.store.errors import StoreError

Check = Callable[[Any], Any]

KEY = re.compile("[0-9a-f]{16}")
LATEST = 253402214400.0  # Unix seconds: the end of the year 9999, beyond which there is no date
LARGEST = 1e100  # of a number that means and squares are computed with


LONGEST = 20_000  # characters of a text: the label of a model with 1,000 layers that all differ fits
LONGEST_WORD = 1_000  # characters of a name that stands in a table: of a study, a metric, a unit


class Unreadable(ValueError):
    """The reason why a value is not what the program stores there."""


def require_key(key: Any, what: str) -> str:
    """Return `key` if it is one of a run: 16 hex digits. `StoreError` otherwise: a key becomes the name of a folder."""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise StoreError(f"{what} is {escaped(key)}; the key of a run has 16 digits of 0-9 and a-f")
    return key


def escaped(value: Any, most: int = 60) -> str:
    """Return a foreign value as Python writes it, in ASCII and at most `most` characters: a terminal obeys nothing in it."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


# ---- cells --------------------------------------------------------------------------------------------------------


def key(value: Any) -> str:
    if not isinstance(value, str) or not KEY.fullmatch(value):
        raise Unreadable("is no key of 16 hex digits")
    return value


def letters(value: Any) -> str:
    """Text of any length, as JSON is."""
    if not isinstance(value, str):
        raise Unreadable(f"is {_kind(value)} instead of text")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Unreadable("is no UTF-8 text")
    return value


def text(value: Any) -> str:
    if len(letters(value)) > LONGEST:
        raise Unreadable(f"has {len(value):,} characters, more than {LONGEST:,}")
    return str(value)


def name(value: Any) -> str:
    if not text(value).strip():
        raise Unreadable("is empty")
    return str(value)


def word(value: Any) -> str:
    if len(name(value)) > LONGEST_WORD:
        raise Unreadable(f"has {len(value):,} characters, more than {LONGEST_WORD:,}")
    return str(value)


def one_of(*known: str) -> Check:
    def check(value: Any) -> str:
        if value not in known or not isinstance(value, str):
            raise Unreadable(f"is not one of {', '.join(known)}")
        return value

    return check


def whole(low: int = -(2**63), high: int = 2**63 - 1) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unreadable(f"is {_kind(value)} instead of a whole number")
        if not low <= value <= high:
            raise Unreadable(f"is a whole number outside {low} ... {high}")
        return value

    return check


def real(value: Any) -> float:
    """A number; NaN where there is none. Infinity is a loss that overflowed."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unreadable(f"is {_kind(value)} instead of a number")
    if value != math.inf and not abs(value) <= LARGEST:
        raise Unreadable("is no number that can be computed with")
    return float(value)


def number(value: Any) -> float:
    if value is None:
        raise Unreadable("is nothing instead of a number")
    return real(value)


def name_or_number(value: Any) -> str | int:
    return name(value) if isinstance(value, str) else int(whole()(value))


def digits(value: Any) -> str:
    """A whole number as JSON has it where it is the name of a member."""
    if not re.fullmatch("[0-9]{1,15}", text(value)):
        raise Unreadable("is no whole number")
    return str(value)


def time(value: Any) -> float:
    if not 0 <= real(value) <= LATEST:
        raise Unreadable("is no time")
    return float(value)


def flag(value: Any) -> bool:
    if value not in (0, 1) or isinstance(value, float):
        raise Unreadable("is neither true nor false")
    return bool(value)


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


# ---- JSON ---------------------------------------------------------------------------------------------------------


def parsed(check: Check) -> Check:
    """Return what a cell's JSON says, once it fits `check`."""

    def read(value: Any) -> Any:
        return check(parse(letters(value)))

    return read


def parse(value: str) -> Any:
    """Return the data of strict JSON: numbers are finite, and whole numbers have at most 64 bits."""
    try:
        return json.loads(value, parse_constant=_no_number, parse_float=_finite, parse_int=_short)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is no JSON ({getattr(error, 'msg', 'nested too deeply')})") from None


def _no_number(written: str) -> Any:
    raise Unreadable(f"has {written}, which is no JSON")


def _finite(written: str) -> float:
    if not math.isfinite(value := float(written)):
        raise Unreadable("has a number that is not finite")
    return value


def _short(written: str) -> int:
    if len(written) > 20 or not -(2**63) <= (value := int(written)) < 2**63:
        raise Unreadable("has a whole number of more than 64 bits")
    return value


def anything(value: Any) -> Any:
    return value


def record(
    needed: Mapping[str, Check] | None = None, further: Mapping[str, Check] | None = None, *, closed: bool = False
) -> Check:
    """An object with the members `needed`, and perhaps some of `further`; others too, unless it is `closed`."""
    needed, further = needed or {}, further or {}

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unreadable(f"is {_kind(value)} instead of an object")
        if lacking := next((part for part in needed if part not in value), None):
            raise Unreadable(f"lacks {lacking}")
        if closed and (odd := next((part for part in value if part not in needed and part not in further), None)):
            raise Unreadable(f"has {escaped(odd)}, which is not known")
        for part, fits in {**further, **needed}.items():
            if part in value:
                _within(part, fits, value[part])
        return value

    return check


def each(check: Check, least: int = 0) -> Check:
    """A list of at least so many members, all of which fit."""

    def of(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) < least:
            raise Unreadable(f"is {_kind(value)} instead of a list of at least {least}")
        for n, member in enumerate(value):
            _within(f"[{n}]", check, member)
        return value

    return of


def named(check: Check, names: Check = text) -> Check:
    """An object all of whose members fit."""

    def of(value: Any) -> dict[str, Any]:
        for part, member in record()(value).items():
            _within(escaped(part), names, part)
            _within(escaped(part), check, member)
        return value

    return of


def table(dims: int, check: Check = real) -> Check:
    """Lists in lists, none of them empty and all of one depth as long as each other: an array of `dims` dimensions."""

    def of(value: Any) -> Any:
        each(check if dims == 1 else table(dims - 1, check), least=1)(value)
        if dims > 1 and len({_shape(row) for row in value}) > 1:
            raise Unreadable("has rows of different lengths")
        return value

    return of


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value), *_shape(value[0])) if isinstance(value, list) else ()


def _within(part: str, check: Check, value: Any) -> None:
    try:
        check(value)
    except Unreadable as error:
        text = str(error)
        raise Unreadable(f"{part}{'' if text.startswith('[') else ' '}{text}") from None


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "text",
        bytes: "bytes",
        bool: "true or false",
        type(None): "nothing",
    }
    return kinds.get(type(value), "a number")
