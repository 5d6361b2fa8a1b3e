"""The protocol of measurements: a question about a model, whose answer is a table.

A measurement declares its options, its columns, its charts and its tables of numbers. Storage, the summary over
seeds, the terminal, the page, the export and the command line read only these declarations. Modules of measurements
import PyTorch only inside functions, because lists and reports need none.
"""

import dataclasses
import inspect
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.table import How, Row, Table
from lengthwise.validation import STRICT, validated
from lengthwise.values import require_known

if TYPE_CHECKING:
    from lengthwise.measurements.inside.trained import TrainedRun

SHOW = "lengthwise show KEY"  # the command that shows what `lengthwise run` stored
OnProgress = Callable[[float], None]  # receives shares of a measurement, which add up to 1
Bounds = tuple[float, float] | None


# ---- what a measurement declares ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of an answer. Keys tell rows apart, values are averaged over seeds, and notes accompany the rows.

    `text`: what charts call it; by default its name. `percent`: whether its values are shown as percentages. `whole`:
    whether its values are shown as whole numbers, such as memory; the cells of such a key are whole numbers, and at
    least 0. `bounds`: between which its values and their intervals lie; "metric": those of the task's metric. `error`:
    the column with the standard errors of its values over examples, from which a single seed gets an interval.
    `groups`: the column with the means over equal groups of prompts. `examples`: the column with the number of
    examples, on which the intervals of shares depend; a share is a score whose metric is one, or a value with other
    bounds. `weight`: the column with the weights of its means.
    """

    name: str
    text: str = ""
    unit: str = ""
    role: Literal["key", "value", "note"] = "key"
    percent: bool = False
    whole: bool = False
    bounds: Bounds | Literal["metric"] = None
    error: str = ""
    groups: str = ""
    examples: str = ""
    weight: str = ""

    def text_of(self, cell: Any) -> str:
        """Return the name of a row with this cell, such as `layer 2`, `depth 50%` or a name alone."""
        if self.percent:
            return f"{self.name} {cell:.0%}"
        return f"{self.name} {cell}" if isinstance(cell, int) else str(cell)

    @property
    def title(self) -> str:
        text = self.text or self.name.replace("_", " ")
        return f"{text} ({self.unit})" if self.unit else text


def key(name: str, text: str = "", unit: str = "", **more: Any) -> Column:
    """Return a column that tells rows apart."""
    return Column(name, text, unit, **more)


def value(name: str, text: str = "", unit: str = "", **more: Any) -> Column:
    """Return a column of numbers that are averaged over seeds."""
    return Column(name, text, unit, "value", **more)


def note(name: str, text: str = "") -> Column:
    """Return a column that accompanies the rows, such as the number of examples."""
    return Column(name, text, role="note")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of the summary, by names of columns.

    `kind`: "lines" has one line for each encoding with intervals over seeds; "curves" are small charts without
    intervals; "bars" are small bar charts. `facet`: the columns with a small chart for each value; "encoding" is one
    of them. `colour`: the column with a line or a bar for each value. `where`: the rows to show; a tuple lists
    several values. `how`: how the rows of one run are combined that differ in other columns. `seeds`: draw means
    over seeds, the first seed, or each seed, of which all but the first are pale. `steps`: a second value column,
    drawn as a line over bars. `from_zero`: whether the vertical axis of lines begins at 0. `to_scale`: whether the
    axis of lines has the distances of its numbers, as that of curves. `across`: the name of the horizontal axis, by
    default that of the column. `cut`: the axis ends at most this far from 0. `shaded`: the notes with the first of the
    places to shade, and the one after the last. `about`: the paragraph
    below. Texts may name options, notes and what `texts` returns, in braces.
    """

    kind: Literal["lines", "curves", "bars"]
    title: str
    x: str
    y: str
    colour: str = "encoding"
    facet: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    how: How = "mean"
    seeds: Literal["mean", "first", "each"] = "mean"
    steps: str = ""
    to_scale: bool = False
    from_zero: bool = True
    across: str = ""
    cut: float = math.inf
    shaded: tuple[str, str] | None = None
    about: str = ""

    @property
    def by(self) -> tuple[str, ...]:
        """Return the columns that tell the points of one run apart."""
        return tuple(name for name in (*self.facet, self.colour, self.x) if name != "encoding")


