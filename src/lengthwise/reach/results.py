"""The results of a measurement, and their JSON file. Files may come from anybody, so reading is strict. Imports no torch."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lengthwise import cache_folder
from lengthwise.config import Config, ConfigError
from lengthwise.reach.plan import MAX_LENGTH, TEXT, Plan, differences
from lengthwise.reach.tasks import Chat
from lengthwise.reach.text import WindowStarts

FORMAT = 2
MAX_TEXT = 2_000  # characters of a name or a reason


@dataclass(frozen=True, kw_only=True)
class Unit(Config):
    """One finished part: a task with a method at one length and depth.

    `scores`: of each example, the mean cross-entropy of the targets (task text) or 1 for a correct answer and 0 for a wrong one.
    `cache_bytes`: the size of the KV cache, as far as it grows with the text.

    Only for the task text: `bins` are the first positions of ranges of positions, ascending. `bin_tokens` says how many tokens of
    each example were scored in each. `bin_losses` has their mean losses, all ranges of the first example first.
    """

    method: str
    task: str
    length: int
    depth: float | None = None
    scores: tuple[float, ...]
    seconds: float
    cache_bytes: int = 0
    bins: tuple[int, ...] = ()
    bin_tokens: tuple[int, ...] = ()
    bin_losses: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_between(1, MAX_LENGTH, "length")
        numbers = (*self.scores, *self.bin_losses, self.seconds, self.depth or 0.0)
        if not self.scores or not all(math.isfinite(number) for number in numbers):
            raise ConfigError("a unit must have at least one score, and its numbers must be finite")
        if self.task != TEXT and not set(self.scores) <= {0.0, 1.0}:
            raise ConfigError(f"the scores of the task {self.task[:40]!r} must be 0 or 1")
        if list(self.bins) != sorted(set(self.bins)) or any(not 0 <= start < self.length for start in self.bins):
            raise ConfigError(f"bins must be ascending positions below the length of {self.length:,}")
        expected = len(self.bins) * len(self.scores)
        if len(self.bin_losses) != expected or len(self.bin_tokens) != len(self.bins):
            raise ConfigError(f"a unit with {len(self.bins)} bins must have {expected} bin_losses")

    @property
    def key(self) -> tuple[str, str, int, float | None]:
        return self.method, self.task, self.length, self.depth


@dataclass(frozen=True, kw_only=True)
class Skipped(Config):
    """A length that a method did not reach on this machine, with the reason."""

    method: str
    length: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class ModelRecord(Config):
    """The measured model. `claimed`: the length of its configuration. `original`: that before its positions were scaled."""

    name: str
    architecture: str
    parameters: int
    encoding: str
    claimed: int | None = None
    original: int | None = None
    sha256: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ProgramFlags(Config):
    """The flags with which another program computes a method in the same model. `reason`: why there are none."""

    method: str
    program: str
    flags: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Results(Config):
    """A measurement: its plan, the model, the machine (`origin`), the finished units, and what was not reached.

    `windows`: those of the text, one for each example. `chat`: the format of retrieval prompts. `flags`: those of other programs.
    """

    format: int = FORMAT
    plan: Plan
    model: ModelRecord
    origin: dict[str, str]
    windows: WindowStarts | None = None
    chat: Chat | None = None
    flags: tuple[ProgramFlags, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    units: tuple[Unit, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format != FORMAT:
            raise ConfigError(
                f"format must be {FORMAT}, got {self.format}; measure again with this version of lengthwise"
            )
        texts = (self.model.name, self.model.architecture, self.model.encoding, *self.plan.methods)
        if max(map(len, (*texts, *self.origin.values(), *(skip.reason for skip in self.skipped)))) > MAX_TEXT:
            raise ConfigError(f"the texts of a file must have at most {MAX_TEXT:,} characters")
        if len({unit.key for unit in self.units}) < len(self.units):
            raise ConfigError("units must differ in method, task, length or depth")
        if len({len(unit.scores) for unit in self.units}) > 1:
            raise ConfigError("all units must have the same number of scores, because all have the same examples")
        allowed = {(*unit, length) for length in self.plan.lengths for unit in self.plan.units(length)}
        for unit in self.units:
            if (unit.method, unit.task, unit.depth, unit.length) not in allowed:
                raise ConfigError(f"the unit {str(unit.key)[:200]} is not part of the plan")

    def find(self, method: str, task: str, length: int) -> list[Unit]:
        """Return the finished units of a task at a length, one for each depth."""
        return [unit for unit in self.units if (unit.method, unit.task, unit.length) == (method, task, length)]

    def require_units(self, problem: str, fix: str) -> None:
        """Raise `ConfigError` with the reasons if nothing was measured. `fix`: unless a reason has one itself."""
        reasons = "; ".join(dict.fromkeys(skip.reason for skip in self.skipped))
        if not self.units:
            raise ConfigError(
                f"{problem}: {reasons}"
                if any(";" in skip.reason for skip in self.skipped)
                else f"{problem}: {reasons}; {fix}"
            )


def write(path: Path, results: Results) -> None:
    """Write the file atomically: one line for each unit."""
    cache_folder.write(path, results.to_json("units").encode())


def read(path: Path) -> Results:
    """Return the results in a file. Raises `ConfigError` if it is not a file that `lengthwise reach` wrote."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{path} cannot be read: {reason}; name a file that lengthwise reach --output wrote"
        ) from None
    try:
        return Results.from_data(json.loads(content.decode(), parse_constant=_no_constant))
    except RecursionError:
        reason = "it is nested too deeply"
    except ConfigError as error:
        reason = str(error)
    except ValueError as error:
        reason = f"it is not JSON ({error})"
    reason = reason if len(reason) <= 400 else f"{reason[:400]} ..."
    raise ConfigError(f"{path} is not a file of lengthwise reach: {reason}") from None


def _no_constant(name: str) -> NoReturn:
    raise ConfigError(f"numbers must be finite, got {name}")


def require_same(path: Path, old: Results, plan: Plan, model: ModelRecord) -> None:
    """Raise `ConfigError` unless the file's results are of this plan and this model."""
    found = differences(old.plan.options(), plan.options())
    if old.model.sha256 != model.sha256:
        found.insert(0, f"another model ({old.model.name[:60]})")
    if found:
        raise ConfigError(
            f"{path} has results of another measurement: {'; '.join(found)}; name another --output, or delete the file"
        )
