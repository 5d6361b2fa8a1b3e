"""Options of commands that are derived from the fields of other dataclasses."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Integer, field_texts

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


def option(name: str, kind: Any, text: str, default: Any) -> inspect.Parameter:
    """Return one option. If `kind` is `int` or `int | None`, its value is checked like that of every whole number.

    `text` is its help, which says what None means if that is the default.
    """
    checked: Any = {int: Integer, int | None: Integer | None}.get(kind, kind)
    annotation = Annotated[checked, Parameter(help=text, show_default=default is not None)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def field_options(owner: Any, names: Sequence[str], defaults: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return options for fields of the dataclass `owner`, whose docstrings are the help. `defaults` replace those of the fields."""
    types, texts = typing.get_type_hints(owner), field_texts(owner)
    known = {f.name: f.default for f in dataclasses.fields(owner) if f.default is not dataclasses.MISSING}
    default_of = {**known, **defaults}
    return [option(name, types[name], texts[name], default_of.get(name, inspect.Parameter.empty)) for name in names]
