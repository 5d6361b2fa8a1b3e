"""Plug-ins: encodings, tasks and position schemes of a Python file or a module, put into the lists by its user's own word.

Only what is named on the command line, or handed to `load_plugins`, is ever loaded. A path that is stored in a results database
is shown to people and never run: the database may be somebody else's.
"""

import importlib
import os
import reprlib
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise import regular_file
from lengthwise.choices import Registry
from lengthwise.class_versions import is_own, shortened
from lengthwise.code_hash import is_library
from lengthwise.values import ConfigError, near_miss

MOST_BYTES = 16 << 20  # of a Python file
LOADED = "lengthwise_plugins"  # an attribute of errors: the plug-ins that were loaded
FILE_MODULE = "lengthwise_file_"  # how modules made of files are called

_loaded: dict[str, ModuleType] = {}  # what was loaded as a plug-in, by a file's full path or a module's name


class PluginError(ValueError):
    """A plug-in that cannot be loaded. One line: the plug-in, the line in it, and what went wrong there."""


def load_plugins(names: Iterable[str]) -> None:
    """Load Python files and modules, and put their encodings, tasks and position schemes into the lists.

    All classes in the module's namespace that derive from `PositionEncoding`, `Task` or `PositionScheme` are taken, except
    those whose names begin with an underscore; if the module has an `__all__`, only those named there. A class that lacks a
    method is not listed; asking for it by name raises an error that says what it lacks.

    Raises `PluginError` where a plug-in is not there, raises an error, has no such class, or has one called like another.
    """
    for name in names:
        full = _full(name)
        if full in _loaded:
            continue
        listed = {kind: registry.state() for kind, registry in Registry.known.items()}
        try:
            module = load_file(name, PluginError, "plug-in") if is_file(name) else _imported(name)
            _register(name, module)
        except BaseException:  # the next call loads it again, mended perhaps
            _restore(listed)
            raise
        _loaded[full] = module


def loaded_plugins() -> tuple[str, ...]:
    """The plug-ins of this process, as another process has to load them: full paths of files, names of modules."""
    return tuple(_loaded)


@contextmanager
def plugins(names: Iterable[str]) -> Iterator[None]:
    """Plug-ins for the time of a command; the lists are afterwards what they were."""
    before = dict(_loaded)
    listed = {kind: registry.state() for kind, registry in Registry.known.items()}
    try:
        load_plugins(names)
        yield
    except Exception as error:
        error.__dict__[LOADED] = [shortened(name) for name in _loaded]  # for whoever says what may be wrong
        raise
    finally:
        _loaded.clear()
        _loaded.update(before)
        _restore(listed)


def _restore(listed: Mapping[str, Any]) -> None:
    for kind, registry in Registry.known.items():
        registry.restore(listed.get(kind))


def is_file(name: str) -> bool:
    """Whether a plug-in is meant as a file; else it is a module's name."""
    return name.endswith(".py") or os.sep in name or "/" in name or not all(p.isidentifier() for p in name.split("."))


def already_loaded(given: str) -> ModuleType | None:
    """The module of a file that was loaded as a plug-in; None where it was not."""
    return _loaded.get(_full(given))


def _full(name: str) -> str:
    try:
        return str(Path(os.path.expanduser(name)).resolve()) if is_file(name) else name
    except (OSError, ValueError, RuntimeError):  # no path of a file: reading it says so
        return name


# ---- files and modules --------------------------------------------------------------------------------------------


def load_file(given: str, error: type[ValueError], what: str) -> ModuleType:
    """Run a Python file as a module, which may import its neighbours, its functions when they run too: its folder stays the last of
    `sys.path`. `error` in one line, with the file's line, for whatever it raises; `what` says what the file was meant to be
    ("study", "plug-in")."""
    path = Path(os.path.expanduser(given))
    source = _source(given, path, error, what)
    path = path.resolve()
    module = ModuleType(FILE_MODULE + path.stem)
    module.__file__ = str(path)
    other = getattr(sys.modules.get(module.__name__), "__file__", str(path))
    if other != str(path) and other in _loaded:
        raise error(f"{given} is called like {shortened(other)}, which is loaded too; rename one of the two files")
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as wrong:
        where = f", line {wrong.lineno}" if wrong.filename == str(path) and wrong.lineno else ""
        raise error(f"{given}{where}: SyntaxError: {wrong.msg}") from wrong
    except KeyboardInterrupt:
        raise
    except BaseException as wrong:  # SystemExit, GeneratorExit and classes of the file's own end a program too
        raise error(f"{given}{_line(wrong, path)}: {_said(wrong)}") from wrong
    finally:
        with suppress(ValueError):  # the file itself may have changed the path
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
    return module


