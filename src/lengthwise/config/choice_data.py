"""Fields of configurations that are choices, and choices from plain JSON data, the inverse of `Choice.to_data`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from lengthwise.config.choices import Choice, Registry, alternate, choose
from lengthwise.config.layers import layer_settings_of
from lengthwise.values import ConfigError


def choice_from_data(kind: str, data: Any) -> Choice:
    """Return the choice that `to_data` described, with the current class, whose version is in the run key."""
    if not isinstance(data, Mapping) or not isinstance(data.get("is"), str):
        raise ConfigError(f'a choice of {kind} must be an object like {{"is": "NAME", ...}}, got {data!r}')
    settings = {k: v for k, v in data.items() if k not in ("is", "class", "remaining_layers")}
    make = Registry.by_kind[kind].find(data["is"])
    if "temperature" in layer_settings_of(make) and settings.get("temperature") is not None:
        settings["temperature"] = choice_from_data(kind, settings["temperature"])
    choice = choose(make, **settings)
    if "remaining_layers" not in data:
        return choice
    if not isinstance(data["remaining_layers"], (list, tuple)) or not data["remaining_layers"]:
        raise ConfigError(
            f"{choice.label}: remaining_layers must be a list of the other choices of the pattern, got "
            f"{data['remaining_layers']!r}"
        )
    return alternate(choice, *(choice_from_data(kind, other) for other in data["remaining_layers"]))


@dataclass(frozen=True)
class ChoiceOf:
    """Declares the kind of a choice in a field: `Annotated[Choice, ChoiceOf("encoding")]`."""

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.validate)

    def validate(self, value: Any, info: ValidationInfo) -> Choice:
        if info.mode == "json":
            return choice_from_data(self.kind, value)
        if not isinstance(value, Choice):
            raise ConfigError(f"must be a choice of the kind {self.kind}, got {value!r}; write choose(CLASS, ...)")
        if value.kind != self.kind:
            raise ConfigError(f"must be of kind {self.kind}, got the {value.kind} {value.name}")
        return value
