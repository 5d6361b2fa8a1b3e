"""Options that several commands share, as frozen dataclasses: fields are options, and docstrings their help."""

import dataclasses
import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_origin

from cyclopts import Parameter, Token

from lengthwise import values
from lengthwise.config import EXECUTOR_CONFIGS, ExecutorConfig
from lengthwise.config.layers import split_at_commas
from lengthwise.values import ConfigError, unlisted

if TYPE_CHECKING:
    from lengthwise.store import Store
    from lengthwise.studies import Compute

MAX_INTEGER = 2**31 - 1  # of any count, length or seed; no machine has memory for more
MAX_RANGE = 10_000  # numbers in a range such as 5-20
EVERY_FILE = "**/*"  # of a folder of text
RESULTS = values.RESULTS

FLATTENED = Parameter(name="*")  # of a class whose fields are options


# ---- values ---------------------------------------------------------------------------------------------------------


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


Integer = Annotated[int, Parameter(converter=_parse_integer)]
Threads = Annotated[Integer, Parameter(env_var="LENGTHWISE_THREADS")]


def _require_no_option(kind: type, value: str) -> None:
    if value.startswith("-") and value != "-":
        raise ValueError(f"There is no option {value}; write ./{value} for a file of that name")


FileOrHyphen = Annotated[str, Parameter(allow_leading_hyphen=True, validator=_require_no_option)]
"""A file, or - for the standard input or output."""


def whole_numbers(text: str, option: str, minimum: int, example: str) -> list[int]:
    """Return the numbers of a list such as `256,512,1024`, in order. Raise `ConfigError` for anything else."""
    numbers = [number.strip() for number in re.split(r"[,\s]+", text) if number.strip()]
    for number in numbers:
        if not re.fullmatch(r"[0-9]{1,10}", number) or not minimum <= int(number) <= MAX_INTEGER:
            raise ConfigError(
                f"{option} must be whole numbers from {minimum} to {MAX_INTEGER}, comma-separated, got "
                f"{number[:40]!r}; write {option} {example}"
            )
    if not numbers:
        raise ConfigError(
            f"{option} must be whole numbers, comma-separated, got {text[:40]!r}; write {option} {example}"
        )
    return [int(number) for number in numbers]


def number_ranges(text: str, option: str, minimum: int = 1) -> tuple[int, ...]:
    """Return the numbers of `5-20` or `5,10,20`, sorted and each at least `minimum`; 1k is 1,024, and 1m is 1,048,576.

    Raise `ConfigError` for anything else.
    """
    counts: set[int] = set()
    expected = f"write whole numbers from {minimum} to 999,999,999, at most {MAX_RANGE:,} in a range: 5-20 or 5,10,20"
    for item in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"([0-9]{1,9}[kKmM]?)(?:\s*-\s*([0-9]{1,9}[kKmM]?))?", item)
        first, last = (_whole(match[1]), _whole(match[2] or match[1])) if match else (-1, -1)
        if not (minimum <= first <= last) or last - first >= MAX_RANGE:
            raise ConfigError(f"{option} contains {item[:40]!r}; {expected}")
        counts |= set(range(first, last + 1))
    if not counts:
        raise ConfigError(f"{option} is empty; {expected}")
    return tuple(sorted(counts))


def _whole(text: str) -> int:
    return int(text.rstrip("kKmM")) * {"k": 2**10, "m": 2**20}.get(text[-1].lower(), 1)


def split_names(text: str | None) -> list[str]:
    """Return the encodings of `rope,fire:c=1,L=8,alibi`, where commas also separate the settings of one encoding.

    >>> split_names("rope,fire:c=1,L=8,nope(window=3,sinks=true)")
    ['rope', 'fire:c=1,L=8', 'nope(window=3,sinks=true)']
    """
    names: list[str] = []
    for item in filter(None, (p.strip() for p in split_at_commas(text or ""))):
        if names and "=" in item and not set(":(") & set(item.partition("=")[0]):
            names[-1] += f",{item}"
        else:
            names.append(item)
    return names


def required_names(text: str, option: str, example: str) -> list[str]:
    """Return the names of an option's text. Raise `ConfigError` if there are none."""
    names = split_names(text)
    if not names:
        raise ConfigError(f"{option} is empty; name {example}")
    return names