def _source(given: str, path: Path, error: type[ValueError], what: str) -> bytes:
    if not given.strip():
        raise error(f"the {what}'s path is empty; give the path of a {what}, a Python file")
    if path.is_dir():
        files = ", ".join(sorted(p.name for p in path.glob("*.py"))[:8])
        raise error(f"{given} is a folder; name a {what} file in it{f': {files}' if files else ''}")
    try:
        return regular_file.read(path, MOST_BYTES)
    except FileNotFoundError as wrong:
        neighbours = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = near_miss(path.name, neighbours)
        raise error(f"there is no file {given}{near}; give the path of a {what}, a Python file") from wrong
    except OSError as wrong:
        raise error(
            f"{given} cannot be read ({wrong.strerror}); give the path of a {what}, a Python file that you may read"
        ) from wrong
    except ValueError as wrong:
        raise error(f"{given!r} is no path of a file ({wrong}); give the path of a {what}") from wrong


def _line(error: BaseException, path: Path) -> str:
    """The last line of the file itself that the error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def fault_of_a_file(error: BaseException) -> str | None:
    """`mine.py, line 9: AttributeError: ...` for an error that came through a file which belongs neither to lengthwise nor to an
    installed package nor to Python: the last such line. None for an error of another origin."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_somebodys(Path(frame.filename)):
            return f"{shortened(frame.filename)}, line {frame.lineno}: {_said(error)}"
    return None


def _is_somebodys(file: Path) -> bool:
    return file.is_absolute() and file.is_file() and not is_library(file)


def _said(error: BaseException) -> str:
    try:
        first = (str(error).strip().splitlines() or [""])[0]
    except Exception:  # its own __str__ fails
        first = ""
    if is_own(type(error)) and first:
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise PluginError(f"plug-in {name}: {_said(error)}; install what it needs") from error
        file = f"{name.replace('.', '/')}.py"
        hint = f"; did you mean the file {file}?" if Path(file).exists() else "; a file is written with its .py"
        raise PluginError(f"there is no module {name} that could be a plug-in{hint}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(f"plug-in {name}: {_said(error)}") from error


# ---- the classes in them ------------------------------------------------------------------------------------------


def _register(name: str, module: ModuleType) -> None:
    classes = _classes(name, module)
    if not classes:
        raise PluginError(
            f"plug-in {name} has no encoding, task or position scheme; define a class in it that derives from "
            "PositionEncoding, Task or PositionScheme, or from one of their families"
        )
    lacking: list[str | None] = []
    for make in classes:
        try:
            lacking.append(Registry.known[make.kind].add(make))  # type: ignore[attr-defined]
        except ConfigError as error:
            raise PluginError(f"plug-in {name}: {error}") from error
    if lacking[0] is not None and None not in lacking:
        raise PluginError(lacking[0])


def _classes(name: str, module: ModuleType) -> list[type]:
    space = vars(module)
    listed = space.get("__all__")
    if listed is not None and not (isinstance(listed, list | tuple) and all(isinstance(n, str) for n in listed)):
        raise PluginError(f"plug-in {name}: __all__ is {_shown(listed)}; it has to be a list of names")
    if listed is not None and (missing := next((n for n in listed if n not in space), None)):
        raise PluginError(f"plug-in {name}: __all__ names {missing!r}, which it does not define")
    names = listed if listed is not None else [n for n in space if not n.startswith("_")]
    return list(dict.fromkeys(space[n] for n in names if _is_method(space[n])))


def _is_method(value: Any) -> bool:
    """Whether a thing of a plug-in is a class for a list. Its metaclass may answer anything, or raise."""
    if not isinstance(value, type):
        return False
    try:
        kind = getattr(value, "kind", None)
        return isinstance(kind, str) and kind in Registry.known and not is_own(value)
    except Exception:
        return False


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # its own __repr__ fails
        return f"a {type(value).__name__}"


def how_to_find(name: str, defined_in: Any) -> str | None:
    """`Windowed is defined in mystudy.py; add --plugin mystudy.py`, from what a run remembers of its classes."""
    place = defined_in.get(name) if isinstance(defined_in, Mapping) else None
    if not isinstance(place, str) or not place:
        return None
    place = shortened(place)
    return f"{name} is defined in {place}; add --plugin {shlex.quote(place)}"  # it may be somebody else's text
