"""The origin of the numbers. Facts that all runs share are listed once."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import RunInfo, TaskFindings
from lengthwise.analysis.protocol import training_set

# Facts that the page shows elsewhere, and paths, which mean something on one machine only.
SHOWN_ELSEWHERE = ("weights", "seconds", "parameters", "peak_memory")


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Provenance:
    """Facts as text: those that all runs share, those that all runs of a task share, and the columns (`names`) of the
    rest.

    `lineage`: whether a run started from the weights of another one.
    """

    shared: Pairs
    by_task: tuple[tuple[str, Pairs], ...]
    names: tuple[str, ...]
    rows: tuple[tuple[RunInfo, tuple[str, ...]], ...]
    lineage: bool


def provenance(runs: Sequence[RunInfo]) -> Provenance:
    """Return the facts of runs. Runs without facts, such as unfinished ones, do not affect what counts as shared."""
    known = [r for r in runs if r.facts]
    names = list(dict.fromkeys(name for r in known for name in r.facts if name not in SHOWN_ELSEWHERE))
    tasks = {task: [r for r in known if r.task == task] for task in dict.fromkeys(r.task for r in known)}
    same = [n for n in names if _same(n, known)]
    by_task = {task: [n for n in names if n not in same and _same(n, rows)] for task, rows in tasks.items()}
    different = [n for n in names if n not in same and not all(n in shared for shared in by_task.values())]
    return Provenance(
        shared=_pairs(same, known),
        by_task=tuple((task, pairs) for task, shared in by_task.items() if (pairs := _pairs(shared, tasks[task]))),
        names=tuple(readable(n) for n in different),
        rows=tuple((r, tuple(value_text(r.facts.get(n)) for n in different)) for r in runs),
        lineage=any(r.parent is not None for r in runs),
    )


def _same(name: str, runs: Sequence[RunInfo]) -> bool:
    return len({value_text(r.facts.get(name)) for r in runs}) == 1


def _pairs(names: Sequence[str], runs: Sequence[RunInfo]) -> Pairs:
    return tuple((readable(n), value_text(runs[0].facts[n])) for n in names if runs[0].facts.get(n) is not None)


def megabytes(value: Any) -> str:
    """Format a number of bytes: `312 MB`."""
    return f"{value / 1e6:,.0f} MB" if isinstance(value, int) and not isinstance(value, bool) else "–"


def settings(task: TaskFindings) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return a task's settings by part: ("model", [("d model", "128"), ...])."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, value in task.settings.items():
        group, _, rest = name.partition(".")
        if name != "training.train_examples":  # shown as a sentence, below
            groups.setdefault(group if rest else "run", []).append((readable(rest or group), value_text(value)))
    if "training" in groups:
        training = {k.removeprefix("training."): v for k, v in task.settings.items() if k.startswith("training.")}
        groups["training"].append(("examples", training_set(training)))
    return [("evaluation" if group == "question" else group, items) for group, items in groups.items()]


NAMES = {
    "is": "name",
    "loop_overhead": "share of the time outside forward, backward and optimizer",
    "question": "test examples",
    "accumulation": "gradient accumulation steps",
    "mixer": "mixer instead of attention",
    "t5_scaling": "logits not divided by √head dim (t5_scaling)",
    "qk_norm": "norms of queries and keys",
    "defined_in": "file of the user's class",
}


def readable(name: str) -> str:
    """Return the name of a fact as people read it: `versions.torch` → `torch`, `corpus_sha256` → `corpus SHA-256`."""
    return (
        NAMES.get(name)
        or name.removeprefix("versions.").replace("_", " ").replace(".", " ").replace("sha256", "SHA-256").strip()
    )


def value_text(value: Any) -> str:
    """Return a fact as text. Absolute paths are shortened to their last part, since a page is sent to other people."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, list | tuple) and not any(isinstance(part, Mapping | list | tuple) for part in value):
        return ", ".join(map(value_text, value)) or "–"
    if isinstance(value, Mapping | Iterable):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def facts_table(facts: Mapping[str, Any]) -> Pairs:
    """Return facts as names and values."""
    return tuple((readable(name), value_text(value)) for name, value in facts.items())


def without_folders(text: str) -> str:
    """Shorten a path to its last part, `/home/someone/texts/novel.txt` → `…/novel.txt`; return other text unchanged."""
    if re.match(r"(/|~|[A-Za-z]:[\\/])", text) and not re.search(r"\s/", text):
        end = re.split(r"[\\/]", text.rstrip("\\/"))[-1]
        return f"…/{end}" if end else text
    return text


def seconds(value: Any) -> str:
    """Format a duration: `48 s`, `12 min 5 s`, `3 h 20 min`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        return "–"
    whole = round(value)
    if whole < 100:
        return f"{value:.1f} s" if value < 10 else f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
