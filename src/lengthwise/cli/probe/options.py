"""The options of `lengthwise probe`: the runs to probe, and the fields of the probes' questions."""

import inspect
from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.derived_options import option
from lengthwise.cli.options import Place, option_class, whole_numbers
from lengthwise.config import ConfigError
from lengthwise.probes import PROBES, ModelProbe
from lengthwise.values import join_names


@option_class
class Selection:
    """The runs to probe: one run or a study's runs, what they are compared with, and at which lengths."""

    against: str | None = None
    """The run to compare with: its key, or an encoding, which selects its run with the same task and seed (the next seed if the
    run itself has that encoding)."""
    study: str | None = None
    """Probe all finished runs of this study instead of one run."""
    task: str | None = None
    """Only the study's runs with this task, including its settings: addition:scratchpad=full or "Addition(scratchpad=full)"."""
    across_seeds: Annotated[bool, Parameter(negative="")] = False
    """Compare with the other encoding's run of the next seed. Runs of the same seed start from the same weights, which keeps
    their attention similar."""
    # These come from an argument and from an option that is derived from the questions.
    run: Annotated[str | None, Parameter(parse=False)] = None
    lengths: Annotated[str | None, Parameter(parse=False)] = None

    def require(self, probe: ModelProbe, place: Place) -> None:
        """Raise `ConfigError` if the selection is incomplete or contradictory for the probe."""
        if (self.run is None) == (self.study is None):
            got = "neither" if self.run is None else "both"
            raise ConfigError(
                f"probe needs either a run's key or --study NAME, got {got}; `lengthwise list runs{place.option}` "
                "shows the keys"
            )
        if self.task is not None and self.study is None:
            raise ConfigError(
                "--task selects runs of a study, but a key already names one run; omit it, or use --study"
            )
        if probe.compares and self.against is None:
            raise ConfigError(
                f"{probe.name} compares two models; add --against with a run's key, or with an encoding (--against nope) for "
                "its run with the same task and seed"
            )

    def parsed_lengths(self) -> list[int] | None:
        if self.lengths is None:
            return None
        return list(dict.fromkeys(whole_numbers(self.lengths, "--lengths", 1, "20,40,80")))


def question_options() -> list[inspect.Parameter]:
    """Return an option for each field of the questions of the probes. `lengths` stands for the length of several questions."""
    fields = {part.name: part for probe in PROBES.of_models for part in probe.question.options()}
    return [
        option(
            "lengths" if name == "length" else name,
            int | None if part.type is int and name != "length" else str | None,
            f"{part.metadata['text']} [default: {_shown_default(name)}]",
            None,
        )
        for name, part in fields.items()
    ]


def _shown_default(name: str) -> str:
    """Return the default of an option, or which probes have which default."""
    by_default: dict[str, list[str]] = {}
    for probe in PROBES.of_models:
        for part in probe.question.options():
            if part.name == name:
                by_default.setdefault(probe.shown_default(part), []).append(probe.name)
    if len(by_default) == 1:
        return next(iter(by_default))
    return "; ".join(f"{shown} for {join_names(probes)}" for shown, probes in by_default.items())


def description_of_probes() -> str:
    """Return a line about each probe, by chapter."""
    probes = PROBES.of_models
    parts = []
    for chapter in dict.fromkeys(probe.chapter for probe in probes):
        lines = [f"{p.name}: {p.summary[0].lower()}{p.summary[1:]}" for p in probes if p.chapter == chapter]
        parts.append("\n    ".join([f"{chapter.title}:", *lines]))
    return "\n\n    ".join(parts)
