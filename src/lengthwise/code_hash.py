"""A hash of the source of a class from outside the package, and of all modules that its module imports."""

import ast
import functools
import hashlib
import importlib
import importlib.util
import itertools
import json
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from lengthwise.source_statements import beside, parse, plain
from lengthwise.values import ConfigError

OWN = "lengthwise"  # never followed: what it computes is counted by versions
INSTALLED = {"site-packages", "dist-packages"}
COMPILED = (".pyc", ".so", ".pyd", ".zip", ".egg", ".whl")
MOST_ENTRIES = 10_000  # of a folder whose files all count
IMPORTERS = {"import_module", "__import__", "run_module"}  # called with the name of a module
LOADERS = IMPORTERS | {
    "run_path", "spec_from_file_location", "module_from_spec", "SourceFileLoader", "exec_module", "load_module", "load_source",
    "find_spec", "resolve_name", "walk_packages", "iter_modules", "load_file", "load_plugins", "builtins", "__builtins__",
}  # fmt: skip
EVALUATORS = {"exec", "eval", "compile"}  # as names, not as attributes: models have a method `eval`
REFLECTION = {
    "globals", "locals", "vars", "dir", "inspect", "gc", "__dict__", "__globals__", "f_globals", "f_locals", "_getframe",
    "__subclasses__",
}  # fmt: skip


def code_hash(make: type) -> str:
    """Return 16 hex digits that change when the source of a class changes.

    The hash covers the whole file that defines the class, and the whole of every module that this file imports, directly or
    through others, wherever in the code: neighbours, packages with their `__init__.py`, and modules in other folders of
    `sys.path`. The files of its base classes count too. Python's standard library, installed packages and lengthwise do not
    count; if the class itself is installed, the modules of its own package count.

    The following parts of a file do not count: comments, docstrings (unless some code reads `__doc__`), formatting, and
    `if __name__ == "__main__"` blocks. In the file of the class, statements that build a study and other encodings, tasks and
    position schemes do not count either, nor does what only those use; `source_statements.beside` has the exact rule. All of the
    file counts if some code looks names up itself (`globals`, `vars`, `__subclasses__`), and for a class defined inside a
    function.

    `import_module("helper")` counts as an import. If a module computes the names of modules, or uses `exec`, `eval` or
    `sys.modules`, then all Python files in its folder count, and all modules that its strings name.

    The hash is computed from normalised syntax trees and names of modules, so it is the same in every process and folder, and
    in every supported version of Python. An imported extension module counts by its bytes.

    Not covered; give the class a `version`, and raise it with every change: data files and environment variables that code
    reads; modules outside of the folder whose names are computed, or whose folder code puts into `sys.path` when it runs later;
    changes by a script that imports the class; arguments of a function in another file that makes the class.

    Raises `ConfigError` where there is no source, as for a class typed into a notebook.
    """
    file = _file(sys.modules.get(make.__module__))
    if file is None or file.name.endswith(COMPILED):
        raise ConfigError(
            f"{make.__name__} has no source file, so changes of its code cannot be noticed; define it in a Python file, or give "
            "the class a version (version = 1) and raise it with every change"
        )
    importlib.invalidate_caches()
    own = _source("", file, _package(make.__module__))
    sources = _Sources(make, own)
    if not sources.looks_names_up():
        left_out = beside(own.statements, make.__qualname__)
        sources = _Sources(make, replace(own, statements=[s for s in own.statements if s not in left_out]))
    docstrings = any(source.has({"__doc__", "getdoc"}) for source in sources.found)
    parts = sorted([s.name, plain(s.statements, docstrings) if docstrings else s.text] for s in sources.found)
    text = json.dumps([parts, own_bases(make)], ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def own_bases(make: type) -> dict[str, int]:
    """The versions of the lengthwise classes that a class derives from."""
    return {
        base.__name__: base.version
        for base in make.__mro__
        if base.__module__.startswith(f"{OWN}.") and hasattr(base, "version")
    }


def is_library(file: Path) -> bool:
    """Whether a file belongs to Python's standard library, to an installed package or to lengthwise."""
    if INSTALLED & set(file.parts):
        return True
    return any(path.is_relative_to(folder) for path in (file, file.resolve()) for folder in _library_folders())


@functools.cache
def _library_folders() -> list[Path]:
    folders = [Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))]
    return [*folders, *(folder.resolve() for folder in folders)]


