"""Where the numbers come from, with what all runs share said once."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import RunInfo, TaskFindings
from lengthwise.analysis.training_set import training_set

# Facts that have a place of their own, or that mean something on one machine only.
ELSEWHERE = ("weights", "seconds", "parameters")


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Provenance:
    """Facts as text: what all runs `shared`, what the runs of a task share, and as columns (`names`) what is left."""

    shared: Pairs
    by_task: tuple[tuple[str, Pairs], ...]
    names: tuple[str, ...]
    rows: tuple[tuple[RunInfo, tuple[str, ...]], ...]


def provenance(runs: Sequence[RunInfo]) -> Provenance:
    """Where runs come from. A run that is not done says what it knows, and does not count for what is shared."""
    known = [r for r in runs if r.facts]
    names = list(dict.fromkeys(name for r in known for name in r.facts if name not in ELSEWHERE))
    tasks = {task: [r for r in known if r.task == task] for task in dict.fromkeys(r.task for r in known)}
    same = [n for n in names if _same(n, known)]
    by_task = {task: [n for n in names if n not in same and _same(n, own)] for task, own in tasks.items()}
    odd = [n for n in names if n not in same and not all(n in own for own in by_task.values())]
    return Provenance(
        shared=_pairs(same, known),
        by_task=tuple((task, pairs) for task, own in by_task.items() if (pairs := _pairs(own, tasks[task]))),
        names=tuple(readable(n) for n in odd),
        rows=tuple((r, tuple(written(r.facts.get(n)) for n in odd)) for r in runs),
    )


def _same(name: str, runs: Sequence[RunInfo]) -> bool:
    return len({written(r.facts.get(name)) for r in runs}) == 1


def _pairs(names: Sequence[str], runs: Sequence[RunInfo]) -> Pairs:
    return tuple((readable(n), written(runs[0].facts[n])) for n in names if runs[0].facts.get(n) is not None)


def settings(task: TaskFindings) -> list[tuple[str, list[tuple[str, str]]]]:
    """A task's settings by part: ("model", [("d model", "128"), ...])."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, value in task.settings.items():
        part, _, rest = name.partition(".")
        if name != "training.train_examples":  # said in words, below
            parts.setdefault(part if rest else "run", []).append((readable(rest or part), written(value)))
    if "training" in parts:
        training = {k.removeprefix("training."): v for k, v in task.settings.items() if k.startswith("training.")}
        parts["training"].append(("examples", training_set(training)))
    return list(parts.items())


def readable(name: str) -> str:
    """`versions.torch` → `torch`, `corpus_sha256` → `corpus SHA-256`."""
    return name.removeprefix("versions.").replace("_", " ").replace(".", " ").replace("sha256", "SHA-256").strip()


def written(value: Any) -> str:
    """A fact as text. Of an absolute path only the end is kept: a page goes to others."""
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
    if isinstance(value, Mapping | Iterable):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def without_folders(text: str) -> str:
    """`/home/someone/texts/novel.txt` → `…/novel.txt`; other text stays."""
    if re.match(r"(/|~|[A-Za-z]:[\\/])", text) and not re.search(r"\s/", text):
        end = re.split(r"[\\/]", text.rstrip("\\/"))[-1]
        return f"…/{end}" if end else text
    return text


def seconds(value: Any) -> str:
    """A duration: `48 s`, `12 min 5 s`, `3 h 20 min`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        return "–"
    whole = round(value)
    if whole < 100:
        return f"{value:.1f} s" if value < 10 else f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
