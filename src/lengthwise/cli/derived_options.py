"""Options of commands that are derived from the fields of other dataclasses."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Integer, field_texts
from lengthwise.config import EXECUTOR_CONFIGS, ConfigError, ExecutorConfig
from lengthwise.values import unlisted

Command = Callable[..., int]


def with_options(options: Sequence[inspect.Parameter], before: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command these options in place of its `**options`, before the parameter `before`."""
    defaults = {option.name: option.default for option in options if option.default is not option.empty}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **values: Any) -> int:
            return command(*arguments, **{**defaults, **values})

        signature = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        place = [p.name for p in parameters].index(before)
        parameters[place:place] = options
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def executor_options(names: Sequence[str]) -> list[inspect.Parameter]:
    """Return `--on` and an option for every setting of the executors with these names.

    The default is None, or () for several values: None would not be one of them, which is an error where pydantic is imported.
    """
    kinds: dict[str, Any] = {}
    configs = {name: EXECUTOR_CONFIGS[name] for name in names}
    for config in configs.values():
        hints = typing.get_type_hints(config)
        kinds |= {field: hints[field] for field in field_texts(config)}
    texts = (f"{name}: {(config.__doc__ or '').strip()}" for name, config in configs.items())
    options = [option("on", str, f"Where to execute runs. {' '.join(texts)}", "local")]
    for field, kind in kinds.items():
        owners = " or ".join(name for name, config in configs.items() if field in field_texts(config))
        text, bracket, default = next(
            field_texts(config)[field] for config in configs.values() if field in field_texts(config)
        ).partition("[default:")
        text = f"{text.rstrip()} Only with --on {owners}. {bracket}{default}".rstrip()
        several = kind == tuple[str, ...]
        options.append(option(field, kind if several else kind | None, text, () if several else None))
    return options


def with_executor(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of these executors, and passes it the settings of the chosen one as
    `executor`."""
    options = executor_options(names)
    option_names = [parameter.name for parameter in options]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(*arguments: Any, **values: Any) -> int:
            given = {name: values.pop(name) for name in option_names if name in values}
            return command(*arguments, **values, executor=executor_of(given.pop("on", "local"), names, given))

        signature = inspect.signature(command)
        parameters = [p for p in signature.parameters.values() if p.name != "executor"]
        place = [p.name for p in parameters].index("execution")
        parameters[place:place] = options
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def executor_of(on: str, names: Sequence[str], options: Mapping[str, Any]) -> ExecutorConfig:
    """Return the settings of the executor `on`, one of `names`. Raise `ConfigError` for an option of another one.

    `on` may be NAME:ADDRESS for an executor with an address, whose setting `address` is not an option of its own.
    """
    name, colon, address = on.partition(":")
    if name not in names:
        raise ConfigError(f"--on must be the name of an executor, and there is no {unlisted(name, names)}")
    config = EXECUTOR_CONFIGS[name]
    members = {field.name for field in dataclasses.fields(config)}
    if colon and "address" not in members:
        raise ConfigError(f"--on {name} must have no address, got {on[:60]!r}; write --on {name}")
    if colon and not address:
        raise ConfigError(f"--on {on} has an empty address; write --on {name}:HOST:PORT, or --on {name}")
    given = {option: value for option, value in options.items() if value not in (None, ())}
    for option in given:
        if option not in members:
            owners = [other for other in names if option in field_texts(EXECUTOR_CONFIGS[other])]
            raise ConfigError(f"--{option} applies only to --on {' or '.join(owners)}, not to --on {name}; omit it")
    return config(**given, **({"address": address} if colon else {}))


def option(name: str, kind: Any, text: str, default: Any) -> inspect.Parameter:
    """Return one option. If `kind` is `int` or `int | None`, its value is checked like that of every whole number.

    `text` is its help, which says what None means if that is the default.
    """
    checked: Any = {int: Integer, int | None: Integer | None}.get(kind, kind)
    negative = "" if kind == tuple[str, ...] else None
    annotation = Annotated[checked, Parameter(help=text, show_default=default not in (None, ()), negative=negative)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def field_options(owner: Any, names: Sequence[str], defaults: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return options for fields of the dataclass `owner`, whose docstrings are the help. `defaults` replace those of the fields."""
    types, texts = typing.get_type_hints(owner), field_texts(owner)
    known = {f.name: f.default for f in dataclasses.fields(owner) if f.default is not dataclasses.MISSING}
    default_of = {**known, **defaults}
    return [option(name, types[name], texts[name], default_of.get(name, inspect.Parameter.empty)) for name in names]
