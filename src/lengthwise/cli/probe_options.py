"""The options of `lengthwise probe`, which are the fields of the probes' questions."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli.options import Integer
from lengthwise.probes import PROBES
from lengthwise.values import join_names

Command = Callable[..., int]


def with_probe_options(command: Command) -> Command:
    """Add the options of all probes to a command, in place of its `**options`, and the probes to its description ({probes}).

    The options come before `results`. The option `lengths` stands for the length of several questions.
    """
    signature = inspect.signature(command)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = [p.name for p in parameters].index("results")
    parameters[place:place] = _options()

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> int:
        return command(*arguments, **options)

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__doc__ = (command.__doc__ or "").replace("{probes}", _description())
    return wrapper


def _options() -> list[inspect.Parameter]:
    """Return a parameter for each option of a probe, None by default."""
    types = {part.name: part.type for probe in PROBES.of_models for part in probe.question.options()}
    return [
        inspect.Parameter(
            "lengths" if name == "length" else name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(Integer if kind is int and name != "length" else str, name),
        )
        for name, kind in types.items()
    ]


def _annotation(kind: Any, name: str) -> Any:
    """Return the annotation of an option that is a field `name` of some questions."""
    parts = {probe: part for probe in PROBES.of_models for part in probe.question.options() if part.name == name}
    by_default: dict[str, list[str]] = {}
    for probe, part in parts.items():
        by_default.setdefault(probe.shown_default(part), []).append(probe.name)
    if len(by_default) == 1:
        default = next(iter(by_default))
    else:
        default = "; ".join(f"{shown} for {join_names(probes)}" for shown, probes in by_default.items())
    text = next(iter(parts.values())).metadata["text"]
    return Annotated[kind | None, Parameter(help=f"{text} [default: {default}]", show_default=False)]


def _description() -> str:
    """Return a line about each probe, by chapter."""
    probes = PROBES.of_models
    parts = []
    for chapter in dict.fromkeys(probe.chapter for probe in probes):
        lines = [f"{p.name}: {p.summary[0].lower()}{p.summary[1:]}" for p in probes if p.chapter == chapter]
        parts.append("\n    ".join([f"{chapter.title}:", *lines]))
    return "\n\n    ".join(parts)
