"""The retention report: every model before and after, at the training length and beyond. Imports no torch.

Files may come from anybody, so reading is strict. The difference of a cross-entropy is paired: the same targets of the same texts,
before and after. Its 95 % interval is a bootstrap over the texts.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise import cache_folder
from lengthwise.analysis.numbers import figure
from lengthwise.config import Config, ConfigError
from lengthwise.extend.plan import Plan
from lengthwise.reach.page import render
from lengthwise.reach.plan import OWN, TEXT
from lengthwise.reach.results import ProgramFlags, Results
from lengthwise.reach.summary import over_texts

FORMAT = 1
JSON_FILE, PAGE = "retention.json", "retention.html"


@dataclass(frozen=True, kw_only=True)
class Built(Config):
    """How a model came about.

    `folder`: the model's folder below that of the report; "" if it is the same. `form`: native if transformers itself computes the
    encoding, or lengthwise, with the reason if transformers has the settings and computes something else. `seconds`: of applying
    the method and of the training. `peak_bytes`: the largest memory in use (see `training.memory.PeakMemory`); None if the system
    does not tell. `losses`: mean training losses up to `loss_steps`.
    """

    method: str
    folder: str
    form: str
    seconds: float
    peak_bytes: int | None = None
    loss_steps: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change(Config):
    """Mean cross-entropies at a length, and the paired difference, in nats per token; `low` and `high` are None for one text."""

    length: int
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    n: int

    @property
    def text(self) -> str:
        """The difference with its interval: `+0.021 (+0.015 … +0.027)`."""
        ends = "" if self.low is None or self.high is None else f" ({signed(self.low)} … {signed(self.high)})"
        return f"{signed(self.difference)}{ends}"


@dataclass(frozen=True, kw_only=True)
class Extended(Config):
    """A model with a method, its measurement, and the changes against the original model at each length that both reached."""

    built: Built
    after: Results
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Report(Config):
    """The content of retention.json. `original`: the training length before positions were scaled.

    `flags`: of other programs, for the methods without training.
    """

    format: int = FORMAT
    plan: Plan
    original: int
    before: Results
    models: tuple[Extended, ...]
    flags: tuple[ProgramFlags, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format != FORMAT:
            raise ConfigError(
                f"format must be {FORMAT}, got {self.format}; extend again with this version of lengthwise"
            )


def extended(before: Results, after: Results, built: Built) -> Extended:
    """Return the changes from one measurement to another one of the same texts."""
    found = []
    for length in before.plan.lengths:
        old, new = (results.find(OWN, TEXT, length) for results in (before, after))
        if not old or not new:
            continue
        differences = [y - x for x, y in zip(old[0].scores, new[0].scores, strict=True)]
        interval = over_texts(differences)
        known = interval.basis != "none" and math.isfinite(interval.low)
        found.append(
            Change(
                length=length,
                before=math.fsum(old[0].scores) / len(differences),
                after=math.fsum(new[0].scores) / len(differences),
                difference=interval.mean,
                low=interval.low if known else None,
                high=interval.high if known else None,
                n=len(differences),
            )
        )
    return Extended(built=built, after=after, changes=tuple(found))


def signed(value: float) -> str:
    """Return a number with its sign, which a plain 0 does not have: `+0.021`, `−1.2`."""
    text = figure(abs(value))
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def rows(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table: lengths, the cross-entropy before, and the change by each method."""
    heads = ["length", "before", *(model.built.method for model in report.models)]
    cells = []
    for length in report.plan.lengths:
        units = report.before.find(OWN, TEXT, length)
        before = figure(math.fsum(units[0].scores) / len(units[0].scores)) if units else "–"
        changes = [next((c.text for c in model.changes if c.length == length), "–") for model in report.models]
        cells.append([f"{length:,}", before, *changes])
    return heads, cells


def at_training_length(report: Report) -> str:
    """Return in one line what each method lost at the longest measured length that the model was trained with."""
    lengths = [length for length in report.plan.lengths if length <= report.original]
    if not lengths:
        return f"Nothing was measured up to the training length of {report.original:,} tokens."
    parts = []
    for model in report.models:
        change = next((change for change in model.changes if change.length == lengths[-1]), None)
        parts.append(f"{model.built.method} {'was not measured' if change is None else change.text}")
    where = f"{lengths[-1]:,} tokens (training length {report.original:,})"
    return f"Lost at {where}, in nats per token, where less than 0 is a gain: {'; '.join(parts)}."


def costs(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of times, memory and folders."""
    cells = []
    for model in report.models:
        built = model.built
        peak = "–" if built.peak_bytes is None else f"{built.peak_bytes / 2**30:.2f}"
        cells.append([built.method, built.form, f"{built.seconds:.1f}", peak, built.folder or "this folder"])
    return ["method", "form", "seconds to apply and train", "largest memory (GiB)", "folder"], cells


def write(folder: Path, report: Report) -> None:
    """Write retention.json and retention.html."""
    data = json.dumps(report.to_data(), indent=1, allow_nan=False)
    heads, cells = rows(report)
    caption = (
        "Cross-entropy before in nats per token, and paired differences after (95 % interval; more than 0 is a loss)"
    )
    settings = [[name, _text(name, value)] for name, value in report.plan.options().items()]
    page = render(
        [report.before, *(model.after for model in report.models)],
        "What was lost, and what was gained?",
        [at_training_length(report)],
        [(caption, heads, cells), ("What it took", *costs(report)), ("Settings", ["option", "value"], settings)],
        report.before,
        report.flags,
    )
    cache_folder.write(folder / PAGE, page)
    cache_folder.write(folder / JSON_FILE, f"{data}\n".encode())


def _text(name: str, value: Any) -> str:
    if name in ("--text", "--tune"):
        return f"SHA-256 {value}"
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def read(path: Path) -> Report:
    """Return the report in a file. Raises `ConfigError` if it is not a file that `lengthwise extend` wrote."""
    try:
        return Report.from_data(json.loads(path.read_bytes().decode()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; name a retention.json") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a report of lengthwise extend: {str(error)[:400]}") from None
