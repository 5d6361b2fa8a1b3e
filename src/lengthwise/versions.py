"""The version of a class in a run's key: the `version` that it declares, or else a hash of its source files."""

import ast
import functools
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.user_classes import described, is_builtin_class, source_file
from lengthwise.values import ConfigError

INSTALLED = ("site-packages", "dist-packages")  # folders whose modules do not belong together


def class_version(make: type) -> dict[str, Any]:
    """Return what identifies the code of an encoding, a task or a position scheme in a run's key.

    For a class of lengthwise: `{"version": n}`, its class attribute. For a class from outside that declares `version`
    in its own body: `{"version": n, "module": the name of its file}`. For any other class: `{"code": a hash}`, see
    `_source_hash`. For a class from outside, `"bases"` lists the classes of lengthwise from which it derives and whose
    version is not 1.
    """
    if is_builtin_class(make):
        return {"version": make.version}  # type: ignore[attr-defined]
    bases = {base.__name__: getattr(base, "version", 1) for base in make.__mro__ if is_builtin_class(base)}
    newer_bases = {name: version for name, version in bases.items() if version > 1}
    identity = _declared(make) if "version" in vars(make) else {"code": _source_hash(make)}
    return identity | {"bases": newer_bases} if newer_bases else identity


def _declared(make: type) -> dict[str, Any]:
    version = vars(make)["version"]
    if type(version) is not int or version < 1:
        raise ConfigError(f"{make.__name__}.version must be a whole number of at least 1, got {described(version)}")
    file = source_file(make)
    return {"version": version, "module": file.stem if file else make.__module__}


@functools.cache  # because the file may be edited after the class was loaded from it
def _source_hash(make: type) -> str:
    """Return 16 hex digits that change with every edit of the source of a class.

    The hash covers the bytes of the file that defines the class, and of the modules that this file imports from its own
    folder, directly or through each other. For a class without a file, it covers the text that `inspect.getsource`
    returns. Raise `ConfigError` if there is none, as in a notebook.
    """
    file = source_file(make)
    if file is not None and file.is_file():
        contents = [source.read_bytes() for source in (file, *sorted(_imported_files(file)))]
    else:
        try:
            contents = [inspect.getsource(make).encode()]
        except (OSError, TypeError) as error:
            raise ConfigError(
                f"{make.__name__} has no source file, so a change of its code cannot be noticed; define it in a Python "
                "file, or declare version = 1 in the class and raise the number with every change"
            ) from error
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()[:16]


def _imported_files(file: Path) -> set[Path]:
    """Return the files of the modules that a file imports from its own folder, directly or through each other.

    In a package, the own folder is that of the outermost package. A module directly in `site-packages` has none.
    """
    folder = file.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    imported: set[Path] = set()
    waiting = [file] if folder.name not in INSTALLED else []
    while waiting:
        new = set(_imports(waiting.pop(), folder)) - imported - {file}
        imported |= new
        waiting += new
    return imported


def _imports(file: Path, folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that a file imports anywhere in its code, and those of the packages around them."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # not Python, so it imports nothing
        return
    for node in ast.walk(tree):
        starts = [file.parent, folder.parent]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
            if node.level:
                starts = [file.parents[node.level - 1]]
        else:
            continue
        for name in names:
            if name.partition(".")[0] != "lengthwise":
                for start in starts:
                    yield from _files_of(start.joinpath(*name.split(".")), folder)


def _files_of(module: Path, folder: Path) -> list[Path]:
    """Return the file of a module in a folder and those of the packages around it, or nothing if there is no module."""
    candidates = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    files = [file for file in candidates if file.is_relative_to(folder) and file.is_file()]
    packages = [parent / "__init__.py" for parent in module.parents if parent.is_relative_to(folder)]
    return [*files, *(file for file in packages if file.is_file())] if files else []