def method_names(text: str, example: str) -> tuple[str, ...]:
    """Return the different names of `--methods`. Raise `ConfigError` unless each is an encoding or "own"."""
    from lengthwise.encodings import ENCODINGS

    methods = tuple(dict.fromkeys(required_names(text, "--methods", example)))
    for method in methods:
        if method != "own":
            ENCODINGS.parse(method)
    return methods


# ---- options of a measurement ---------------------------------------------------------------------------------------


def option_class(options: Mapping[str, dataclasses.Field[Any]], shown: Callable[[dataclasses.Field[Any]], str]) -> Any:
    """Return a dataclass with options of a measurement as the command line gives them. None is the default of the
    measurement.

    `options`: the fields of its `Options` by the name on the command line. `shown`: the default in help texts. Lists
    are text such as 5-20, 5,10,20 or rope,alibi, and so is the value of `lengths` if it stands for the field `length`
    of several questions.
    """
    fields: list[Any] = []
    for name, field in options.items():
        text = f"{field.metadata['text']} [default: {shown(field)}]"
        kind: Any = {int: Integer, float: float, bool: bool}.get(field.type)  # type: ignore[arg-type]
        kind = field.type if get_origin(field.type) is Literal else str if name != field.name else kind or str
        default = False if kind is bool else None
        annotated: Any = Annotated[kind if kind is bool else kind | None, Parameter(help=text, show_default=False)]
        fields.append((name, annotated, dataclasses.field(default=default)))
    namespace = {"__module__": __name__}  # cyclopts reads no fields of classes in the standard library
    return FLATTENED(
        dataclasses.make_dataclass("MeasurementOptions", fields, frozen=True, kw_only=True, namespace=namespace)
    )


