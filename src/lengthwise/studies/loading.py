"""A study file, run: the `study` that it leaves."""

import dataclasses
import os
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise.plugins import already_loaded, load_file
from lengthwise.studies.study import Study


class StudyError(ValueError):
    """A study file that leaves no study. One line: the file, the line in it, and what went wrong there."""


def load(path: str | Path) -> Study:
    """The `study` of a Python file. The file may import its neighbours and define encodings and tasks of its own.

    A file that is loaded as a plug-in already is not run a second time: its classes stay those in the lists.

    Raises `StudyError` in one line, with the file's line, for whatever the file raises.
    """
    given = str(path)
    module = already_loaded(given) or load_file(given, StudyError, "study")
    study = _study(given, module)
    command = study.command or shlex.join(["lengthwise", "run", given])
    return dataclasses.replace(study, source=Path(os.path.expanduser(path)).resolve(), command=command)


def _study(given: str, module: ModuleType) -> Study:
    study: Any = getattr(module, "study", None)
    if isinstance(study, Study):
        return study
    if study is not None:
        raise StudyError(f"{given}: its `study` is a {type(study).__name__}; it has to be a lengthwise.studies.Study")
    others = [name for name, value in vars(module).items() if isinstance(value, Study)]
    hint = f"; it leaves {others[0]}: call that `study`" if others else "; end it with study = Study(...)"
    raise StudyError(f"{given} leaves no `study`{hint}")
