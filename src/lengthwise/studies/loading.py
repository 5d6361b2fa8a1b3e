"""Load a study file: a Python file that defines a variable `study`."""

import dataclasses
import os
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise.plugins import already_loaded, load_file
from lengthwise.studies.study import Study


class StudyError(ValueError):
    """A study file defines no study. The message is one line with the file, the line in it, and the problem."""


def load(path: str | Path) -> Study:
    """Return the `study` of a Python file. The file may import neighbouring files and define its own encodings and tasks.

    A file that is already loaded as a plug-in is not run again, so that its classes stay those in the lists. Raise `StudyError`
    in one line, with the line number in the file, for any error in the file.
    """
    name = str(path)
    module = already_loaded(name) or load_file(name, StudyError, "study")
    study = _study(name, module)
    command = study.command or shlex.join(["lengthwise", "run", name])
    return dataclasses.replace(study, source=Path(os.path.expanduser(path)).resolve(), command=command)


def _study(file: str, module: ModuleType) -> Study:
    study: Any = getattr(module, "study", None)
    if isinstance(study, Study):
        return study
    if study is not None:
        raise StudyError(f"{file}: its `study` must be a lengthwise.studies.Study, got {type(study).__name__}")
    names = [name for name, value in vars(module).items() if isinstance(value, Study)]
    hint = f"; rename its variable {names[0]} to `study`" if names else "; end it with study = Study(...)"
    raise StudyError(f"{file} defines no `study`{hint}")