def option_values(fields: Iterable[dataclasses.Field[Any]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, with lists as tuples."""
    values = {}
    for field in fields:
        if (value := options.get(field.name)) is not None:
            if field.type == tuple[int, ...]:
                value = number_ranges(value, f"--{field.name}", field.metadata["minimum"])
            elif field.type == tuple[str, ...]:
                value = tuple(dict.fromkeys(split_names(value)))
            values[field.name] = value
    return values


@contextmanager
def named_as_options(*configs: type) -> Iterator[None]:
    """Let messages about settings of these classes name options: `--batch-size` in place of `Tuning.batch_size`."""
    try:
        yield
    except ConfigError as error:
        fields = {field.name for config in configs for field in dataclasses.fields(config)}
        classes = "|".join(config.__name__ for config in configs)
        compound = "|".join(name for name in fields if "_" in name)  # never ordinary words of a message
        names = rf"\b(?:{classes})\.(?P<of_class>{'|'.join(fields)})\b|^(?P<first>{'|'.join(fields)})(?= must)"
        setting = re.compile(rf"{names}|\b(?P<compound>{compound})\b" if compound else names)
        text = setting.sub(lambda match: f"--{str(match[match.lastgroup or 0]).replace('_', '-')}", str(error))
        raise type(error)(text) from error


# ---- where results are, and how runs are executed -------------------------------------------------------------------


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Place:
    """Where results are."""

    results: Annotated[str, Parameter(env_var="LENGTHWISE_RESULTS")] = RESULTS
    """Results folder, with the trained models, the report and, without --store, the database. With --store, it may be
    at an address such as s3://bucket/folder."""
    store: Annotated[str | None, Parameter(env_var="LENGTHWISE_STORE")] = None
    """Address of a database that several machines share: postgresql://user@host/name. Its password belongs in
    ~/.pgpass."""

    def open(self) -> "Store":
        """Open the results. Raises `StoreError` if there are none."""
        from lengthwise.store import open_results

        return open_results(self.results, create=False, store=self.store)

    @contextmanager
    def reading(self) -> Iterator["Store"]:
        """Open the results to read many rows. Meanwhile Python does not search for cycles of objects, which rows do not
        have: the search takes a third of the time in which 100,000 rows are read."""
        gc.disable()
        try:
            with self.open() as store:
                yield store
        finally:
            gc.enable()

    @property
    def option(self) -> str:
        """The options of other commands on these results, for messages, such as ` --results PATH`, or ""."""
        from lengthwise.store import results_option, store_option

        return store_option(self.store) + results_option(self.results)


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Execution(Place):
    """How runs are executed. No option changes results by more than the last digits."""

    device: str = "cpu"
    """Device to run on: cpu, cuda, cuda:1, ..."""
    threads: Threads = 1
    """CPU threads per run."""
    backend: str = "auto"
    """Attention backend: auto (the fastest that supports the encoding), fused, blocked, sdpa, flex or reference."""
    devices_per_run: Integer | None = None
    """Devices that train and evaluate one run together, each with a process and --threads threads of its own. [default:
    1; under torchrun, as many as it has started]"""
    sharding: str = "ddp"
    """How the devices of a run share its model: ddp (each has all of it) or fsdp (each has a part of it during
    training)."""
    compile: bool = False
    """Compile the model for training with torch.compile, which takes minutes at the first steps."""
    recompute: bool = False
    """Compute the model's blocks again in the backward pass, which needs less memory and more time."""
    retries: Integer = 0
    """How often a failed run is tried again, unless its settings are the cause. With several devices per run, a run
    whose process on one of them ended is tried again at least once."""
    trackers: str | None = None
    """Trackers that also log training curves and scores, comma-separated: tensorboard, wandb, mlflow, trackio. Settings
    follow a colon: tensorboard,wandb:project=fire,mode=offline."""

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


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class LocalExecutors:
    """Where `lengthwise work` executes runs: on this machine."""

    names: ClassVar[tuple[str, ...]] = ("local", "inline")

    on: str = "local"
    """Where to execute runs. local: processes on this machine, each with one run at a time. inline: one run after
    another in this process, where a debugger can stop in your encoding or task."""
    workers: Integer | None = None
    """Number of runs at the same time. Only with --on local. [default: 1]"""

    def executor(self) -> ExecutorConfig:
        """Return the settings of the executor. Raise `ConfigError` for an unknown one, or for an option of another one.

        `--on` may be NAME:ADDRESS for an executor with an address.
        """
        name, colon, address = self.on.partition(":")
        if name not in self.names:
            raise ConfigError(f"--on must be the name of an executor, and there is no {unlisted(name, self.names)}")
        settings = {executor: _fields(EXECUTOR_CONFIGS[executor]) for executor in self.names}
        if colon and not (address and "address" in settings[name]):
            expected = f"{name} or {name}:HOST:PORT" if "address" in settings[name] else f"{name}, which has no address"
            raise ConfigError(f"--on must be {expected}, got {self.on[:60]!r}")
        chosen = {option: value for option, value in vars(self).items() if option != "on" and value not in (None, ())}
        for option in chosen:
            if option not in settings[name]:
                owners = " or ".join(other for other in self.names if option in settings[other])
                raise ConfigError(f"--{option} applies only to --on {owners}, not to --on {name}; omit it")
        return EXECUTOR_CONFIGS[name](**chosen, **({"address": address} if colon else {}))


def _fields(config: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class Executors(LocalExecutors):
    """Where `lengthwise run` and `lengthwise compare` execute runs: on this machine or on a cluster."""

    names: ClassVar[tuple[str, ...]] = ("local", "inline", "slurm", "ray")

    on: str = "local"
    """Where to execute runs. local: processes on this machine, each with one run at a time. inline: one run after
    another in this process, where a debugger can stop in your encoding or task. slurm: workers in a job array of a
    Slurm cluster, each with one run at a time. ray: tasks of a Ray cluster, one for each run; ray:ADDRESS names a
    cluster."""
    workers: Integer | None = None
    """Number of runs at the same time. Only with --on local. [default: the number of CPU cores, divided by the devices
    per run; 1 on a GPU]"""
    slots: Integer | None = None
    """Number of workers. Each is a job that trains one run after the other, so a study may have more runs than slots.
    Only with --on slurm. [default: 1]"""
    partition: str | None = None
    """Slurm partition of the jobs. Only with --on slurm. [default: that of the cluster]"""
    time: str | None = None
    """Time limit of a job, such as 30m, 4h or 2d. A job that reaches it saves its progress and is queued again. Only
    with --on slurm. [default: 1h]"""
    gpus: float | None = None
    """GPUs for each run. On Ray, it may be a fraction. Only with --on slurm or ray. [default: 0]"""
    memory: str | None = None
    """Memory of each job, such as 16G. Only with --on slurm. [default: that of the cluster]"""
    sbatch: Annotated[tuple[str, ...], Parameter(show_default=False)] = ()
    """Another option of sbatch, as NAME=VALUE, such as account=physics. May be repeated. Only with --on slurm."""
    cpus: float | None = None
    """CPUs that Ray reserves for each run. Only with --on ray. [default: --threads times --devices-per-run]"""
