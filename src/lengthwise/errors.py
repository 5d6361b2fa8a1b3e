"""Errors as one line, for the command line, for workers and for their processes."""

import sysconfig
import traceback
from pathlib import Path

from lengthwise.machine_memory import out_of_memory_line
from lengthwise.user_classes import is_builtin_class, shortened
from lengthwise.values import install_extra
from lengthwise.versions import INSTALLED


def error_line(error: BaseException) -> str:
    """Return an error in one line: what is wrong and how to fix it, or an unexpected error's type and message."""
    return expected_line(error) or first_line(error)


def expected_line(error: BaseException) -> str | None:
    """Return the line of an error that a user can fix or that a user's file has caused; None for any other."""
    if (line := out_of_memory_line(error)) is not None:
        return line
    if is_own_error(error):
        return first_line(error)
    if (line := error_in_user_file(error)) is not None:
        return line
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is missing; {install_extra('lab')}" if error.name else str(error)
    if isinstance(error, OSError):
        path = "" if error.filename is None else f"{error.filename or 'the empty path'}: "
        return f"{path}{error.strerror or error}"
    if str(error) == "can't start new thread":
        return "this machine cannot start more threads now; use fewer --workers and --threads, or try again later"
    return None


def is_own_error(error: BaseException) -> bool:
    """Return whether lengthwise raised the error on purpose, with a message that says what to do."""
    return isinstance(error, ValueError) and is_builtin_class(type(error))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with its type unless it is an error of lengthwise."""
    first = (str(error).strip().splitlines() or [""])[0]
    if is_builtin_class(type(error)) and first:
        return first
    if isinstance(error, SystemExit):
        return f"SystemExit{first and f': {first}'}; raise an exception instead of ending the process"
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def error_in_user_file(error: BaseException) -> str | None:
    """Return `mine.py, line 9: AttributeError: ...` if the error's traceback goes through a user's file, else None.

    A user's file belongs neither to lengthwise, nor to an installed package, nor to Python. The last such line is
    reported.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_absolute() and file.is_file() and not _is_library(file):
            return f"{shortened(frame.filename)}, line {frame.lineno}: {first_line(error)}"
    return None


def _is_library(file: Path) -> bool:
    """Return whether a file belongs to Python's standard library, to an installed package or to lengthwise."""
    folders = (Path(__file__).parent, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    in_folder = any(file.resolve().is_relative_to(Path(folder).resolve()) for folder in folders)
    return in_folder or any(folder in file.parts for folder in INSTALLED)
