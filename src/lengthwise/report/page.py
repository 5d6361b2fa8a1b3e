"""Findings → one HTML file that needs nothing else: style, script, charts and numbers are inside."""

import base64
import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lengthwise
from lengthwise.analysis import Baseline, Findings, Kind, Point, SeedScore, TaskFindings, Ties
from lengthwise.analysis.findings import LEARNED
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.analysis.reading import FLOOR_WORDS, MARGIN, remark
from lengthwise.report import bundle, palette, provenance
from lengthwise.report.attention import attention
from lengthwise.report.chart import axis_words, describe, first, ranges, spec
from lengthwise.report.examples import examples
from lengthwise.report.generated_answers import generated_answers
from lengthwise.report.in_context import in_context
from lengthwise.report.summary import summary
from lengthwise.store.workers import is_dead, worker_name
from lengthwise.values import listing, require_no_address

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent


class ReportError(ValueError):
    """A page that cannot be written. One line: where, why, and what to do."""


def render(findings: Findings, ties: Ties = "average") -> str:
    """The page. The same findings give the same text, byte for byte. `ties`: of equal scores, see `ranking`."""
    looks = palette.looks(findings.labels)
    tasks = [_task(task, number, looks) for number, task in enumerate(findings.tasks)]
    has_chart = any(t["chart"] for t in tasks)
    data = {"tasks": [t.pop("data") for t in tasks if t["chart"]]}
    scripts = [bundle.script(), _file("page.js")] if has_chart else [_file("page.js")]
    return _template().render(
        f=findings,
        tasks=tasks,
        title=findings.title,
        version=lengthwise.__version__,
        when=_when(findings.finished),
        style=_style(),
        policy=_policy(scripts),
        scripts=scripts,
        data=_json(data),
        summary=summary(findings, looks, ties),
        provenance=provenance.provenance(findings.runs),
        seconds=provenance.seconds,
        written=provenance.written,
        seeds=_seeds(findings),
        baselines=any(t.baselines for t in findings.tasks),
        prompts=any(s.groups for t in findings.tasks for series in t.series for p in series.points for s in p.seeds),
        margin=MARGIN,
        learned=LEARNED,
        floor_words=FLOOR_WORDS,
        listing=listing,
    )


