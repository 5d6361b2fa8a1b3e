"""Classes from outside lengthwise: the files that define them, and checks that they are complete."""

import inspect
import os
import reprlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from lengthwise.values import ConfigError, join_names


def is_builtin_class(make: type) -> bool:
    """Return whether a class belongs to lengthwise."""
    return make.__module__.startswith("lengthwise.")


def source_file(make: type | Callable[..., Any]) -> Path | None:
    """Return the file that defines a class or a function, or None if there is none."""
    file = getattr(sys.modules.get(make.__module__), "__file__", None)
    return Path(file).resolve() if file else None


def defined_in(make: type) -> str | None:
    """Return the argument of `--plugin` for a class from outside: its file, or its module in an installed package.

    Return None for a class of lengthwise, and for one that was defined interactively.
    """
    file = source_file(make)
    if is_builtin_class(make):
        return None
    if make.__module__ == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        return spec.name if spec is not None and spec.parent else str(file) if file else None
    package = getattr(sys.modules.get(make.__module__), "__package__", None)
    return str(file) if file is not None and not package else make.__module__


def source_location(make: type | Callable[..., Any]) -> str:
    """Return where a class or a function is defined, such as `mytask.py, line 12`, or its module if the file is unknown."""
    try:
        line = inspect.getsourcelines(make)[1]
    except (OSError, TypeError):
        return make.__module__
    file = source_file(make)
    return f"{shortened(str(file)) if file else make.__module__}, line {line}"


def wrong_return(instance: object, method: str, expected: str, value: object) -> ConfigError:
    """Return the error for a user's method that returned something else than `expected`, with its file and line."""
    make = type(instance)
    own = next(base for base in make.__mro__ if method in vars(base))
    where = source_location(make if is_builtin_class(own) else getattr(make, method))
    return ConfigError(f"{where}: {make.__name__}.{method} must return {expected}, got {described(value)}")


def described(value: Any) -> str:
    """Return a value for a message: small values as they are, tensors as their dtype and shape, others as their type."""
    plain = (bool, int, float, complex, str, type(None))
    if isinstance(value, plain) or (isinstance(value, (tuple, list)) and all(isinstance(x, plain) for x in value)):
        return reprlib.repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} of shape {list(value.shape)}"
    return f"an object of type {type(value).__name__}"


def shortened(path: str) -> str:
    """Return a path relative to the current folder if it lies in it, else unchanged."""
    try:
        inside = Path(path).is_absolute() and Path(path).is_relative_to(os.getcwd())
    except OSError:  # the current folder was deleted
        return path
    return os.path.relpath(path) if inside else path


def require_complete(make: type) -> None:
    """Raise `ConfigError` for a class that lacks what every class of its kind has, or whose arguments have no names.

    Settings and the sizes that a model fills in are passed by name, so all arguments of `__init__` have to be keyword-only.
    """
    methods = [f"the method {name}" for name in sorted(getattr(make, "__abstractmethods__", ()))]
    attributes = [f"the class attribute {n}" for n, of_class in _declared(make) if of_class and not hasattr(make, n)]
    if missing := [*methods, *attributes]:
        raise ConfigError(
            f"{source_location(make)}: class {make.__name__} lacks {join_names(missing)}; define {_pronoun(missing)}"
        )
    parameters = _own_parameters(make)
    if positional := [p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]:
        names = join_names([str(p).partition(":")[0].partition("=")[0] for p in positional])
        raise ConfigError(
            f"{source_location(make)}: class {make.__name__} takes {names} by position; arguments of __init__ must be "
            f"keyword-only: write def __init__(self, *, {', '.join(str(p).lstrip('*') for p in parameters)})"
        )


def _own_parameters(make: type) -> list[inspect.Parameter]:
    """Return the parameters of the `__init__` that a class from outside defines or inherits from outside; else none."""
    for base in make.__mro__:
        if "__init__" in vars(base):
            if is_builtin_class(base) or base.__module__.split(".")[0] in ("builtins", "torch", "abc"):
                return []
            return list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
    return []


def require_attributes(instance: object) -> None:
    """Raise `ConfigError` for an object whose `__init__` left out attributes which every object of its kind has, or hides a
    method of lengthwise's base classes behind an attribute of the same name."""
    make = type(instance)
    if is_builtin_class(make):
        return
    if hasattr(make, "register_parameter") and "_parameters" not in vars(instance):  # a torch module
        raise ConfigError(
            f"{source_location(make)}: {make.__name__}.__init__ must call super().__init__() before anything else"
        )
    for name in vars(instance):
        for base in make.__mro__:
            if is_builtin_class(base) and isinstance(vars(base).get(name), (FunctionType, property, classmethod)):
                raise ConfigError(
                    f"{source_location(make)}: class {make.__name__} sets self.{name}, which hides the method "
                    f"{base.__name__}.{name}; give the attribute another name"
                )
    if missing := [f"self.{n}" for n, of_class in _declared(make) if not of_class and not hasattr(instance, n)]:
        raise ConfigError(
            f"{source_location(make)}: class {make.__name__} does not set {join_names(missing)}; set {_pronoun(missing)} in "
            "__init__"
        )


def _declared(make: type) -> list[tuple[str, bool]]:
    """Return the attributes that lengthwise's base classes declare, and whether each is a class attribute."""
    bases = [base for base in make.__mro__ if is_builtin_class(base)]
    declared = {name: "ClassVar" in str(kind) for base in bases for name, kind in inspect.get_annotations(base).items()}
    return list(declared.items())


def _pronoun(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
