"""The base class of configurations: fields with checked types, and strict conversion from and to JSON."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import ConfigDict

from lengthwise.config.choices import Choice
from lengthwise.validation import STRICT, from_json, validated
from lengthwise.values import ConfigError, require_known

C = typing.TypeVar("C", bound="Config")


class Config:
    """Base class of the configurations, which are dataclasses. Every field is checked against its declared type."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __new__(cls, *_values: Any, **settings: Any) -> Self:
        require_known(
            cls.__name__,
            settings,
            [field.name for field in dataclasses.fields(cls)],  # type: ignore[arg-type]
        )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        declared: Any = type(self)
        for name, hint in _types(declared).items():
            object.__setattr__(self, name, validated(getattr(self, name), hint, f"{declared.__name__}.{name}"))

    def set_defaults(self, **values: Any) -> None:
        """Set fields that are None to defaults that depend on other fields."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def require_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{type(self).__name__}.{name} must be at least 1, got {getattr(self, name)}")

    def require_between(self, low: float, high: float, *names: str) -> None:
        for name in names:
            if not low <= (value := getattr(self, name)) <= high:
                raise ConfigError(f"{type(self).__name__}.{name} must be from {low} to {high}, got {value}")

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data with every default written out."""
        return {f.name: _data(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_data(cls: type[C], data: Mapping[str, Any]) -> C:
        """Return the object that `to_data` described. Raise `ArgumentError` for an unknown setting."""
        return from_json(cls, json.dumps(data))


@cache
def _types(config: type[Config]) -> dict[str, Any]:
    """Return the declared types of the fields, with the kinds of choices (`ChoiceOf`)."""
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}  # type: ignore[arg-type]


def _data(value: Any) -> Any:
    if isinstance(value, (Config, Choice)):
        return value.to_data()
    return [_data(v) for v in value] if isinstance(value, tuple) else value
