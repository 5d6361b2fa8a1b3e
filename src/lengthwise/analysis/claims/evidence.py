"""The rows that claims are judged by: which scores of a study a claim names, and what a store has of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.code_marks import choices_of
from lengthwise.analysis.findings import SHIFTED, Series, TaskFindings
from lengthwise.analysis.gather import findings

if TYPE_CHECKING:
    from lengthwise.store import Store

# The studies that decide claims: what follows `lengthwise run`, and the name under which the study stores its runs.
STORED_NAMES = {
    "addition/robust": "addition: robust",
    "battery/core": "battery: core",
    "battery/others": "battery: others",
    "chomsky/small": "chomsky: small",
    "coupling/small --set seeds=3": "coupling: small",
    "fire/ablations": "fire: ablations (laptop)",
    "fire/extension": "fire: context extension",
    "fire/small": "fire: language modelling (small)",
    "icfl/paper": "icfl: twelve classes of functions",
    "icfl/scale --set scale=small": "icfl: size (small)",
    "icfl/small": "icfl: small",
    "lecture/extrapolation": "lecture: extrapolation (laptop)",
    "memorization/small": "memorization: small",
    "memorization/widths": "memorization: widths",
    "nope/classic": "nope: classic tasks",
    "nope/scratchpads": "nope: scratchpads",
    "nope/small": "nope: small",
}

# The current versions of encodings and tasks, where they are not 1. Asking the classes would import PyTorch.
VERSIONS = {"DAPE": 2, "LogN": 2, "ReLUNetwork": 2, "Recall": 2}


@dataclass(frozen=True)
class Rows:
    """The scores of a study on one task.

    `study`: one of `STORED_NAMES`. `task`: the label of the task, as `lengthwise list runs` shows it.
    `settings`: those that select one of several evaluations of this task, such as `{"training.train_length": 256}`.
    `words`: what the settings mean, such as "trained on 256 bytes".
    """

    study: str
    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""

    @property
    def command(self) -> str:
        """Return the command that produces these scores."""
        return f"lengthwise run {self.study}"

    @property
    def text(self) -> str:
        """Return the task with the meaning of the settings: `Text, trained on 256 bytes`."""
        return f"{self.task}, {self.words}" if self.words else self.task

    def select(self, tasks: Sequence[TaskFindings]) -> list[TaskFindings]:
        """Return the evaluations with these settings; those that differ from training only if the settings name how."""
        return [
            task
            for task in tasks
            if task.name == self.task
            and all(task.settings.get(name) == value for name, value in self.settings.items())
            and all(name in self.settings for name in task.settings if name.startswith(SHIFTED))
        ]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The scores of one study.

    `classes`: by the title of a task, the versions of the encodings and tasks that produced its scores. `unfinished`:
    the number of runs that are not done.
    """

    tasks: tuple[TaskFindings, ...]
    classes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unfinished: int = 0

    def outdated_class(self, task: TaskFindings, series: Series) -> tuple[str, int] | None:
        """Return the name and the version of a class that has a newer version than these scores; None without one."""
        versions = self.classes.get(task.title, {})
        for name, current in VERSIONS.items():
            is_used = re.match(rf"{name}\b", task.name) or re.search(rf"\b{name}\b", series.label)
            if is_used and versions.get(name, current) < current:
                return name, versions[name]
        return None


def stored_evidence(store: "Store") -> dict[str, Evidence]:
    """Return what a store has of the studies that decide claims. Studies without runs are left out."""
    known = {row.name for row in store.studies()}
    return {study: _of_study(store, name) for study, name in STORED_NAMES.items() if name in known}


def _of_study(store: "Store", name: str) -> Evidence:
    study_findings = findings(store, name)
    versions = {run.key: class_versions(run.config) for run in store.runs(name)}
    classes: dict[str, dict[str, int]] = {}
    for task in study_findings.tasks:
        own = classes[task.title] = {}
        for key in task.keys:
            own |= versions.get(key, {})
    return Evidence(
        tasks=study_findings.tasks,
        classes=classes,
        unfinished=len(study_findings.unfinished) + len(study_findings.failed),
    )


def class_versions(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the versions of the encodings and tasks in the configuration of a run."""
    return {
        choice["is"]: version["version"]
        for choice in choices_of(dict(config))
        if isinstance(version := choice.get("class"), dict) and isinstance(version.get("version"), int)
    }
