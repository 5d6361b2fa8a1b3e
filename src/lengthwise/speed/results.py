"""The results of a measurement, and their JSON file. Files may come from anybody, so reading is strict. Imports no torch."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

from lengthwise.config import Config, ConfigError
from lengthwise.speed.plan import Question

FORMAT = 1
MAX_CELLS = 10_000
MAX_DEPTH = 20  # of objects and lists in each other
MAX_WORD = 1_000  # characters of a text about the machine
MAX_TEXT = 20_000  # characters; enough for the label of a model with 1,000 different layers
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
        texts = (self.encoding, *self.backends, self.refusal or "", self.memory_refusal or "")
        if not self.encoding.strip() or max(map(len, texts)) > MAX_TEXT:
            raise ConfigError(f"the texts of a cell must have at most {MAX_TEXT:,} characters, and encoding at least 1")
        if len(self.forward) != len(self.training):
            raise ConfigError(
                f"{self.encoding[:60]} at length {self.length} must have a time of both kinds for each round, got "
                f"{len(self.forward)} and {len(self.training)}"
            )
        if any(not 0 < seconds < 1e9 for seconds in (*self.forward, *self.training)):
            raise ConfigError(f"{self.encoding[:60]} at length {self.length}: every time must be more than 0 seconds")
        if self.memory_bytes is not None and not 0 <= self.memory_bytes < 2**60:
            raise ConfigError(f"{self.encoding[:60]} at length {self.length}: memory_bytes must be at least 0")

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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_between(1, 2**20, "cores")
        words = (self.date, self.device, self.platform, self.python, self.matmul_library, self.commit or "")
        if len(self.versions) > 100 or max(map(len, (*words, *self.versions, *self.versions.values()))) > MAX_WORD:
            raise ConfigError(
                f"the texts of origin must have at most {MAX_WORD:,} characters, and versions 100 entries"
            )


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
        if len(by_key) < len(self.cells) or len(self.cells) > MAX_CELLS:
            raise ConfigError(f"cells must be at most {MAX_CELLS:,} and differ in encoding or length")
        for cell in self.cells:
            if cell.length not in self.question.lengths:
                raise ConfigError(f"cells have the length {cell.length}, which is not one of the question's lengths")
            baseline = by_key.get((BASELINE, cell.length))
            if cell.forward and (baseline is None or len(baseline.forward) != len(cell.forward)):
                raise ConfigError(
                    f"{cell.encoding[:60]} at length {cell.length} must have as many times as {BASELINE}, whose times they "
                    "are divided by"
                )
            if len(cell.forward) > self.question.rounds:
                raise ConfigError(f"{cell.encoding[:60]} at length {cell.length} has more times than rounds")

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
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{path} cannot be read: {reason}; name a file that lengthwise bench --output wrote"
        ) from None
    try:
        data = json.loads(content.decode(), parse_constant=_no_constant, object_pairs_hook=_distinct)
        if not isinstance(data, dict):
            raise ConfigError("the content must be an object")
        _require_flat(data)
        return Results.from_data(data)
    except RecursionError:
        reason = "it is nested too deeply"
    except ConfigError as error:
        reason = str(error)
    except ValueError as error:
        reason = f"it is not JSON ({error})"
    reason = reason if len(reason) <= 400 else f"{reason[:400]} ..."
    raise ConfigError(f"{path} is not a file of lengthwise bench: {reason}") from None


def _require_flat(data: Any) -> None:
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [v for x in level if isinstance(x, (dict, list)) for v in (x.values() if isinstance(x, dict) else x)]
    if level:
        raise ConfigError(f"objects and lists may be at most {MAX_DEPTH} deep")


def _no_constant(name: str) -> NoReturn:
    raise ConfigError(f"numbers must be finite, got {name}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ConfigError("an object has the same name twice")
    return data
