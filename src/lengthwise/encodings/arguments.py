"""The arguments of encodings: their checks before a constructor runs."""

import inspect
from abc import ABCMeta
from typing import Any

from lengthwise.class_versions import is_builtin_class, require_complete
from lengthwise.config import context_of, settings_of
from lengthwise.values import ArgumentError, join_names, require_known

# Sizes for checking settings before the model is known; every encoding has to work at these sizes.
NOMINAL_SIZES = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}
_MEANINGS = {
    "num_heads": "the number of attention heads",
    "head_dim": "the dimensions of each head",
    "d_model": "the width of the model",
    "train_length": "the length that the model was trained at",
}


class CheckedArguments(ABCMeta):
    """The metaclass of encodings. It checks arguments before Python does, so that errors explain them.

    `__new__` could not find missing arguments, because copying and unpickling call it without any.
    """

    def __call__(cls, *args: Any, **arguments: Any) -> Any:
        if not is_builtin_class(cls):
            require_complete(cls)
        required = context_of(cls)
        known = [*required, *settings_of(cls)]
        if args:
            example = ", ".join(f"{name}={value!r}" for name, value in zip(known, args, strict=False))
            raise ArgumentError(f"{cls.__name__} takes its arguments by name; write {cls.__name__}({example})")
        if not _accepts_any_keyword(cls):
            require_known(cls.__name__, arguments, known)
        if missing := [name for name in required if name not in arguments]:
            needed = [f"{name} ({_MEANINGS[name]})" if name in _MEANINGS else name for name in missing]
            values = {name: NOMINAL_SIZES.get(name, "...") for name in missing}
            example = ", ".join(f"{name}={value}" for name, value in {**arguments, **values}.items())
            raise ArgumentError(
                f"{cls.__name__} needs {join_names(needed)}; write, for example, {cls.__name__}({example})"
            )
        return super().__call__(**arguments)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`. Without it, `inspect.signature` would return that of `__call__`."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _accepts_any_keyword(encoding_class: type) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(encoding_class).parameters.values())