# ---- from names of modules to files -------------------------------------------------------------------------------


def _file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return _file_or_archive(Path(file)) if isinstance(file, str) else None


def _file_or_archive(path: Path) -> Path | None:
    """The file, or the archive that a module is imported from, whose bytes then count."""
    return next((place.absolute() for place in (path, *path.parents) if place.is_file()), None)


def _package(name: str) -> str:
    """The package that relative imports of a loaded module start from."""
    return getattr(sys.modules.get(name), "__package__", None) or ""


def _locate(name: str, folder: Path) -> tuple[Path | None, list[str] | None]:
    """The file of a module, and the folders of a package's modules, as an import finds them; nothing is imported.

    Looks into `folder` last: while a plug-in is loaded, its folder may not yet be where it is afterwards.
    """
    module = sys.modules.get(name)
    file, path = _file(module), getattr(module, "__path__", None)
    if file is not None or path is not None:
        return file, None if path is None else list(path)
    parent = name.rpartition(".")[0]
    within = _locate(parent, folder)[1] if parent else None
    if parent and within is None:
        return None, None
    places = [(finder, within) for finder in sys.meta_path] + ([] if parent else [(PathFinder, [str(folder)])])
    for finder, where in places:
        try:
            spec = finder.find_spec(name, where)
        except Exception:  # somebody's finder
            continue
        if spec is not None:
            file = _file_or_archive(Path(spec.origin)) if spec.has_location and spec.origin else None
            path = spec.submodule_search_locations
            return file, None if path is None else list(path)
    return None, None


def _files_around(file: Path) -> Iterator[tuple[str, Path]]:
    """All Python files in the folder of a file, or in the outermost package that has it, and their paths in it."""
    top = file.parent
    while (top / "__init__.py").is_file() and (top.parent / "__init__.py").is_file():
        top = top.parent
    waiting, visited, entries = [top], set(), 0
    while waiting:
        folder = waiting.pop()
        if folder.name in INSTALLED or folder.name.startswith((".", "__pycache__")) or folder.resolve() in visited:
            continue
        visited.add(folder.resolve())
        for path in folder.iterdir():
            entries += 1
            if path.is_dir():
                waiting.append(path)
            elif path.suffix == ".py" and path.is_file():
                yield path.relative_to(top).as_posix(), path
        if entries > MOST_ENTRIES:
            raise ConfigError(
                f"{file} imports modules by computed names, so all Python files in {top} count, which has more than "
                f"{MOST_ENTRIES:,} files; write the names out, move the file into a folder of its own, or give its classes a "
                "version (version = 1) and raise it with every change"
            )


# ---- the modules that count ---------------------------------------------------------------------------------------