@dataclass(frozen=True, kw_only=True)
class Number:
    """Numbers of a table: one for each value of the columns `by`, whose values `head` may name in braces.

    If `y` is a note, its first text is shown.
    """

    head: str
    y: str
    by: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    how: How = "mean"


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A table with a row for each encoding, or for each encoding and value of the columns `rows`.

    `on_page_only`: whether the terminal omits it.
    """

    title: str
    numbers: tuple[Number, ...]
    rows: tuple[str, ...] = ()
    first_seed: bool = False
    on_page_only: bool = False
    about: str = ""


@dataclass(frozen=True)
class Excerpts:
    """Some of the rows that `where` selects, as texts: the columns `question` and `generated`."""

    title: str
    where: Mapping[str, Any]


# ---- options ------------------------------------------------------------------------------------------------------


def option(
    text: str, default: Any = MISSING, *, times_training: int | None = None, shown: str = "", minimum: int | None = 1
) -> Any:
    """Return a dataclass field that is an option of the command line, described by `text`.

    The default is `default`, or a multiple of the run's training length (`times_training`). `shown`: the default in
    help texts, if neither says it. `minimum`: the smallest value of a whole number.
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
class Options:
    """What is asked. It is stored with the answer. Fields with a text (`option`) are options of the command."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for member in dataclasses.fields(self):
            value = validated(getattr(self, member.name), hints[member.name], member.name)
            object.__setattr__(self, member.name, value)
            minimum = member.metadata.get("minimum")
            if type(value) is int and minimum is not None and value < minimum:
                raise ConfigError(f"{member.name} must be a whole number of at least {minimum}, got {value}")

    @property
    def about(self) -> str:
        """Return what distinguishes this question from others about the same run, for progress display."""
        return ", ".join(f"{name} {getattr(self, name)}" for name in ("length", "query") if hasattr(self, name))

    @property
    def work(self) -> float:
        """Return the cost relative to other questions of the measurement, for progress display."""
        return 1.0

    def to_data(self) -> dict[str, Any]:
        """Return what is stored. Fields that are None are omitted."""
        values = {member.name: getattr(self, member.name) for member in dataclasses.fields(self)}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items() if v is not None}

    @classmethod
    def fields(cls) -> list[Field[Any]]:
        """Return the fields that are options of the command."""
        return [member for member in dataclasses.fields(cls) if "text" in member.metadata]

    @classmethod
    def with_defaults(cls, train_length: int, **options: Any) -> Self:
        """Return the question about a run with this training length. Omitted options and None become defaults."""
        known = {member.name: member.metadata.get("times_training") for member in dataclasses.fields(cls)}
        given = {name: value for name, value in options.items() if value is not None}
        require_known(cls.__name__.removesuffix("Options"), given, list(known))
        defaults = {name: times * train_length for name, times in known.items() if times is not None}
        return cls(**defaults | given)


@dataclass(frozen=True, kw_only=True)
class ExampleOptions(Options):
    """A question about a trained model that reads test examples of one length."""

    length: int = option(LENGTH)
    examples: int = option(EXAMPLES_AT_LENGTH, 100)
    seed: int = option("Seed of the test examples.", 0, minimum=None)

    @property
    def work(self) -> float:
        return float(self.examples * self.length**2)


# ---- measurements -------------------------------------------------------------------------------------------------


class Measurement(ABC):
    """A question about a model, whose answer is a table. The docstring of its class describes it."""

    name: ClassVar[str]
    Options: ClassVar[type[Options]] = Options
    columns: ClassVar[tuple[Column, ...]]
    charts: ClassVar[tuple[Chart, ...]] = ()
    tables: ClassVar[tuple[Numbers, ...]] = ()
    """Tables of numbers. The terminal shows the first one, and those of an answer in a file that are not
    `on_page_only`.
    """
    chapter: ClassVar[str]
    """The part of the page with its section."""
    counted: ClassVar[str] = "examples"
    """What the note `n` counts."""
    series: ClassVar[str] = "encoding"
    """Of an answer in a file, the column with a line or a row for each value."""
    over_lengths: ClassVar[bool] = False
    """Whether numbers are means over all lengths, instead of having a section for each length."""
    longest_only: ClassVar[bool] = False
    """Whether the page shows the longest length alone."""
    excerpts: ClassVar[tuple[Excerpts, ...]] = ()
    in_report_table: ClassVar[bool] = False
    """Whether the report in the terminal shows the first table."""

    @property
    def documentation(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def summary(self) -> str:
        """Return the first paragraph of the documentation."""
        return self.documentation.partition("\n\n")[0].replace("\n", " ")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the options of the command with their defaults, or with texts that describe these."""
        options = self.Options.fields()
        return {p.name: p.default if type(p.default) in (int, str) else self.shown_default(p) for p in options}

    @property
    def command(self) -> str:
        """Return the command that measures or shows it."""
        return f"lengthwise probe {self.name} KEY"

    def column(self, name: str) -> Column:
        """Return a column by its name. An option is a key."""
        return next((column for column in self.columns if column.name == name), Column(name))

    def bounds(self, column: Column, question: Mapping[str, Any]) -> Bounds | Literal["metric"]:
        """Return the bounds of a column in the answers to a question."""
        return column.bounds

    def shown_default(self, member: Field[Any]) -> str:
        """Return the default of an option in help texts."""
        return str(member.metadata["shown"])

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Return the rows to show of an answer, with what follows from stored rows and facts; by default the answer."""
        return answer

    def label(self, subject: Mapping[str, Any], value: Any) -> str:
        """Return the name of the line or row of a value of the column `series`, in an answer about a subject."""
        return str(value)

    def texts(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what texts of the page may name about a question besides its options."""
        return {}

    def remarks(self, answers: Mapping[str, Table]) -> Sequence[str]:
        """Return sentences for the page about the answers of each encoding's first seed, by label."""
        return ()


class Probe(Measurement):
    """A measurement inside a trained model, or of two of them, by `lengthwise probe`."""

    compares: ClassVar[bool] = False
    """Whether it compares the run with another one, whose key is the option `against`."""
    needs_attention: ClassVar[bool] = True
    """Whether models without attention cannot be probed."""
    skips_unsupported: ClassVar[bool] = False
    """Whether runs of a study that do not support a question are skipped, instead of being an error."""
    default_lengths: ClassVar[str] = "those of the run's evaluation"
    """The default of `length` in help texts, for questions whose length has no default."""

    def shown_default(self, member: Field[Any]) -> str:
        return str(member.metadata["shown"]) or self.default_lengths

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[int | None]:
        """Return the lengths to probe by default, None for that of the question. `evaluated`: those of the study."""
        own = [member for member in self.Options.fields() if member.name == "length"]
        return evaluated if own and own[0].default is MISSING and not own[0].metadata["times_training"] else [None]

    @abstractmethod
    def require(self, run: Run, options: Any, against: Run | None) -> None:
        """Raise `ConfigError` if the run does not support the question or comparing with `against`. Builds no model."""

    @abstractmethod
    def measure(self, trained: "TrainedRun", options: Any, progress: OnProgress) -> Iterator[Row]:
        """Yield the rows of the answer, with PyTorch. `trained.against`: the run to compare with."""
