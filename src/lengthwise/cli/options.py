"""What several verbs take: plug-ins, whole numbers, lists of encodings, the folder of the results, and how runs are executed."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter, Token

from lengthwise.choices import between_commas
from lengthwise.values import ConfigError, require_no_address

MOST = 2**31 - 1  # of any count, length or seed: what is larger is a slip, and no memory holds it


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """A whole number as it is written; cyclopts by itself rounds 2.5 to 2, and a study would be another than asked."""
    written = tokens[0].value
    try:
        found = int(written)
    except ValueError:
        raise ValueError(f"{written[:40]!r} is no whole number") from None
    if abs(found) > MOST:
        raise ValueError(f"{written[:40]} is too large; it has to be at most {MOST}")
    return found


def whole_numbers(written: str, option: str, least: int, example: str) -> list[int]:
    """The numbers of `256,512,1024`, each once and in that order. `ConfigError` for what is none, or too large."""
    parts = [part.strip() for part in re.split(r"[,\s]+", written) if part.strip()]
    for part in parts:
        if not re.fullmatch(r"[0-9]+", part) or len(part) > len(str(MOST)) or not least <= int(part) <= MOST:
            raise ConfigError(
                f"{option} has {part[:40]!r}; write whole numbers of {least} to {MOST}, with commas: {example}"
            )
    if not parts:
        raise ConfigError(f"{option} is {written[:40]!r}; write whole numbers with commas: {example}")
    return [int(part) for part in parts]


def _a_folder(kind: type, value: str) -> None:
    if not value.strip():
        raise ValueError("Name a folder, or leave it out")
    require_no_address("It", value)


def _a_plugin(kind: type, values: tuple[str, ...]) -> None:
    if not all(value.strip() for value in values):
        raise ValueError("Name a Python file or a module, or leave it out")


def no_option(kind: type, value: str) -> None:
    if value.startswith("-") and value != "-":
        raise ValueError(f"There is no option {value}; a file of that name is ./{value}")


Whole = Annotated[int, Parameter(converter=_whole)]

Listed = Annotated[str | None, Parameter(show_default=False)]


def words(listed: str | None) -> list[str]:
    """The encodings of `rope,fire:c=1,L=8,alibi`: a comma also parts the settings of one."""
    found: list[str] = []
    for part in filter(None, (p.strip() for p in between_commas(listed or ""))):
        if found and "=" in part and ":" not in part.partition("=")[0]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


EVERY_FILE = "**/*"  # of a folder of text
RESULTS = "lengthwise-results"
Results = Annotated[str, Parameter(env_var="LENGTHWISE_RESULTS", validator=_a_folder)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Execution:
    """How runs are executed; none of it changes what comes out, but `threads` and `device` change the last digits."""

    results: Results = RESULTS
    """Folder of the results database, the trained models and the report."""
    workers: Whole | None = None
    """Runs at a time; usually one for each core, on a GPU one."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, ..."""
    threads: Annotated[Whole, Parameter(env_var="LENGTHWISE_THREADS")] = 1
    """Threads of each run."""
    backend: str = "auto"
    """Attention backend; auto takes the fastest that serves an encoding."""


USUAL = Execution()


Plugins = Annotated[
    tuple[str, ...],
    Parameter(
        name="--plugin",
        negative="",
        show_default=False,
        validator=_a_plugin,
        help="A Python file or a module with encodings, tasks or position schemes of your own, to be used like those of the lists; "
        "may be repeated.",
    ),
]


def with_plugins(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb with the option --plugin, which every command has: its classes are in the lists while the command runs."""
    signature = inspect.signature(verb)
    option = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=Plugins)

    @functools.wraps(verb)
    def command(*arguments: Any, plugin: tuple[str, ...] = (), **options: Any) -> int:
        from lengthwise.plugins import plugins

        with plugins(plugin):
            return verb(*arguments, **options)

    command.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return command