@dataclass
class _Source:
    """A module that counts."""

    name: str  # empty for the module of the class, whose file may be renamed
    file: Path
    package: str  # what its relative imports start from
    statements: list[ast.stmt]

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return [node for statement in self.statements for node in ast.walk(statement)]

    @functools.cached_property
    def text(self) -> str:
        return plain(self.statements)

    def has(self, words: set[str]) -> bool:
        """Whether its code has one of these words as a name, as an attribute or as a whole string."""
        return re.search(f"'(?:{'|'.join(words)})'", self.text) is not None

    def imported(self) -> Iterator[str]:
        """The full names of all modules that it imports; some may be no modules."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute("." * node.level + (node.module or ""))
                yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names if base)
            elif name := _imported_by_call(node):
                yield self._absolute(name)
        strings = re.findall(r"\nstr '([\w.]+)'", self.text)
        if self.computes_names:
            yield from strings
        if self.file.name == "__init__.py" and self.has({"__all__"}):  # `import *` imports the modules in it
            yield from (f"{self.package}.{name}" for name in strings)

    @functools.cached_property
    def computes_names(self) -> bool:
        """Whether it may import modules whose names it does not write out."""
        loaders = len(re.findall(f"'(?:{'|'.join(LOADERS)})'", self.text))
        written = [node for node in self.nodes if _imported_by_call(node)]
        written += [n for n in self.nodes if isinstance(n, ast.alias) and n.name in IMPORTERS and n.asname is None]
        evaluates = re.search(rf"\n(Name 1\n'id'|alias \d\n'name')\n'({'|'.join(EVALUATORS)})'", self.text)
        return loaders > len(written) or evaluates is not None or (self.has({"sys"}) and self.has({"modules"}))

    def _absolute(self, name: str) -> str:
        try:
            return importlib.util.resolve_name(name, self.package)
        except ImportError:  # outside of a package
            return ""


def _source(name: str, file: Path, package: str) -> _Source:
    try:
        return _parsed(name, file, package, file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{file} is no longer valid Python ({error}); correct it and try again") from error


@functools.lru_cache(maxsize=1024)
def _parsed(name: str, file: Path, package: str, source: bytes) -> _Source:
    try:
        statements = parse(source)
    except (SyntaxError, ValueError):
        if not name:  # the module of the class; others may be extension modules, or lie in the same folder by chance
            raise
        statements = [ast.Assert(ast.Constant(hashlib.sha256(source).hexdigest()))]
    return _Source(name, file, package, statements)


def _imported_by_call(node: ast.AST) -> str | None:
    """The name in `import_module("name")`; None where it is not written out."""
    if not isinstance(node, ast.Call) or not node.args or node.keywords:
        return None
    called, (first, *others) = node.func, node.args
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
    written = isinstance(first, ast.Constant) and isinstance(first.value, str)
    here = all(isinstance(other, ast.Name) and other.id == "__package__" for other in others)
    return first.value if name in IMPORTERS and written and here else None  # type: ignore[attr-defined]


class _Sources:
    """The module of a class, and all others that count."""

    def __init__(self, make: type, own: _Source):
        self.own, self.found, self.imports_own = own, [own], False
        self.installed = make.__module__.partition(".")[0] if is_library(own.file) else None  # the package of the class
        self.folders: dict[str, list[str] | None] = {}  # of names that were looked up, where modules inside of them lie
        self.around: set[Path] = set()
        self._add(own.package)
        self._follow(0)
        for place, base in enumerate(make.__mro__):  # a decorator may return a class of a file that no import names
            file = _file(sys.modules.get(base.__module__))
            if file is not None and self._counts(base.__module__, file) and file not in [s.file for s in self.found]:
                self._add_source(f"base {place}", file, _package(base.__module__))
                self._follow(len(self.found) - 1)

    def looks_names_up(self) -> bool:
        """Whether code may reach statements of the class's file by names that it does not write."""
        return self.imports_own or any(source.computes_names or source.has(REFLECTION) for source in self.found)

    def _follow(self, first: int) -> None:
        for source in itertools.islice(self.found, first, None):  # grows while it is read
            for name in source.imported():
                self._add(name)
            if source.computes_names and source.file not in self.around:
                for label, file in _files_around(source.file):
                    self.around.add(file)
                    if self._counts(self.installed, file):
                        self._add_source(label, file, "")

    def _counts(self, name: str | None, file: Path) -> bool:
        top = None if name is None else name.partition(".")[0]
        return top != OWN and (not is_library(file) if self.installed is None else top == self.installed)

    def _add(self, full_name: str) -> None:
        """Add a module, and the packages that it is in."""
        parts = full_name.split(".")
        if parts[0] in (OWN, "__main__") or not all(part.isidentifier() for part in parts):
            return
        for name in itertools.accumulate(parts, lambda package, inner: f"{package}.{inner}"):
            if name not in self.folders:
                file, folders = _locate(name, self.own.file.parent)
                counts = file is not None and self._counts(name, file)
                self.folders[name] = folders if file is None or counts else None
                if file is not None and counts:
                    self._add_source(name, file, name.rpartition(".")[0] if folders is None else name)
            if self.folders[name] is None:
                return

    def _add_source(self, name: str, file: Path, package: str) -> None:
        if file.resolve() == self.own.file.resolve():
            self.imports_own = True
        elif all(source.name != name for source in self.found):
            self.found.append(_source(name, file, package))
