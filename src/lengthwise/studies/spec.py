"""`Spec`: what a worker needs to know, as plain data, and how it finds the classes of users in its runs."""

import dataclasses
import importlib
import json
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lengthwise.config import ConfigError, Registry
from lengthwise.plugins import MODULE_PREFIX, is_file, loaded_plugins, plugins
from lengthwise.studies.compute import DEFAULT_COMPUTE, Compute
from lengthwise.studies.loading import load_module
from lengthwise.studies.study import Study
from lengthwise.user_classes import is_builtin_class, source_file
from lengthwise.values import join_names
from lengthwise.versions import class_version

LOADING = ContextVar("LOADING", default=False)
"""Whether this process is a worker that loads the files of the study's classes."""


@dataclass(frozen=True, kw_only=True)
class OwnClasses:
    """Where a worker process finds the classes of a study that are not lengthwise's own.

    `classes`: their versions by `module:name`. `files`: Python files that define some of them, such as the study's
    file or the user's script. `folders`: entries of `sys.path` with the modules of the others.
    """

    classes: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a worker needs to know. Other processes get it as JSON.

    `plugins`: those of the parent. `runs`: the descriptions of runs that differ from the stored ones, by key: the same
    text may have another path on this machine. `results_id`: that of the results folder, if it may be another one for
    the worker than for its parent. `trackers`: their names and settings.
    """

    store: str  # address
    study: str
    results: str  # path or address
    results_id: str | None = None
    own_classes: OwnClasses = OwnClasses()
    plugins: tuple[str, ...] = ()
    runs: Mapping[str, Any] = field(default_factory=dict)
    compute: Compute = DEFAULT_COMPUTE
    retries: int = 0
    trackers: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> str:
        """Return one line of text, from which `from_json` of `lengthwise.validation` makes an equal object."""
        return json.dumps(dataclasses.asdict(self))


def classes_of(study: Study) -> list[type]:
    """Return the classes of a study's runs that are not lengthwise's own."""
    classes = dict.fromkeys(choice.cls for run in study.runs for choice in run.choices)
    return [make for make in classes if not is_builtin_class(make)]


def own_classes(study: Study) -> OwnClasses:
    """Return where other processes find these classes. Raise `ConfigError` for one that they could not import."""
    classes: dict[str, Any] = {}
    files: list[Path | None] = [study.source] if classes_of(study) else []  # it may import modules with some of them
    plugin_modules = [sys.modules[plugin] for plugin in loaded_plugins() if not is_file(plugin)]
    module_files = [Path(module.__file__).resolve() if module.__file__ else None for module in plugin_modules]
    for make in classes_of(study):
        module = _module_of(make)
        classes[f"{module}:{make.__qualname__}"] = class_version(make)
        (files if module.startswith(MODULE_PREFIX) else module_files).append(source_file(make))
    folders = [Path(folder).resolve() for folder in sys.path]
    return OwnClasses(
        classes=classes,
        files=tuple(dict.fromkeys(str(file) for file in files if file)),
        folders=tuple(str(f) for f in folders if any(file and file.is_relative_to(f) for file in module_files)),
    )


def _module_of(make: type) -> str:
    """Return the module from which a worker imports a class. A user's script is loaded like a study's file."""
    module, file = make.__module__, source_file(make)
    try:
        is_found = operator.attrgetter(make.__qualname__)(sys.modules.get(module)) is make
    except AttributeError:  # such as a class that a function has made
        is_found = False
    if module == "__main__":
        spec = sys.modules[module].__spec__
        module = spec.name if spec is not None and spec.parent else f"{MODULE_PREFIX}{file.stem if file else ''}"
        is_found = is_found and file is not None  # a notebook has none
    if not is_found:
        raise ConfigError(
            f"worker processes cannot import {make.__name__} from {make.__module__}; define it at the top level of a "
            "module or of the study file, or execute the study with Inline()"
        )
    return module


@contextmanager
def listed(classes: Iterable[type]) -> Iterator[None]:
    """Add classes to the lists inside this block, so that stored runs with them can be built."""
    with plugins(()):  # which restores the lists
        for make in classes:
            Registry.by_kind[make.kind].add(make)  # type: ignore[attr-defined]
        yield


@contextmanager
def classes_listed(spec: Spec) -> Iterator[None]:
    """Load the plug-ins and the study's own classes, and list them inside this block.

    Raise `ConfigError` if a class has another version than in the parent, because its file was edited in the meantime.
    """
    own = spec.own_classes
    sys.path += [folder for folder in own.folders if folder not in sys.path]
    with plugins(spec.plugins):
        token = LOADING.set(True)
        try:
            for file in own.files:
                load_module(file)
            classes = {place: _imported(place) for place in own.classes}
        finally:
            LOADING.reset(token)
        changed = [make.__name__ for place, make in classes.items() if class_version(make) != own.classes[place]]
        if changed:
            raise ConfigError(
                f"the file of {join_names(changed)} changed while the study was running, and every edit counts, even "
                "of a comment; run the same command again, or declare version = 1 in the class to decide yourself what "
                "counts"
            )
        with listed(classes.values()):
            yield


def _imported(place: str) -> type:
    module, _, name = place.partition(":")
    make: type = operator.attrgetter(name)(importlib.import_module(module))
    return make
