"""Plug-ins: Python files and modules whose encodings, tasks and position schemes are added to the lists.

Only files and modules named on the command line or passed to `load_plugins` are loaded. A path from a results database
is printed but never loaded, because the database may be somebody else's.
"""

import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise.config import Registry
from lengthwise.errors import first_line
from lengthwise.user_classes import is_builtin_class, shortened
from lengthwise.values import ConfigError, near_miss

MODULE_PREFIX = "lengthwise_file_"  # prefix of the names of modules that are loaded from files

_loaded: dict[str, ModuleType] = {}  # loaded plug-ins, by a file's absolute path or a module's name


class PluginError(ValueError):
    """A plug-in cannot be loaded. The message is one line with the plug-in, the line in its file, and the problem."""


def load_plugins(names: Iterable[str]) -> None:
    """Load Python files and modules, and add their encodings, tasks and position schemes to the lists.

    All classes in the module's namespace that derive from `PositionEncoding`, `Task` or `PositionScheme` are added,
    except those whose names begin with an underscore; if the module has an `__all__`, only those named there.

    Raise `PluginError` if a plug-in does not exist, raises an error, has no such class, or has a class with a name that
    is already listed.
    """
    for name in names:
        identifier = _identifier(name)
        if identifier in _loaded:
            continue
        states = {kind: registry.state() for kind, registry in Registry.by_kind.items()}
        try:
            module = load_file(name, PluginError, "plug-in") if is_file(name) else _import(name)
            _register(name, module)
        except BaseException:  # the next call loads the file again, which the user may have fixed
            _restore(states)
            raise
        _loaded[identifier] = module


def loaded_plugins() -> tuple[str, ...]:
    """Return the loaded plug-ins, so that another process can load them: absolute paths of files, names of modules."""
    return tuple(_loaded)


@contextmanager
def plugins(names: Iterable[str]) -> Iterator[None]:
    """Load plug-ins for the duration of a command, and restore the lists afterwards."""
    before = dict(_loaded)
    states = {kind: registry.state() for kind, registry in Registry.by_kind.items()}
    try:
        load_plugins(names)
        yield
    finally:
        _loaded.clear()
        _loaded.update(before)
        _restore(states)


def _restore(states: Mapping[str, Any]) -> None:
    for kind, registry in Registry.by_kind.items():
        registry.restore(states.get(kind))


def is_file(name: str) -> bool:
    """Return whether the name of a plug-in is a file's path; otherwise it is a module's name."""
    return name.endswith(".py") or os.sep in name or "/" in name or not all(p.isidentifier() for p in name.split("."))


def already_loaded(path: str) -> ModuleType | None:
    """Return the module of a file that was loaded as a plug-in, else None."""
    return _loaded.get(_identifier(path))


def _identifier(name: str) -> str:
    return str(Path(os.path.expanduser(name)).resolve()) if is_file(name) else name


# ---- files and modules --------------------------------------------------------------------------------------------


def load_file(name: str, error_type: type[ValueError], role: str) -> ModuleType:
    """Run a Python file as a module and return the module.

    The file's folder stays the last entry of `sys.path`, so that its functions can import neighbouring files later.
    Whatever the file raises is raised as `error_type`, in one line with the line number in the file. `role` is "study"
    or "plug-in".
    """
    path = Path(os.path.expanduser(name))
    source = _source(name, path, error_type, role)
    if path.suffix != ".py":
        raise error_type(f"{name} is not a Python file; give the path of a {role}, whose name ends in .py")
    path = path.resolve()
    module = ModuleType(MODULE_PREFIX + path.stem)
    module.__file__ = str(path)
    other = getattr(sys.modules.get(module.__name__), "__file__", str(path))
    if other != str(path) and other in _loaded:
        raise error_type(f"{name} has the same name as the loaded file {shortened(other)}; rename one of the two files")
    sys.modules[module.__name__] = module  # dataclasses and pickle look up a class's module
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.filename == str(path) and error.lineno else ""
        raise error_type(f"{name}{line}: SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise error_type(f"{name}{_line(error, path)}: {first_line(error)}") from error
    finally:
        with suppress(ValueError):  # the file itself may have changed the path
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)
    return module


def _source(name: str, path: Path, error_type: type[ValueError], role: str) -> bytes:
    if not name.strip():
        raise error_type(f"the {role}'s path is empty; give the path of a {role}, a Python file")
    if path.is_dir():
        files = ", ".join(sorted(p.name for p in path.glob("*.py"))[:8])
        raise error_type(f"{name} is a folder; name a {role} file in it{f': {files}' if files else ''}")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        neighbours = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = near_miss(path.name, neighbours)
        raise error_type(f"there is no file {name}{near}; give the path of a {role}, a Python file") from error
    except OSError as error:
        raise error_type(
            f"{name} cannot be read ({error.strerror}); give the path of a {role}, a Python file that you may read"
        ) from error


def _line(error: BaseException, path: Path) -> str:
    """Return the number of the last line of the file in the error's traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise PluginError(f"plug-in {name}: {first_line(error)}; install that package") from error
        file = f"{name.replace('.', '/')}.py"
        hint = f"; did you mean the file {file}?" if Path(file).exists() else "; for a file, write its name with .py"
        raise PluginError(f"plug-in {name}: there is no module of this name{hint}") from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"plug-in {name}: {first_line(error)}") from error


# ---- the classes in them ------------------------------------------------------------------------------------------


def _register(name: str, module: ModuleType) -> None:
    classes = _classes(name, module)
    if not classes:
        raise PluginError(
            f"plug-in {name} has no encoding, task or position scheme; define a class in it that derives from "
            "PositionEncoding, Task or PositionScheme, or from one of their subclasses"
        )
    for make in classes:
        try:
            Registry.by_kind[make.kind].add(make)  # type: ignore[attr-defined]
        except ConfigError as error:
            raise PluginError(f"plug-in {name}: {error}") from error


def _classes(name: str, module: ModuleType) -> list[type]:
    namespace = vars(module)
    names = namespace.get("__all__", [n for n in namespace if not n.startswith("_")])
    if missing := next((n for n in names if n not in namespace), None):
        raise PluginError(f"plug-in {name}: __all__ contains {missing!r}, which the module does not define")
    return list(dict.fromkeys(namespace[n] for n in names if _is_listed_class(namespace[n])))


def _is_listed_class(value: Any) -> bool:
    """Return whether a value is a class for one of the lists."""
    return isinstance(value, type) and getattr(value, "kind", None) in Registry.by_kind and not is_builtin_class(value)


def plugin_hint(name: str, defined_in: Any) -> str | None:
    """Return `Windowed is defined in mystudy.py; add --plugin mystudy.py`, from the files that a run has stored."""
    file = defined_in.get(name) if isinstance(defined_in, Mapping) else None
    if not isinstance(file, str) or not file:
        return None
    file = shortened(file)
    return f"{name} is defined in {file}; add --plugin {shlex.quote(file)}"  # the text may be somebody else's
