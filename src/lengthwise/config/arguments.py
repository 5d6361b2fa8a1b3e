"""The arguments of encodings, tasks and position schemes: checks before a constructor runs."""

import inspect
from abc import ABC
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, Self, Unpack, get_args, get_origin

from lengthwise.config.class_settings import annotation, context_of, settings_of
from lengthwise.user_classes import is_builtin_class, require_complete
from lengthwise.values import ArgumentError, ConfigError, near_miss, require_bool, require_known, shown


@cache
def _signature(cls: type) -> inspect.Signature:
    """Return the signature of `__init__`, in which `**name: Unpack[...]` stands for these arguments of the base class."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    if parameters and get_origin(parameters[-1].annotation) is Unpack:
        owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
        (names,) = get_args(parameters.pop().annotation)
        inherited = inspect.signature(owner.__mro__[1]).parameters
        own = {p.name: p for p in parameters}
        by_name = {name: p for name, p in inherited.items() if name in {*names.__annotations__, *own}} | own
        parameters = sorted(by_name.values(), key=lambda p: p.default is not p.empty)
    return signature.replace(parameters=parameters)


class _ConstructorSignature:
    """The `__signature__` of a class, for `inspect.signature` and `help`. Its instances have none."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        return _signature(owner)


class CheckedArguments(ABC):
    """The base class of encodings, tasks and position schemes. It checks arguments before `__init__`, so that errors explain them.

    A setting that is declared as a `bool` or a `Literal` must be one of its values. Constructors check all other settings.
    """

    init_arguments: dict[str, Any]  # the keyword arguments of the constructor
    __signature__ = _ConstructorSignature()

    def __new__(cls, /, *args: Any, **arguments: Any) -> Self:
        if not is_builtin_class(cls):
            require_complete(cls)
        names = [*context_of(cls), *settings_of(cls)]
        kinds = {p.kind for p in inspect.signature(cls).parameters.values()}
        if args and not kinds & {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}:
            example = ", ".join(f"{name}={value!r}" for name, value in zip(names, args, strict=False))
            raise ArgumentError(f"{cls.__name__} takes its arguments by name; write {cls.__name__}({example})")
        if not args and kinds <= {inspect.Parameter.KEYWORD_ONLY}:
            require_known(cls.__name__, arguments, names)
        cls.check_arguments(arguments)
        instance = super().__new__(cls)
        instance.__dict__["init_arguments"] = arguments
        return instance

    def __init__(self) -> None:  # type checkers would otherwise take the arguments of `__new__`
        super().__init__()

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), self.init_arguments  # copying and unpickling call `__new__` too

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for arguments that the class cannot take. All of them have names that it knows."""
        for name, parameter in settings_of(cls).items():
            if name in arguments:
                _require_declared(cls.__name__, name, arguments[name], annotation(cls, parameter))


def _require_declared(owner: str, name: str, value: object, declared: object) -> None:
    if declared is bool:
        require_bool(owner, **{name: value})
    literals = [part for part in (declared, *get_args(declared)) if get_origin(part) is Literal]
    options = [option for part in literals for option in get_args(part)]
    if NoneType in get_args(declared):
        options += [None] if options else []
    if options and not (isinstance(value, (str, int, float, NoneType)) and value in options):
        one_of = " or ".join(map(repr, options)) if len(options) < 3 else f"one of {', '.join(map(str, options))}"
        raise ConfigError(
            f"{owner}: {name} must be {one_of}, got {shown(value)}{near_miss(str(value), map(str, options))}"
        )
