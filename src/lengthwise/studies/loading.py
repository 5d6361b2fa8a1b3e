"""Load a study file: a Python file that defines `study`, a `Study` or a function with options that returns one."""

import dataclasses
import inspect
import os
import shlex
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from lengthwise.errors import error_in_user_file, first_line
from lengthwise.plugins import already_loaded, load_file
from lengthwise.studies.shipped import shipped_studies, unknown_study
from lengthwise.studies.study import Study
from lengthwise.validation import parse_value
from lengthwise.values import ConfigError, near_miss


class StudyError(ValueError):
    """A study file defines no study. The message is one line with the file, the line in it, and the problem."""


def load(path: str | Path, options: Mapping[str, str] | None = None) -> Study:
    """Return the `study` of a Python file, or a study of Lengthwise by its name, such as `quickstart` or `nope/small`.

    The file may import neighbouring files and define its own encodings and tasks.

    If `study` is a function, it is called with `options`: a text for each of its parameters, which all have defaults.
    Texts are converted to the annotated types str, int and float.

    A file that is already loaded as a plug-in is not run again, so that its classes stay those in the lists. Raise
    `StudyError` in one line, with the line number in the file, for any error in the file.
    """
    name = str(path)
    if (shipped := shipped_studies().get(name)) is not None:
        path = shipped.path
    elif not os.path.exists(os.path.expanduser(name)) and name.strip() and (message := unknown_study(name)):
        raise StudyError(message)
    study = _study(name, load_module(path), dict(options or {}))
    command = study.command or shlex.join(["lengthwise", "run", name])
    if options:
        command = shlex.join(
            [*shlex.split(command), *(word for o in options.items() for word in ("--set", "=".join(o)))]
        )
    return dataclasses.replace(study, source=Path(os.path.expanduser(path)).resolve(), command=command)


def load_module(path: str | Path) -> ModuleType:
    """Run a study file without calling its `study`, and return it as a module."""
    return already_loaded(str(path)) or load_file(str(path), StudyError, "study")


def _study(file: str, module: ModuleType, options: dict[str, str]) -> Study:
    study: Any = getattr(module, "study", None)
    if isinstance(study, FunctionType):
        study = _call(file, study, options)
    elif options:
        raise StudyError(f"{file} has no options, because its `study` is not a function; omit {', '.join(options)}")
    if isinstance(study, Study):
        return study
    if study is not None:
        raise StudyError(f"{file}: its `study` must be a lengthwise.studies.Study, got {type(study).__name__}")
    names = [name for name, value in vars(module).items() if isinstance(value, Study)]
    hint = f"; rename its variable {names[0]} to `study`" if names else "; end it with study = Study(...)"
    raise StudyError(f"{file} defines no `study`{hint}")


def _call(file: str, study: Callable[..., Any], options: dict[str, str]) -> Any:
    """Call the function `study` of a file with its options."""
    parameters, hints = inspect.signature(study).parameters, typing.get_type_hints(study)
    for name in options:
        if name not in parameters:
            names = ", ".join(parameters) or "none"
            raise StudyError(f"{file} has no option {name!r}{near_miss(name, parameters)}; its options are: {names}")
    try:
        values = {name: parse_value(text, hints.get(name, str), name) for name, text in options.items()}
        return study(**values)
    except ConfigError as error:
        raise StudyError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:
        raise StudyError(error_in_user_file(error) or f"{file}: {first_line(error)}") from error
