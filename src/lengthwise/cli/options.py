"""Options that several commands share: integers, lists of encodings, the results folder, execution settings and plug-ins."""

import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform

from cyclopts import Parameter, Token
from docstring_parser import parse_from_object

from lengthwise import values
from lengthwise.config.layers import split_at_commas
from lengthwise.values import ConfigError, require_address, require_results

if TYPE_CHECKING:
    from lengthwise.store import Store
    from lengthwise.studies import Compute

MAX_INTEGER = 2**31 - 1  # of any count, length or seed; no machine has memory for more
MAX_RANGE = 10_000  # numbers in a range such as 5-20


def _parse_integer(kind: type, tokens: Sequence[Token]) -> int:
    """Return the integer of an option. cyclopts itself would silently round 2.5 to 2."""
    text = tokens[0].value
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, got {text[:40]!r}") from None
    if abs(value) > MAX_INTEGER:
        raise ValueError(f"must be at most {MAX_INTEGER}, got {text[:40]}")
    return value


def whole_numbers(text: str, option: str, minimum: int, example: str) -> list[int]:
    """Return the numbers of a list such as `256,512,1024`, in order. Raise `ConfigError` for anything else."""
    parts = [part.strip() for part in re.split(r"[,\s]+", text) if part.strip()]
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,10}", part) or not minimum <= int(part) <= MAX_INTEGER:
            raise ConfigError(
                f"{option} must be whole numbers from {minimum} to {MAX_INTEGER}, comma-separated, got {part[:40]!r}; "
                f"write {option} {example}"
            )
    if not parts:
        raise ConfigError(
            f"{option} must be whole numbers, comma-separated, got {text[:40]!r}; write {option} {example}"
        )
    return [int(part) for part in parts]


def number_ranges(text: str, option: str, minimum: int = 1) -> tuple[int, ...]:
    """Return the numbers of `5-20` or `5,10,20`, sorted and each at least `minimum`. Raise `ConfigError` for anything else."""
    counts: set[int] = set()
    expected = f"write whole numbers from {minimum} to 999,999,999, at most {MAX_RANGE:,} in a range: 5-20 or 5,10,20"
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
        if not (minimum <= first <= last) or last - first >= MAX_RANGE:
            raise ConfigError(f"{option} contains {part[:40]!r}; {expected}")
        counts |= set(range(first, last + 1))
    if not counts:
        raise ConfigError(f"{option} is empty; {expected}")
    return tuple(sorted(counts))


def _require_folder(kind: type, value: str) -> None:
    if not value.strip():
        raise ValueError("The path is empty. Give a folder, or omit the option")
    require_results("The results folder", value, with_store=True)  # `open_results` knows whether there is one
    if os.path.exists(value) and not os.path.isdir(value) and not os.path.isfile(value):
        raise ValueError(f"{value} is not a folder. Give a folder, or omit the option")


def _require_plugins(kind: type, values: tuple[str, ...]) -> None:
    if not all(value.strip() for value in values):
        raise ValueError("The name is empty. Give a Python file or a module, or omit the option")


def require_no_option(kind: type, value: str) -> None:
    """Raise `ValueError` for a misspelled option where a file is expected."""
    if value.startswith("-") and value != "-":
        raise ValueError(f"There is no option {value}; write ./{value} for a file of that name")


def require_path(kind: type, value: str) -> None:
    """Raise `ValueError` for a misspelled option or an empty text where a model's folder is expected."""
    require_no_option(kind, value)
    if not value.strip():
        raise ValueError("The name is empty; name a model's folder")


Integer = Annotated[int, Parameter(converter=_parse_integer)]

NameList = Annotated[str | None, Parameter(show_default=False)]


def split_names(text: str | None) -> list[str]:
    """Return the encodings of `rope,fire:c=1,L=8,alibi`, where commas also separate the settings of one encoding.

    >>> split_names("rope,fire:c=1,L=8,nope(window=3,sinks=true)")
    ['rope', 'fire:c=1,L=8', 'nope(window=3,sinks=true)']
    """
    names: list[str] = []
    for part in filter(None, (p.strip() for p in split_at_commas(text or ""))):
        if names and "=" in part and not set(":(") & set(part.partition("=")[0]):
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


@contextmanager
def named_as_options(*configs: type) -> Iterator[None]:
    """Let messages about settings of these classes name a command's options: `--batch-size` in place of `Tuning.batch_size`."""
    try:
        yield
    except ConfigError as error:
        fields = "|".join({field.name for config in configs for field in dataclasses.fields(config)})
        classes = "|".join(config.__name__ for config in configs)
        setting = re.compile(rf"\b(?:{classes})\.({fields})\b|^({fields})(?= must)")
        text = setting.sub(lambda match: f"--{(match[1] or match[2]).replace('_', '-')}", str(error))
        raise type(error)(text) from error


