"""Classes from outside lengthwise: the files that define them, and checks that they are complete."""

import inspect
import os
import reprlib
import sys
from collections.abc import Callable
from pathlib import Path
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
    """Return where a class or function is defined, such as `mytask.py, line 12`, or its module without a file."""
    try:
        line = inspect.getsourcelines(make)[1]
    except (OSError, TypeError):
        return make.__module__
    file = source_file(make)
    return f"{shortened(str(file)) if file else make.__module__}, line {line}"


def wrong_return(instance: object, method: str, expected: str, value: object) -> ConfigError:
    """Return the error for a user's method that returned something else than `expected`, with its file and line."""
    make = type(instance)
    defining_class = next(base for base in make.__mro__ if method in vars(base))
    where = source_location(make if is_builtin_class(defining_class) else getattr(make, method))
    return ConfigError(f"{where}: {make.__name__}.{method} must return {expected}, got {described(value)}")


def not_repeatable(instance: object, method: str, returned: str) -> ConfigError:
    """Return the error for a user's method that `returned` something else for the same generator state."""
    make = type(instance)
    return ConfigError(
        f"{source_location(getattr(make, method))}: {make.__name__}.{method} must return the same {returned} for the "
        "same state of its generator; pass the generator to every random function, as in torch.randint(10, (3, 5), "
        "generator=generator)"
    )


def described(value: Any) -> str:
    """Return a value for a message: small values as they are, tensors by dtype and shape, others by type."""
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
    inside = Path(path).is_absolute() and Path(path).is_relative_to(os.getcwd())
    return os.path.relpath(path) if inside else path


def require_complete(make: type) -> None:
    """Raise `ConfigError` for a class without a method or a class attribute that its base class asks for."""
    missing = [f"the method {name}" for name in sorted(getattr(make, "__abstractmethods__", ()))]
    for name, kind in getattr(make, "class_attributes", {}).items():
        if not isinstance(getattr(make, name, None), kind):
            missing.append(f"the class attribute {name} of type {kind.__name__}")
    if missing:
        pronoun = "it" if len(missing) == 1 else "them"
        raise ConfigError(
            f"{source_location(make)}: class {make.__name__} lacks {join_names(missing)}; define {pronoun}"
        )
