"""The arguments of encodings, tasks and position schemes: checks before a constructor runs."""

import inspect
from abc import ABC
from collections.abc import Mapping
from functools import cache
from typing import Any, Self, Unpack, get_args, get_origin

from lengthwise.config.class_settings import annotation, settings_of
from lengthwise.validation import validated
from lengthwise.values import require_known


@cache
def _signature(cls: type) -> inspect.Signature:
    """Return the signature of `__init__`; `**name: Unpack[...]` stands for these arguments of the base class."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    if parameters and get_origin(parameters[-1].annotation) is Unpack:
        owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
        (names,) = get_args(parameters.pop().annotation)
        inherited = inspect.signature(owner.__mro__[1]).parameters
        declared = {p.name: p for p in parameters}
        by_name = {name: p for name, p in inherited.items() if name in {*names.__annotations__, *declared}} | declared
        parameters = sorted(by_name.values(), key=lambda p: p.default is not p.empty)
    return signature.replace(parameters=parameters)


class _ConstructorSignature:
    """The `__signature__` of a class, for `inspect.signature` and `help`, which would show that of `__new__`."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        return _signature(owner)


class CheckedArguments(ABC):
    """The base class of encodings, tasks and position schemes: it checks arguments before `__init__`, to explain
    mistakes.

    Arguments need known names, and settings need their declared types. Constructors check the values.
    """

    init_arguments: dict[str, Any]  # the keyword arguments of the constructor
    __signature__ = _ConstructorSignature()  # not set once for each class, because `dataclass` adds `__init__` later

    def __new__(cls, /, *args: Any, **arguments: Any) -> Self:
        parameters = _signature(cls).parameters.values()
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            require_known(cls.__name__, arguments, [p.name for p in parameters])
        cls.check_arguments(arguments)
        instance = super().__new__(cls)
        instance.__dict__["init_arguments"] = arguments
        return instance

    def __init__(self) -> None:  # type checkers would otherwise take the arguments of `__new__`
        super().__init__()

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a setting of another type than it declares."""
        for name, parameter in settings_of(cls).items():
            if name in arguments:
                validated(arguments[name], annotation(cls, parameter), f"{cls.__name__}: {name}")