def write(findings: Findings, path: str | os.PathLike[str], ties: Ties = "average") -> Path:
    """Render to `path`, all or nothing: who has the old page open never sees half a one. `ReportError` where it cannot."""
    require_no_address("the page", path)
    target = Path(path)
    _remove_stale_drafts(target.parent)
    text = render(findings, ties)
    # A long name of the page leaves no room for more, and a draft says who is at it.
    draft = target.parent / f".report-{worker_name().replace(':', '~')}.draft"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # A file name need not be text: its odd bytes are written as \udcff.
        with open(draft, "x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
        os.replace(draft, target)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise ReportError(
            f"the report cannot be written to {target} ({told}); make room or give another file; the results are kept"
        ) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            draft.unlink()
    return target


def _remove_stale_drafts(folder: Path) -> None:
    """Remove what reports left that were killed while they were written."""
    with contextlib.suppress(OSError):
        for draft in folder.glob(".report-*.draft"):
            writer = draft.name.removeprefix(".report-").removesuffix(".draft").replace("~", ":")
            if is_dead(writer, time.time() - draft.lstat().st_mtime):
                draft.unlink()


# ---- parts of the page ------------------------------------------------------------------------------------------


def _task(task: TaskFindings, number: int, looks: dict[str, palette.Look]) -> dict[str, Any]:
    drawn = any(math.isfinite(p.mean) for s in task.series for p in s.points)
    longest = max(task.lengths)
    lines = [
        {
            "label": series.label,
            "remark": remark(task, series),
            "look": looks[series.label],
            "cells": [_cell(task, series.at(length), length) for length in task.lengths],
        }
        for series in task.ranked(longest)
    ]
    groups = _groups(task)
    heads = [
        {
            "text": f"{n:,}",
            "times": times(n / task.train_length),
            "new": group["new"],
            "first": group["first"] and n == group["lengths"][0],
        }
        for group in groups
        for n in group["lengths"]
    ]
    return {
        "task": task,
        "number": number,
        "chart": drawn,
        "ranges": [r.name for r in ranges(task)] if drawn else [],
        "axis": axis_words(ranges(task), bool(task.baselines)) if drawn else "",
        "described": describe(task) if drawn else "",
        "first": first(ranges(task)),
        "not_finite": [
            f"{s.label} at {p.length:,}" for s in task.series for p in s.points if not math.isfinite(p.mean)
        ],
        "lines": lines,
        "baselines": [_baseline_line(task, baseline) for baseline in task.baselines],
        "legend": [
            {"id": f"s{n}", "label": s.label, "look": looks[s.label], "empty": not s.points}
            for n, s in enumerate(task.series)
        ],
        "heads": heads,
        "groups": groups,
        "shorter": [f"{n:,}" for n in task.of_kind("shorter")],
        "asked": _asked(task),
        "settings": provenance.settings(task),
        "one_seed": any(p.n_seeds == 1 for s in task.series for p in s.points),
        "data": _data(task, looks) if drawn else None,
        "attention": attention(task, looks),
        "in_context": in_context(task, looks),
        "generated_answers": generated_answers(task, looks),
        "examples": examples(task),
    }


def _groups(task: TaskFindings) -> list[dict[str, Any]]:
    """The lengths of the table by kind, in their order. A rule parts a group from the one before; `new` ones are shaded."""
    heads: dict[Kind, str] = {
        "shorter": "shorter than trained",
        "trained": "trained lengths" if task.shifted else "in distribution",
        "longer": "never trained",
    }
    found = [(kind, head, task.of_kind(kind)) for kind, head in heads.items()]
    return [
        {
            "text": head,
            "lengths": own,
            "span": len(own),
            "new": kind == "longer",
            "first": kind == "longer" or own[0] > task.lengths[0],
        }
        for kind, head, own in found
        if own
    ]


def _data(task: TaskFindings, looks: dict[str, palette.Look]) -> dict[str, Any]:
    """What the page's script needs for one chart: the spec and the tooltip's texts."""
    return {
        "spec": spec(task, looks),
        "unit": task.unit,
        "better": task.better,
        "baselines": [
            {"label": b.label, "kind": b.kind, "points": {str(n): figure(value) for n, value in b.scores.items()}}
            for b in task.baselines
        ],
        "lengths": [{"length": n, "text": f"{n:,} {task.unit}", "times": _relation(task, n)} for n in task.lengths],
        "series": [
            {
                "id": f"s{n}",
                "label": s.label,
                "points": {str(p.length): _tip(p) for p in s.points},
            }
            for n, s in enumerate(task.series)
        ],
    }


def _tip(point: Point) -> dict[str, Any]:
    return {
        "y": point.mean if math.isfinite(point.mean) else None,
        "mean": figure(point.mean),
        "interval": _interval(point),
        "n": _count(point),
    }


def _cell(task: TaskFindings, point: Point | None, length: int) -> dict[str, Any]:
    if point is None:
        return {"mean": "–", "spread": "", "sort": "", "kind": "empty", "title": "no score yet"}
    best = task.best(length)
    kind = ""
    if best is not None and math.isfinite(point.mean):
        if figure(point.mean) == figure(best.mean):
            kind = "best"
        elif not point.interval.apart(best.interval):
            kind = "near"
    by_seed = ", ".join(f"seed {s.seed}: {figure(s.mean)}" for s in point.seeds)
    return {
        "mean": figure(point.mean),
        "spread": spread(point.interval),
        "sort": repr(point.mean) if math.isfinite(point.mean) else "",
        "kind": kind,
        "title": "; ".join(filter(None, [_interval(point), _count(point), by_seed])),
    }


def _baseline_line(task: TaskFindings, baseline: Baseline) -> dict[str, Any]:
    """A row of the table; a baseline has no interval of its own, for it was trained with no seed."""
    values = [baseline.scores.get(n) for n in task.lengths]
    cells = ["–" if value is None else figure(value) for value in values]
    return {"label": baseline.label, "kind": baseline.kind, "cells": cells}


def _interval(point: Point) -> str:
    i = point.interval
    if i.basis == "none":
        return "no interval"
    return f"{figure(i.low)} … {figure(i.high)}" + (" over examples" if i.basis == "examples" else "")


def _count(point: Point) -> str:
    seeds = "1 seed" if point.n_seeds == 1 else f"{point.n_seeds} seeds"
    things = _things(point.seeds)
    each = {s.n for s in point.seeds}
    if len(each) == 1:
        return f"{seeds} × {each.pop():,} {things}"
    return f"{seeds}, {point.n_examples:,} {things}"


def _relation(task: TaskFindings, length: int) -> str:
    ratio = f"{times(length / task.train_length)} the trained length"
    if task.is_new(length):
        return f"{ratio}, never trained"
    if task.kind(length) == "shorter":
        return f"{ratio}, shorter than any in training"
    return "the trained length" if length == task.train_length else ratio


def _asked(task: TaskFindings) -> str:
    """How many examples a score rests on, in words."""
    scores = [s for series in task.series for p in series.points for s in p.seeds]
    if not scores:
        return ""
    low, high = min(s.n for s in scores), max(s.n for s in scores)
    return f"{low:,} {_things(scores)}" if low == high else f"{low:,} to {high:,} {_things(scores)}"


def _things(scores: Iterable[SeedScore]) -> str:
    """What scores are means over. Where they were kept in groups, an example is something within each."""
    return "prompts" if all(s.groups for s in scores) else "examples"


def _seeds(findings: Findings) -> str:
    counts = {p.n_seeds for t in findings.tasks for s in t.series for p in s.points}
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} seed{'s' if low != 1 else ''}" if low == high else f"{low} to {high} seeds"


def _when(finished: float | None) -> str:
    return datetime.fromtimestamp(finished, UTC).strftime("%Y-%m-%d %H:%M UTC") if finished else ""


# ---- text that must not break out -------------------------------------------------------------------------------


def _json(data: Any) -> str:
    """JSON for a script element: no character that could end it or open a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    """Only the page's own scripts may run, and nothing may be loaded from anywhere."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    others = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {others}"


@lru_cache(maxsize=4)
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet, with the palette written in."""
    light = "".join(f"--c{n}:{c[0]};" for n, c in enumerate(palette.COLOURS))
    dark = "".join(f"--c{n}:{c[1]};" for n, c in enumerate(palette.COLOURS))
    return _file("page.css").replace("/*light*/", light).replace("/*dark*/", dark)


@lru_cache(maxsize=1)
def _template() -> "Template":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
