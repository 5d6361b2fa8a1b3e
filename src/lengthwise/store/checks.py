"""Checks of the values in a database: every cell and every JSON object passes one before the program uses it.

SQLite does not enforce types, and a results folder may come from somebody else. A check takes a value and returns it as a Python
value, or raises `Unreadable` with the reason. JSON objects may have more members than are listed; those that are listed must fit.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lengthwise.store.errors import StoreError

Check = Callable[[Any], Any]

KEY = re.compile("[0-9a-f]{16}")
LATEST = 253402214400.0  # Unix seconds: the end of the year 9999, the last date that Python supports
LARGEST = 1e100  # the largest number; means and squares of such numbers do not overflow

LONGEST = 20_000  # characters of a text; enough for the label of a model with 1,000 different layers
LONGEST_WORD = 1_000  # characters of a name in a table: of a study, a metric, a unit


class Unreadable(ValueError):
    """A value is not one that the program stores there. The message is the reason."""


def require_key(key: Any, what: str) -> str:
    """Return `key` if it is the key of a run, 16 hex digits; otherwise raise `StoreError`. Keys become names of folders."""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise StoreError(f"{what} must be a run key of 16 hex digits (0-9, a-f), got {escaped(key)}")
    return key


def escaped(value: Any, most: int = 60) -> str:
    """Return an untrusted value as ASCII text of at most `most` characters, without control characters for the terminal."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer with too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


_KINDS = {dict: "an object", list: "a list", str: "text", bytes: "bytes", bool: "true or false", type(None): "nothing"}


# ---- cells --------------------------------------------------------------------------------------------------------


def key(value: Any) -> str:
    if not isinstance(value, str) or not KEY.fullmatch(value):
        raise Unreadable("is not a key of 16 hex digits")
    return value


def letters(value: Any) -> str:
    """Check text of any length, such as JSON."""
    if not isinstance(value, str):
        raise Unreadable(f"is {_kind(value)} instead of text")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Unreadable("is not UTF-8 text")
    return value


def _words(longest: int, *, filled: bool = True, printable: bool = False) -> Check:
    def check(value: Any) -> str:
        if len(letters(value)) > longest:
            raise Unreadable(f"has {len(value):,} characters, more than {longest:,}")
        if filled and not value.strip():
            raise Unreadable("is empty")
        if printable and not value.isprintable():
            raise Unreadable("is not one line of printable text")
        return str(value)

    return check


text, name, word = _words(LONGEST, filled=False), _words(LONGEST), _words(LONGEST_WORD)
printable_word = _words(LONGEST_WORD, printable=True)


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


COUNT, SIZE = whole(low=0), whole(low=1)


def real(value: Any) -> float:
    """Check a number. None becomes NaN. Infinity is allowed: it is a loss that overflowed."""
    if type(value) is float and -LARGEST <= value <= LARGEST:  # nearly every cell
        return value
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unreadable(f"is {_kind(value)} instead of a number")
    if value != math.inf and not abs(value) <= LARGEST:
        raise Unreadable("is not a finite number of a reasonable size")
    return float(value)


def number(value: Any) -> float:
    if value is None:
        raise Unreadable("is nothing instead of a number")
    return real(value)


def name_or_number(value: Any) -> str | int:
    return str(name(value)) if isinstance(value, str) else int(whole()(value))


def digits(value: Any) -> str:
    """Check a whole number that is the name of a JSON member."""
    if not re.fullmatch("[0-9]{1,15}", text(value)):
        raise Unreadable("is not a whole number")
    return str(value)


def time(value: Any) -> float:
    if not 0 <= real(value) <= LATEST:
        raise Unreadable("is not a time")
    return float(value)


def flag(value: Any) -> bool:
    if value not in (0, 1) or isinstance(value, float):
        raise Unreadable("is neither true nor false")
    return bool(value)


def optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


# ---- JSON ---------------------------------------------------------------------------------------------------------


def parsed(check: Check) -> Check:
    """Return a check that parses a cell's JSON and checks the result."""
    return lambda value: check(parse(letters(value)))


