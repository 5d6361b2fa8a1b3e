"""A study file, run: the `study` that it leaves."""

import dataclasses
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise.config import near_miss
from lengthwise.studies.study import Study


class StudyError(ValueError):
    """A study file that leaves no study. One line: the file, the line in it, and what went wrong there."""


def load(path: str | Path) -> Study:
    """The `study` of a Python file. The file may import its neighbours and define encodings and tasks of its own.

    Raises `StudyError` in one line, with the file's line, for whatever the file raises.
    """
    given, path = str(path), Path(os.path.expanduser(path))
    source = _source(given, path)
    path = path.resolve()
    module = ModuleType(f"lengthwise_study_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.filename == str(path) and error.lineno else ""
        raise StudyError(f"{given}{where}: SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise StudyError(f"{given}{_line(error, path)}: {_said(error)}") from error
    finally:
        sys.path.remove(folder)
    return dataclasses.replace(_study(given, module), source=path)


def _source(given: str, path: Path) -> bytes:
    if not given.strip():
        raise StudyError("the study's path is empty; give the path of a study, a Python file")
    if path.is_dir():
        files = ", ".join(sorted(p.name for p in path.glob("*.py"))[:8])
        raise StudyError(f"{given} is a folder; name a study file in it{f': {files}' if files else ''}")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        neighbours = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = near_miss(path.name, neighbours)
        raise StudyError(f"there is no file {given}{near}; give the path of a study, a Python file") from error
    except OSError as error:
        raise StudyError(f"{given} cannot be read ({error.strerror}); change its permissions or its name") from error
    except ValueError as error:
        raise StudyError(f"{given!r} is no path of a file ({error}); give the path of a study") from error


def _study(given: str, module: ModuleType) -> Study:
    study: Any = getattr(module, "study", None)
    if isinstance(study, Study):
        return study
    if study is not None:
        raise StudyError(f"{given}: its `study` is a {type(study).__name__}; it has to be a lengthwise.studies.Study")
    others = [name for name, value in vars(module).items() if isinstance(value, Study)]
    hint = f"; it leaves {others[0]}: call that `study`" if others else "; end it with study = Study(...)"
    raise StudyError(f"{given} leaves no `study`{hint}")


def _line(error: BaseException, path: Path) -> str:
    """The last line of the file itself that the error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _said(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    if type(error).__module__.startswith("lengthwise"):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
