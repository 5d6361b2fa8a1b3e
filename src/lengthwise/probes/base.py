"""The protocol of probes: a question with its options, what is stored of its answer, the summary over runs, and the page's section.

The folder of a probe contains:

    __init__.py        the question, which has the options with their defaults and checks, and the class
    measure.py         `require` and `measure`; of a probe's modules, only this one and what it imports may import PyTorch
    summary.py         `summarize`: stored rows to means and intervals
    section.py         `section`: a summary to what the page shows, drawn by section.html.j2

The methods of the class import these modules when they are called, because only some of them need PyTorch, the store or the report.
"""

import dataclasses
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lengthwise.config import ConfigError, Run

if TYPE_CHECKING:
    from rich.table import Table

    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.measuring.trained_run import TrainedRun
    from lengthwise.report.palette import Look
    from lengthwise.store.rows import ProbeRow, RunRow

OnProgress = Callable[[float], None] | None  # receives numbers of finished examples, see `RunQuestion.reports`


# ---- questions ----------------------------------------------------------------------------------------------------


def option(
    text: str, default: Any = MISSING, *, times_training: int | None = None, shown: str = "", minimum: int | None = 1
) -> Any:
    """Return a dataclass field that is an option of `lengthwise probe`, described by `text`.

    The default is `default`, or a multiple of the run's training length (`times_training`). `shown`: the default in help texts, if
    neither says it. `minimum`: the smallest value of a whole number.
    """
    if not shown and times_training is not None:
        shown = "the training length" if times_training == 1 else f"{times_training}x the training length"
    elif not shown and default is not MISSING:
        shown = str(default)
    metadata = {"text": text, "shown": shown, "minimum": minimum, "times_training": times_training}
    return field(default=default, metadata=metadata)


LENGTH = "Lengths to probe, comma-separated."
EXAMPLES_AT_LENGTH = "Test examples at each length."


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a probe is asked: its options, which are stored with the answer."""

    probe: ClassVar[str]

    def to_data(self) -> dict[str, Any]:
        """Return the question as it is stored. Fields that are None are omitted."""
        values = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"probe": self.probe} | {name: value for name, value in data.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RunQuestion(Question):
    """A question about a trained model. Its fields that have a text (`option`) are options of `lengthwise probe`."""

    def __post_init__(self) -> None:
        for part in self.options():
            value, minimum = getattr(self, part.name), part.metadata["minimum"]
            if part.type is int and minimum is not None and (type(value) is not int or value < minimum):
                raise ConfigError(f"{part.name} must be a whole number of at least {minimum}, got {value!r}")

    @property
    def about(self) -> str:
        """Return what distinguishes this question from others about the same run, for progress display."""
        return self.probe

    @property
    def work(self) -> float:
        """Return the cost relative to other questions of the probe, for progress display."""
        return 1.0

    @property
    def reports(self) -> int:
        """Return the sum of the numbers that `on_progress` receives."""
        return 1

    @classmethod
    def options(cls) -> list[Field[Any]]:
        """Return the fields that are options of `lengthwise probe`."""
        return [part for part in dataclasses.fields(cls) if "text" in part.metadata]

    @classmethod
    def with_defaults(cls, train_length: int, **options: Any) -> Self:
        """Return the question about a run with this training length. Options that are omitted or None have their defaults."""
        known = [part.name for part in dataclasses.fields(cls)]
        values = {name: value for name, value in options.items() if value is not None}
        if unknown := [name for name in values if name not in known]:
            raise ConfigError(f"{cls.probe} has no setting {unknown[0]!r}; its settings are: {', '.join(known)}")
        multiples = {part.name: part.metadata.get("times_training") for part in dataclasses.fields(cls)}
        defaults = {name: times * train_length for name, times in multiples.items() if times is not None}
        return cls(**defaults | values)


@dataclass(frozen=True, kw_only=True)
class ModelQuestion(RunQuestion):
    """A question about a trained model that reads test examples of one length."""

    length: int = option(LENGTH)
    examples: int = option(EXAMPLES_AT_LENGTH, 100)
    seed: int = option("Seed of the test examples.", 0, minimum=None)

    @property
    def about(self) -> str:
        return f"length {self.length}"

    @property
    def work(self) -> float:
        return float(self.examples * self.length**2)

    @property
    def reports(self) -> int:
        return self.examples


# ---- probes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chapter:
    """A part of the page that shows one or more probes. `css`: its class. `described`: what screen readers call it.

    `legend`: whether it begins with one legend for all its probes.
    """

    title: str
    css: str
    described: str
    legend: bool = False


ATTENTION = Chapter("Attention", "attention", "attention")
SHIFT = Chapter("Shifted positions", "positions", "scores at shifted positions", legend=True)
DEVELOPMENT = Chapter("During training", "development", "numbers during training", legend=True)
IN_CONTEXT = Chapter("Learning in context", "in-context", "learning in context", legend=True)
EXAMPLES = Chapter("Lengths of examples", "examples", "lengths of its examples")


@dataclass(frozen=True, kw_only=True)
class StoredAnswers:
    """The stored answers of one probe about the runs of one task.

    `labels`: the label of each of these runs, by key. `runs`: these runs and those that they are compared with, by key. `bounds`:
    the limits of the task's metric.
    """

    rows: Sequence["ProbeRow"]
    labels: Mapping[str, str]
    runs: Mapping[str, "RunRow"]
    bounds: tuple[float, float] | None = None


class Probe:
    """A measurement of runs that is stored with them and shown on the page. The docstring of its class describes it."""

    question: ClassVar[type[Question]]
    chapter: ClassVar[Chapter]

    @property
    def name(self) -> str:
        """Return the name in commands and in the store."""
        return self.question.probe

    @property
    def documentation(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def summary(self) -> str:
        """Return the first paragraph of the documentation."""
        return self.documentation.partition("\n\n")[0].replace("\n", " ")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the options of `lengthwise probe` with their defaults, or with texts that describe these."""
        return {}

    @property
    def command(self) -> str:
        """Return the command that applies it to a run."""
        return f"lengthwise probe {self.name} KEY"

    @classmethod
    def folder(cls) -> str:
        """Return the package with the probe's modules. A family of probes has one for all of them."""
        return cls.__module__

    @classmethod
    def file(cls, name: str) -> Path:
        """Return the path of a file in the probe's folder."""
        return Path(str(sys.modules[cls.folder()].__file__)).with_name(name)

    @classmethod
    def module(cls, name: str) -> ModuleType:
        """Import a module of the probe's folder."""
        return import_module(f"{cls.folder()}.{name}")

    def summarize(self, answers: StoredAnswers) -> Sequence[Any]:
        """Return the summaries of the stored answers, one for each group of answers that may be compared. Dataclasses."""
        return self.module("summary").summarize(answers)

    def section(self, summary: Any, task: "TaskFindings", looks: "Mapping[str, Look]") -> dict[str, Any]:
        """Return the template's data for one summary. The template also has the summary itself as `group`."""
        return self.module("section").section(summary, task, looks)

    def labels(self, summary: Any) -> list[str]:
        """Return the labels of the encodings in a summary, for the legend of a chapter."""
        return [series.label for series in summary.series]

    def report_table(self, summary: Any, task: "TaskFindings") -> "Table | None":
        """Return a table for the report in the terminal, or None."""
        return None

    def stored_note(self, key: str, rows: "Sequence[ProbeRow]") -> str:
        """Return what `lengthwise show` says about the stored rows of a run."""
        return stored_note(self.name, key, rows)


