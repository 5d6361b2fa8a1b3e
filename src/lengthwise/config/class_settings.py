"""The arguments of a class's constructor, all passed by name: its settings, and those that a model fills in."""

import inspect
from collections.abc import Mapping
from typing import Any

from lengthwise.user_classes import source_location
from lengthwise.values import ConfigError, join_names


def settings_of(make: type) -> dict[str, inspect.Parameter]:
    """Return the settings of a class: the arguments of `__init__` that have a default.

    Arguments without a default (`num_heads`, `head_dim`, `d_model`, ...) are filled in by the model.
    """
    return {p.name: p for p in _named(make) if p.default is not p.empty}


def context_of(make: type) -> list[str]:
    """Return the names of the arguments that the model fills in: those without a default."""
    return [p.name for p in _named(make) if p.default is p.empty]


def _named(make: type) -> list[inspect.Parameter]:
    parameters = inspect.signature(make).parameters.values()
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def from_context(make: type, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the class takes of the context. Raise `ConfigError` for an argument that it does not have."""
    names = context_of(make)
    if unknown := [name for name in names if name not in context]:
        provided = f" (it provides {', '.join(context)})" if context else ""
        raise ConfigError(
            f"{source_location(make)}: {make.__name__}.__init__ needs {join_names(unknown)}, which a model does not "
            f"provide{provided}; give {'it' if len(unknown) == 1 else 'them'} a default"
        )
    return {name: context[name] for name in names}


def shown_settings(make: type, settings: Mapping[str, Any]) -> str:
    """Return the settings for a label: those that differ from their defaults, and the class's `always_shown`."""
    always = getattr(make, "always_shown", ())
    defaults = {name: p.default for name, p in settings_of(make).items()}
    complete = {name: settings.get(name, default) for name, default in defaults.items() if name in {*settings, *always}}
    return ", ".join(f"{k}={v}" for k, v in complete.items() if k in always or v != defaults[k])


def annotation(make: type, parameter: inspect.Parameter) -> Any:
    if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return type(parameter.default)
