"""The types of the cells of a database. pydantic checks them when rows are read and written (`columns.py`)."""

import json
import re
from functools import lru_cache
from typing import Annotated, Any

from annotated_types import Ge, Lt
from pydantic import AfterValidator, BeforeValidator, InstanceOf, StringConstraints

from lengthwise.store.errors import StoreError


def require_key(key: Any) -> str:
    """Return a run's key, which becomes the name of a folder. Raise `StoreError` unless it has 16 hex digits."""
    if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{16}", key):
        raise StoreError(f"the key must be a run key of 16 hex digits (0-9, a-f), got {escaped(key)}")
    return key


def escaped(value: Any) -> str:
    """Return a value as ASCII text of at most 60 characters, without control characters for the terminal."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        raise ValueError("must be JSON") from None


_parsed_once = lru_cache(4096)(_parsed)

Key = Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
Name = Annotated[str, StringConstraints(min_length=1)]
Line = Annotated[Name, AfterValidator(_one_line)]
Whole = Annotated[int, Ge(-(2**63)), Lt(2**63)]  # what a database can hold
Count = Annotated[int, Ge(0)]
Size = Annotated[int, Ge(1)]
Time = Annotated[float, Ge(0)]  # Unix seconds
Json = Annotated[InstanceOf[dict], BeforeValidator(_parsed)]  # type: ignore[type-arg]
# The runs of a study have the same few questions, so each question is parsed once, and its rows share the dict. Do not
# change it.
Question = Annotated[InstanceOf[dict], BeforeValidator(_parsed_once)]  # type: ignore[type-arg]