@dataclass(frozen=True)
class Column:
    """A column of the table of `lengthwise probe`. `wrap`: whether long cells continue in the next line."""

    header: str
    is_text: bool = False
    wrap: bool = True


class ModelProbe(Probe, ABC):
    """A measurement of a trained model, or of two of them, by `lengthwise probe`."""

    question: ClassVar[type[RunQuestion]]
    columns: ClassVar[tuple[Column, ...]]
    compares: ClassVar[bool] = False
    """Whether it compares the run with another one, whose key is the question's `against`."""
    needs_attention: ClassVar[bool] = True
    """Whether models without attention cannot be probed."""
    skips_unsupported: ClassVar[bool] = False
    """Whether runs of a study that do not support a question are skipped, instead of being an error."""
    counted: ClassVar[str] = "examples"
    """What the number of examples counts, in the header of a column."""
    default_lengths: ClassVar[str] = "those of the run's evaluation"
    """The default of `length` in help texts, for questions whose length has no default."""

    @property
    def reads_examples(self) -> bool:
        """Whether its question has a length and a number of examples."""
        return issubclass(self.question, ModelQuestion)

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[int | None]:
        """Return the lengths to probe by default; None is the default of the question. `evaluated`: those of the run's study."""
        return evaluated if self.reads_examples else [None]

    @property
    def settings(self) -> dict[str, Any]:
        parts = self.question.options()
        texts = [p.name for p in parts if p.default is MISSING or isinstance(p.default, tuple)]
        return {p.name: self.shown_default(p) if p.name in texts else p.default for p in parts}

    def shown_default(self, part: Field[Any]) -> str:
        """Return the default of an option in help texts."""
        shown: str = part.metadata["shown"]
        return shown or self.default_lengths

    def require(self, run: Run, questions: Sequence[Any], against: Run | None) -> None:
        """Raise `ConfigError` if the run does not support a question, or cannot be compared with `against`. Builds no model."""
        self.module("measure").require(run, questions, against)

    def measure(
        self, trained: "TrainedRun", question: Any, against: "TrainedRun | None", on_progress: OnProgress = None
    ) -> dict[str, Any]:
        """Return the result as plain data, with the number of examples (`n`) if it reads any."""
        runs = [trained] if against is None else [trained, against]
        return self.module("measure").measure(*runs, question, on_progress)

    @abstractmethod
    def cells(self, result: Mapping[str, Any]) -> Sequence[float | str | None]:
        """Return the cells of a result for `columns`. Numbers are printed with three digits."""


def stored_note(name: str, key: str, rows: "Sequence[ProbeRow]") -> str:
    """Return how many results of a probe are stored, and the command that shows them."""
    lengths = sorted({row.asked["length"] for row in rows if "length" in row.asked})
    option = f" --lengths {','.join(map(str, lengths))}" if lengths else ""
    return (
        f"{name}: {len(rows)} stored result{'s' if len(rows) > 1 else ''}; `lengthwise probe {name} {key}{option} ...` "
        "shows them"
    )