def parse(value: str) -> Any:
    """Parse strict JSON: numbers must be finite, and whole numbers have at most 64 bits."""
    if value == "{}":  # what most rows of a large study have
        return {}
    try:
        return _JSON.decode(value)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not JSON ({getattr(error, 'msg', 'nested too deeply')})") from None


def _no_number(written: str) -> Any:
    raise Unreadable(f"has {written}, which is not JSON")


def _finite(written: str) -> float:
    if not math.isfinite(value := float(written)):
        raise Unreadable("has a number that is not finite")
    return value


def _short(written: str) -> int:
    if len(written) > 20 or not -(2**63) <= (value := int(written)) < 2**63:
        raise Unreadable("has a whole number of more than 64 bits")
    return value


_JSON = json.JSONDecoder(
    parse_constant=_no_number, parse_float=_finite, parse_int=_short
)  # `json.loads` makes one per call


def anything(value: Any) -> Any:
    return value


def record(
    needed: Mapping[str, Check] | None = None, further: Mapping[str, Check] | None = None, *, closed: bool = False
) -> Check:
    """Return a check of an object with all members of `needed` and any of `further`. Others are allowed unless it is `closed`."""
    needed, further = needed or {}, further or {}

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unreadable(f"is {_kind(value)} instead of an object")
        if lacking := next((part for part in needed if part not in value), None):
            raise Unreadable(f"lacks {lacking}")
        if closed and (unknown := next((part for part in value if part not in needed and part not in further), None)):
            raise Unreadable(f"has an unknown member {escaped(unknown)}")
        for part, fits in {**further, **needed}.items():
            if part in value:
                within(part, fits, value[part])
        return value

    return check


def each(check: Check, least: int = 0) -> Check:
    """Return a check of a list with at least `least` members that all fit."""

    def check_list(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) < least:
            raise Unreadable(f"is {_kind(value)} instead of a list of at least {least}")
        for n, member in enumerate(value):
            within(f"[{n}]", check, member)
        return value

    return check_list


def each_of(names: Iterable[str], check: Check) -> Check:
    """Return a check of an object with exactly these members, which all fit."""
    return record(dict.fromkeys(names, check), closed=True)


def named(check: Check, names: Check = text) -> Check:
    """Return a check of an object whose names and values all fit."""

    def check_object(value: Any) -> dict[str, Any]:
        for part, member in record()(value).items():
            within(escaped(part), names, part)
            within(escaped(part), check, member)
        return value

    return check_object


def table(dims: int, check: Check = real) -> Check:
    """Return a check of an array with `dims` dimensions: nested lists without empty ones, and equally long at each depth."""

    def check_array(value: Any) -> Any:
        each(check if dims == 1 else table(dims - 1, check), least=1)(value)
        if dims > 1 and len({_shape(row) for row in value}) > 1:
            raise Unreadable("has rows of different lengths")
        return value

    return check_array


def with_axes(check: Check, axes: Mapping[str, str]) -> Check:
    """Return a check of an object whose arrays agree in their sizes. `axes`: a letter for each axis of each array.

    >>> with_axes(RESULT, {"scores": "ln", "distances": "n"})  # two scores need two distances
    """

    def check_object(value: Any) -> Any:
        checked, sizes = check(value), dict[str, int]()
        for part, names in axes.items():
            for letter, size in zip(names, _shape(checked[part]), strict=True):
                if sizes.setdefault(letter, size) != size:
                    raise Unreadable(f"{part} has {size} entries instead of {sizes[letter]}")
        return checked

    return check_object


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value), *_shape(value[0])) if isinstance(value, list) else ()


def within(part: str, check: Check, value: Any) -> Any:
    """Return the value that passed the check of a part of something; the part is named in the reason otherwise."""
    try:
        return check(value)
    except Unreadable as error:
        reason = str(error)
        raise Unreadable(f"{part}{'' if reason.startswith('[') else ' '}{reason}") from None


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")
