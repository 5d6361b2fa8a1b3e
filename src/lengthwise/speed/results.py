"""The results of a measurement, and their JSON file. Imports no torch."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lengthwise.config import Config, ConfigError
from lengthwise.speed.plan import Question

FORMAT = 1
BASELINE = "NoPE"

Kind = Literal["forward", "training"]
KINDS: tuple[Kind, ...] = ("forward", "training")
KIND_NAMES: Mapping[Kind, str] = {"forward": "forward pass", "training": "training step"}
ClockName = Literal["CPU time", "wall time", "CUDA events"]


@dataclass(frozen=True, kw_only=True)
class Cell(Config):
    """One encoding at one length. `forward` and `training` are seconds, one for each round, in the order of the rounds.

    `refusal`: why there are no times. `memory_bytes`: see `speed.memory`; `memory_refusal`: why there is none. `settings`: the
    encoding with all its settings. `backends`: the attention backends that were used.
    """

    encoding: str
    length: int
    batch: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    backends: tuple[str, ...] = ()
    forward: tuple[float, ...] = ()
    training: tuple[float, ...] = ()
    refusal: str | None = None
    memory_bytes: int | None = None
    memory_refusal: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("length", "batch")
        if len(self.forward) != len(self.training):
            raise ConfigError(
                f"{self.encoding} at length {self.length} must have a time of both kinds for each round, got "
                f"{len(self.forward)} and {len(self.training)}"
            )
        if any(seconds <= 0 for seconds in (*self.forward, *self.training)):
            raise ConfigError(f"{self.encoding} at length {self.length}: every time must be more than 0 seconds")

    def times(self, kind: Kind) -> tuple[float, ...]:
        return self.forward if kind == "forward" else self.training


@dataclass(frozen=True, kw_only=True)
class Origin(Config):
    """The machine, the software and the command. `device` has the name of the model: "cpu (AMD EPYC 7763)"."""

    command: str
    date: str
    device: str
    cores: int
    platform: str
    python: str
    versions: dict[str, str]
    matmul_library: str
    clock: ClockName
    commit: str | None = None
    uncommitted_changes: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Results(Config):
    """A measurement. `complete`: false if it was interrupted; then some rounds or lengths are missing."""

    format: int = FORMAT
    question: Question
    origin: Origin
    complete: bool = True
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format != FORMAT:
            raise ConfigError(
                f"format must be {FORMAT}, got {self.format}; measure again with this version of lengthwise"
            )
        by_key = self._by_key
        if len(by_key) < len(self.cells):
            raise ConfigError("cells must differ in encoding or length")
        for cell in self.cells:
            baseline = by_key.get((BASELINE, cell.length))
            if cell.forward and (baseline is None or len(baseline.forward) != len(cell.forward)):
                raise ConfigError(
                    f"{cell.encoding} at length {cell.length} must have as many times as {BASELINE}, whose times they "
                    "are divided by"
                )
            if len(cell.forward) > self.question.rounds:
                raise ConfigError(f"{cell.encoding} at length {cell.length} has more times than rounds")

    @property
    def encodings(self) -> list[str]:
        """The labels of the encodings, NoPE first."""
        return list(dict.fromkeys(cell.encoding for cell in self.cells))

    @property
    def lengths(self) -> list[int]:
        """The lengths that have a cell."""
        return list(dict.fromkeys(cell.length for cell in self.cells))

    @cached_property
    def _by_key(self) -> dict[tuple[str, int], Cell]:
        return {(cell.encoding, cell.length): cell for cell in self.cells}

    def cell(self, encoding: str, length: int) -> Cell | None:
        return self._by_key.get((encoding, length))

    def unmeasured(self) -> dict[str, str]:
        """Return why encodings have no time at any length, by label."""
        reasons: dict[str, str] = {}
        for cell in self.cells:
            reasons.setdefault(cell.encoding, cell.refusal or "not measured")
        measured = {cell.encoding for cell in self.cells if cell.forward}
        return {label: reason for label, reason in reasons.items() if label not in measured}

    def ratios(self, cell: Cell, kind: Kind) -> list[float]:
        """Return the time of each round divided by that of NoPE in the same round."""
        baseline = self.cell(BASELINE, cell.length)
        if baseline is None or not cell.times(kind):
            return []
        return [own / other for own, other in zip(cell.times(kind), baseline.times(kind), strict=True)]


def read(path: Path) -> Results:
    """Return the results in a file. Raise `ConfigError` if it is not a file that `lengthwise bench --output` writes."""
    return Results.read(path, "lengthwise bench --output")