def method_names(text: str, example: str) -> tuple[str, ...]:
    """Return the different names of `--methods`. Raise `ConfigError` if there are none, or if one is no encoding and not "own"."""
    from lengthwise.encodings import ENCODINGS

    methods = tuple(dict.fromkeys(split_names(text)))
    if not methods:
        raise ConfigError(f"--methods is empty; name {example}")
    for method in methods:
        if method != "own":
            ENCODINGS.parse(method)
    return methods


def _require_address(kind: type, value: str | None) -> None:
    if value is not None:
        require_address("--store", value)


EVERY_FILE = "**/*"  # of a folder of text
RESULTS = values.RESULTS
Results = Annotated[str, Parameter(env_var="LENGTHWISE_RESULTS", validator=_require_folder)]


T = TypeVar("T")


def field_texts(owner: type) -> Mapping[str, str]:
    """Return the first paragraph of the docstring of each field of a dataclass, in one line."""
    return _field_texts(owner)


@functools.cache  # reading the source of a class takes milliseconds
def _field_texts(owner: Any) -> Mapping[str, str]:
    texts = {param.arg_name: param.description or "" for param in parse_from_object(owner).params}
    return {name: " ".join(text.partition("\n\n")[0].split()) for name, text in texts.items()}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def option_class(owner: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are options of a command. The docstrings of the fields are their help."""
    for name, text in field_texts(owner).items():
        owner.__annotations__[name] = Annotated[owner.__annotations__[name], Parameter(help=text)]
    return Parameter(name="*")(dataclass(frozen=True, kw_only=True)(owner))


@option_class
class Place:
    """Where results are."""

    results: Results = RESULTS
    """Results folder, with the trained models, the report and, without --store, the database. With --store, it may be at an
    address such as s3://bucket/folder."""
    store: Annotated[
        str | None, Parameter(env_var="LENGTHWISE_STORE", validator=_require_address, show_default=False)
    ] = None
    """Address of a database that several machines share: postgresql://user@host/name. Its password belongs in ~/.pgpass."""

    def open(self) -> "Store":
        """Open the results. Raises `StoreError` if there are none."""
        from lengthwise.store import open_results

        return open_results(self.results, create=False, store=self.store)

    @property
    def option(self) -> str:
        """The options of other commands on these results, for messages, such as ` --results PATH`; "" if they need none."""
        from lengthwise.store import results_option, store_option

        return store_option(self.store) + results_option(self.results)


DEFAULT_PLACE = Place()


@option_class
class Execution(Place):
    """How and where runs are executed. No option changes results by more than the last digits."""

    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    threads: Annotated[Integer, Parameter(env_var="LENGTHWISE_THREADS")] = 1
    """CPU threads per run."""
    backend: str = "auto"
    """Attention backend: auto (the fastest that supports the encoding), fused, blocked, sdpa, flex or reference."""
    devices_per_run: Annotated[Integer | None, Parameter(show_default=False)] = None
    """Devices that train and evaluate one run together, each with a process and --threads threads of its own. [default: 1; under
    torchrun, as many as it has started]"""
    sharding: str = "ddp"
    """How the devices of a run share its model: ddp (each has all of it) or fsdp (each has a part of it during training)."""
    compile: bool = False
    """Compile the model for training with torch.compile, which takes minutes at the first steps."""
    recompute: bool = False
    """Compute the model's blocks again in the backward pass, which needs less memory and more time."""
    retries: Integer = 0
    """How often a failed run is tried again, unless its settings are the cause."""
    trackers: Annotated[str | None, Parameter(show_default=False)] = None
    """Trackers that also log training curves and scores, comma-separated: tensorboard, wandb, mlflow, trackio. Settings follow a
    colon: tensorboard,wandb:project=fire,mode=offline."""

    def compute(self) -> "Compute":
        from lengthwise.studies import Compute

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(Compute)}
        return Compute(**{name: value for name, value in values.items() if value is not None})

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `execute`, except for the executor."""
        from lengthwise.studies import RunOptions
        from lengthwise.trackers import parse_trackers

        trackers = () if self.trackers is None else parse_trackers(self.trackers)
        options = RunOptions(retries=self.retries, trackers=trackers)
        return {"results": self.results, "store": self.store, "compute": self.compute(), "options": options}


DEFAULT_EXECUTION = Execution()


Plugins = Annotated[
    tuple[str, ...],
    Parameter(
        name="--plugin",
        negative="",
        show_default=False,
        validator=_require_plugins,
        help="A Python file or module with your own encodings, tasks or position schemes, to be used by name. May be repeated.",
    ),
]


def with_plugins(command: Callable[..., int]) -> Callable[..., int]:
    """Add the option --plugin to a command. The plug-ins' classes are listed while the command runs."""
    signature = inspect.signature(command)
    option = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=Plugins)

    @functools.wraps(command)
    def wrapper(*arguments: Any, plugin: tuple[str, ...] = (), **options: Any) -> int:
        from lengthwise.plugins import plugins

        with plugins(plugin):
            return command(*arguments, **options)

    wrapper.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return wrapper
