"""The base class of configurations: fields with checked types, and strict conversion from and to JSON."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

from lengthwise.config.choice_data import choice_from_data
from lengthwise.config.choices import Choice
from lengthwise.values import ConfigError, cast, require_known

C = typing.TypeVar("C", bound="Config")


class Config:
    """Base class of the configurations. Every field is checked against its declared type at construction."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, where, kind = getattr(self, f.name), f"{type(self).__name__}.{f.name}", f.metadata.get("kind")
            if isinstance(value, Choice) and kind and value.kind != kind:
                raise ConfigError(f"{where} must be of kind {kind}, got the {value.kind} {value.name}")
            if not isinstance(value, (Choice, Config)):
                if kind and value is not None:
                    raise ConfigError(
                        f"{where} must be a choice of the kind {kind}, got {value!r}; write choose(CLASS, ...)"
                    )
                object.__setattr__(self, f.name, cast(value, hints[f.name], where))
            elif not isinstance(value, hints[f.name]):
                raise ConfigError(f"{where} must be of type {hints[f.name].__name__}, got {value!r}")

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

    def to_json(self, member: str) -> str:
        """Return the text of a JSON file with one line for each setting, and one for each entry of the list `member`, the last."""
        data = self.to_data()
        entries = ",\n".join(f"    {json.dumps(entry, allow_nan=False)}" for entry in data.pop(member))
        members = [f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in data.items()]
        members.append(f'  "{member}": [\n{entries}\n  ]' if entries else f'  "{member}": []')
        return "{\n" + ",\n".join(members) + "\n}\n"

    @classmethod
    def from_data(cls: type[C], data: Mapping[str, Any]) -> C:
        """Return the object that `to_data` described. For an unknown setting, raise `ArgumentError` with a suggestion."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{cls.__name__} must be an object with named settings, got {data!r}")
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        require_known(cls.__name__, data, fields)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in data.items():
            hint, kind = hints[name], fields[name].metadata.get("kind")
            if kind and not isinstance(value, Choice) and not (value is None and fields[name].default is None):
                value = choice_from_data(kind, value)
            else:
                types = [part for part in (typing.get_args(hint) or (hint,)) if isinstance(part, type)]
                config = next((part for part in types if issubclass(part, Config)), None)
                if config is not None and typing.get_origin(hint) is tuple:
                    if not isinstance(value, (list, tuple)):
                        raise ConfigError(f"{cls.__name__}.{name} must be a list of {config.__name__}, got {value!r}")
                    value = tuple(v if isinstance(v, Config) else config.from_data(v) for v in value)
                elif (
                    config is not None and not isinstance(value, Config) and not (value is None and type(None) in types)
                ):
                    value = config.from_data(value)
            values[name] = value
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"{cls.__name__}: {error}") from error


def _data(value: Any) -> Any:
    if isinstance(value, (Config, Choice)):
        return value.to_data()
    return [_data(v) for v in value] if isinstance(value, tuple) else value
