"""`Tracker`: the protocol of what shows training curves and scores beside the results database."""

import hashlib
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from lengthwise.config.base import Config
from lengthwise.values import ConfigError, require_no_address

Status = Literal["finished", "failed", "stopped"]
Point = Mapping[str, float]  # of the training curve: its step, and its values by name


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is told about a run. `config`: all settings by their path, such as `training.steps`, with plain values."""

    key: str
    study: str
    label: str
    seed: int
    config: dict[str, Any]

    @property
    def id(self) -> str:
        """The identifier in every tracker. A run that two studies list is tracked once for each."""
        return f"{self.key}-{hashlib.sha256(self.study.encode()).hexdigest()[:8]}"

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration with what identifies the run."""
        return {"key": self.key, "study": self.study, "label": self.label, **self.config}


@dataclass(frozen=True, kw_only=True)
class TrackedScore:
    """A score: its `name`, such as score/accuracy, and its value at a length."""

    name: str
    length: int
    value: float

    @property
    def full_name(self) -> str:
        return f"{self.name}/{self.length}"


@dataclass(kw_only=True)
class Tracker(Config):
    """Base class of the trackers. The fields of a subclass are its settings, and their docstrings are its help.

    Its methods are called in this order in a process of their own, so they may wait, fail, print, or change the process as they
    like. `begin` may be called again for the same run, after a kill also on another machine; it must then continue the same run.
    """

    name: ClassVar[str]  # in --trackers, and of the extra that installs its library
    package: ClassVar[str]  # that it imports

    def needs_results(self) -> bool:
        """Return whether it writes into the results folder, so that this must be on this machine."""
        return getattr(self, "folder", None) is None

    def begin(self, run: TrackedRun, results: Path) -> int:
        """Begin or continue to track a run. Return the last step of the curve that need not be logged again, or 0.

        `results`: the results folder, below which files are written unless the settings name another place.
        """
        raise NotImplementedError

    def log_points(self, points: Sequence[Point]) -> None:
        """Log points of the training curve, in the order of their steps. Each step comes once."""
        raise NotImplementedError

    def log_scores(self, scores: Sequence[TrackedScore]) -> None:
        """Log scores. After a run was continued, scores that were logged before come again."""
        raise NotImplementedError

    def end(self, status: Status) -> None:
        """Finish the run in the tracker, and wait until everything is written."""
        raise NotImplementedError

    def place(self, results: Path, *parts: str) -> Path:
        """Return a folder below `folder`, or below the results folder, and create it. Raise `ValueError` for a link in the way."""
        root = Path(getattr(self, "folder", None) or results).expanduser().absolute()
        root.mkdir(parents=True, exist_ok=True)
        folder = root.joinpath(*parts)
        if folder.resolve() != root.resolve().joinpath(*parts):
            raise ValueError(f"{folder} must not contain a link below {root}; remove the link")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def require_texts(self, *names: str) -> None:
        """Raise `ConfigError` for an empty name, or for one that could not be printed."""
        for name in names:
            if (value := getattr(self, name)) is not None and not (value.strip() and value.isprintable()):
                raise ConfigError(f"{self.name}: {name} must be a printable text, got {value[:40]!r}")

    def require_folder(self) -> None:
        """Raise `ConfigError` if `folder` cannot be one on this machine."""
        folder = getattr(self, "folder", None)
        if folder is not None:
            require_no_address(f"{self.name}: folder", folder)
            self.require_texts("folder")


def require_no_links(folder: Path) -> None:
    """Raise `ValueError` for a link in the folder, because a library would write to the file that it leads to."""
    for entry in folder.iterdir():
        if entry.is_symlink():
            raise ValueError(f"{entry} must not be a link; remove it")


def delete_folders(folders: Iterable[Path]) -> None:
    """Delete folders that this package wrote earlier. Links are left alone."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)


def path_part(name: str) -> str:
    """Return a name as one part of a path. Different names have different parts, on file systems that ignore case too."""
    part = re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-")[:60]
    return (
        part if part and part == name.lower() else f"{part}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")
    )


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """Return nested settings by their path: `{"model": {"d_model": 8}}` becomes `{"model.d_model": 8}`. A list is a text."""
    if isinstance(data, Mapping):
        parts = [flat(value, f"{path}.{name}" if path else str(name)) for name, value in data.items()]
        return {name: value for part in parts for name, value in part.items()}
    return {path: data if data is None or isinstance(data, (bool, int, float, str)) else str(data)}


def score_name(metric: str, shift: Mapping[str, Any]) -> str:
    """Return the name of a score. A shift appears with its settings, in letters that every tracker accepts."""
    if not shift:
        return f"score/{metric}"
    text = " ".join(f"{name} {value}" for name, value in shift.items())
    return f"score/{metric}/{path_part(text)}"


def scores_of(rows: Iterable[Any], asked: Sequence[Mapping[str, Any]]) -> list[TrackedScore]:
    """Return the scores among stored rows that answer the questions `asked`, without those that are not numbers."""
    return [
        TrackedScore(name=score_name(row.metric, row.asked.get("shift", {})), length=row.length, value=row.mean)
        for row in rows
        if row.asked in asked and math.isfinite(row.mean)
    ]
