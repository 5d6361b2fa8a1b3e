"""Write findings to one self-contained HTML file: style, script, charts and numbers are inside."""

import base64
import gzip
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lengthwise
from lengthwise import cache_folder
from lengthwise.analysis import Baseline, Findings, Kind, Point, TaskFindings, Ties
from lengthwise.analysis.findings import LEARNED
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.analysis.reading import FLOOR_WORDS, MARGIN, remark
from lengthwise.report import bundle, palette, provenance
from lengthwise.report.charts.chart import Chart
from lengthwise.report.charts.lines import interval_text
from lengthwise.report.measurements import chapters
from lengthwise.report.overview import overview
from lengthwise.report.score_chart import axis_choices, count_text, example_noun, first, ranges, score_chart
from lengthwise.report.statistics import over_tasks_sections, statistics_section
from lengthwise.report.summary import summary
from lengthwise.values import join_names, require_no_address

if TYPE_CHECKING:
    from jinja2 import Environment, Template

HERE = Path(__file__).parent
COMPRESSED = 4096  # characters of JSON from which on it is compressed
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # except tabs and line feeds


class ReportError(ValueError):
    """The page cannot be written. The message is one line: where, why, and what to do."""


def render(findings: Findings, ties: Ties = "average") -> str:
    """Return the HTML, the same bytes for the same findings. `ties`: the rule for equal scores, see `ranking`."""
    looks = palette.looks(findings.labels)
    ids = section_ids([task.title for task in findings.tasks])
    tasks = [task_data(task, number, looks) | {"id": ids[number]} for number, task in enumerate(findings.tasks)]
    has_chart = any(t["chart"] or t["chapters"] for t in tasks)
    scripts = [charts_script(), _file("page.js")] if findings.runs else []
    if has_chart:
        scripts.insert(0, bundle.script())
    page = _template().render(
        f=findings,
        tasks=tasks,
        title=findings.title,
        version=lengthwise.__version__,
        when=_when(findings.finished),
        style=style(),
        policy=_policy(scripts),
        scripts=scripts,
        summary=summary(findings, looks, ties),
        overview=overview(findings.tasks),
        over_tasks=over_tasks_sections(findings, looks),
        provenance=provenance.provenance(findings.runs),
        seconds=provenance.seconds,
        megabytes=provenance.megabytes,
        value_text=provenance.value_text,
        facts_table=provenance.facts_table,
        seeds=_seeds(findings),
        baselines=any(t.baselines for t in findings.tasks),
        prompts=any(s.groups for t in findings.tasks for series in t.series for p in series.points for s in p.seeds),
        margin=MARGIN,
        learned=LEARNED,
        floor_words=FLOOR_WORDS,
        join_names=join_names,
    )
    return CONTROL_CHARACTERS.sub("\ufffd", page)  # of texts from somebody else's database


def write(findings: Findings, path: str | os.PathLike[str], ties: Ties = "average") -> Path:
    """Write the page to `path` and return the path. An older page is replaced in one step, so no reader sees half a
    page.

    Raises `ReportError` if the page cannot be written.
    """
    require_no_address("the page", path)
    target = Path(path)
    # Labels may contain file names with bytes that are not UTF-8; they are written as \udcff.
    page = render(findings, ties).encode("utf-8", "backslashreplace")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        cache_folder.write(target, page)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReportError(
            f"the report cannot be written to {target} ({reason}); free some space or choose another file; "
            "the results are not affected"
        ) from error
    return target


# ---- parts of the page ------------------------------------------------------------------------------------------


def section_ids(titles: Sequence[str]) -> list[str]:
    """Return an id for each section, made of its title, so that links stay valid when other tasks are added."""
    ids: list[str] = []
    for title in titles:
        words = "-".join(re.findall("[a-z0-9]+", title.lower())) or "task"
        name = f"task-{words}"
        ids.append(name if name not in ids else f"{name}-{sum(one.startswith(name) for one in ids) + 1}")
    return ids


def task_data(task: TaskFindings, number: int, looks: dict[str, palette.Look]) -> dict[str, Any]:
    """Return the template's data of one task."""
    drawn = any(math.isfinite(p.mean) for s in task.series for p in s.points)
    longest = max(task.lengths)
    best = {length: task.best(length) for length in task.lengths}
    lines = [
        {
            "label": series.label,
            "remark": remark(task, series),
            "look": looks[series.label],
            "cells": [cell_of(series.point_at(length), best[length]) for length in task.lengths],
        }
        for series in task.ranked(longest)
    ]
    titles: dict[str, list[str]] = {}
    for series in task.series:
        points = [series.point_at(length) for length in task.lengths]
        titles[series.label] = ["no score yet" if point is None else _details(point) for point in points]
    groups = _groups(task)
    heads = [
        {
            "text": f"{n:,}",
            "times": times(n / task.train_length),
            "new": group["new"],
            "first": group["first"] and not place,
        }
        for group in groups
        for place, n in enumerate(group["lengths"])
    ]
    return {
        "task": task,
        "number": number,
        "chart": score_chart(task, looks) if drawn else None,
        "ranges": [r.name for r in ranges(task)] if drawn else [],
        "axis": axis_choices(ranges(task), bool(task.baselines)) if drawn else "",
        "first": first(ranges(task)),
        "not_finite": [
            f"{s.label} at {p.length:,}" for s in task.series for p in s.points if not math.isfinite(p.mean)
        ],
        "lines": lines,
        "titles": titles,
        "baselines": [_baseline_line(task, baseline) for baseline in task.baselines],
        "legend": [{"label": s.label, "look": looks[s.label], "empty": not s.points} for s in task.series],
        "heads": heads,
        "groups": groups,
        "shorter": [f"{n:,}" for n in task.of_kind("shorter")],
        "example_counts": _example_counts(task),
        "settings": provenance.settings(task),
        "one_seed": any(p.n_seeds == 1 for s in task.series for p in s.points),
        "chapters": chapters(task, looks),
        "statistics": statistics_section(task, looks),
    }


def _groups(task: TaskFindings) -> list[dict[str, Any]]:
    """Return the table's lengths grouped by kind. `first`: draw a rule before the group. `new`: shade it."""
    heads: dict[Kind, str] = {
        "shorter": "shorter than training",
        "trained": "training lengths" if task.shifted else "in distribution",
        "longer": "longer than training (extrapolation)",
    }
    return [
        {
            "text": head,
            "lengths": lengths,
            "span": len(lengths),
            "new": kind == "longer",
            "first": kind == "longer" or lengths[0] > task.lengths[0],
        }
        for kind, head in heads.items()
        if (lengths := task.of_kind(kind))
    ]


def cell_of(point: Point | None, best: Point | None) -> dict[str, Any]:
    """Return a cell of the table of scores. `best`: the best point at its length, if there is one."""
    if point is None:
        return {"mean": "–", "spread": "", "sort": "", "kind": "empty"}
    kind = ""
    if best is not None and math.isfinite(point.mean):
        if figure(point.mean) == figure(best.mean):
            kind = "best"
        elif min(point.n_seeds, best.n_seeds) > 1 and not point.interval.differs_from(best.interval):
            kind = "near"
    return {
        "mean": figure(point.mean),
        "spread": spread(point.interval),
        "sort": f"{point.mean:.6g}" if math.isfinite(point.mean) else "",
        "kind": kind,
    }


def _details(point: Point) -> str:
    """Return what a cell shows when the pointer rests on it."""
    by_seed = f"{seeds_text([s.seed for s in point.seeds])}: {', '.join(figure(s.mean) for s in point.seeds)}"
    return "; ".join(filter(None, [interval_text(point.interval), count_text(point), by_seed]))


def seeds_text(seeds: Sequence[int]) -> str:
    """Return `seed 3`, `seeds 0 to 4` or `seeds 0, 2, 7`."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def _baseline_line(task: TaskFindings, baseline: Baseline) -> dict[str, Any]:
    """Return a baseline's row of the table. It has no intervals, because a baseline has no seeds."""
    values = [baseline.scores.get(n) for n in task.lengths]
    cells = ["–" if value is None else figure(value) for value in values]
    return {"label": baseline.label, "kind": baseline.kind, "cells": cells}


def _example_counts(task: TaskFindings) -> str:
    """Return the number of examples of a score, such as `512 examples`."""
    scores = [s for series in task.series for p in series.points for s in p.seeds]
    counts = sorted({s.n for s in scores})
    ends = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}" if counts else ""
    return ends and f"{ends} {example_noun(scores)}"


def _seeds(findings: Findings) -> str:
    counts = {p.n_seeds for t in findings.tasks for s in t.series for p in s.points}
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} seed{'s' if low != 1 else ''}" if low == high else f"{low} to {high} seeds"


def _when(finished: float | None) -> str:
    return datetime.fromtimestamp(finished, UTC).strftime("%Y-%m-%d %H:%M UTC") if finished else ""


# ---- escaping ---------------------------------------------------------------------------------------------------


def _json(data: Any) -> str:
    """Return JSON for a script element, without characters that could end the element or open a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(data: Any) -> str:
    """Return a script element with JSON. Long JSON is compressed: the charts of a large study have megabytes."""
    text = _json(data)
    if len(text) < COMPRESSED:
        return f'<script type="application/json">{text}</script>'
    compressed = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
    return f'<script type="application/gzip">{compressed}</script>'


def drawn(chart: Chart) -> str:
    """Return a script element with what charts.js needs to draw a chart."""
    from lengthwise.report.charts.drawing import page_data

    return packed(page_data(chart))


def charts_script() -> str:
    """Return the script that draws charts, with their configuration."""
    from lengthwise.report.charts.drawing import CONFIG, FIT

    return _file("charts.js").replace("{}; /*config*/", f"{_json(CONFIG | FIT)};")


def _policy(scripts: list[str]) -> str:
    """Return a content security policy that allows the page's own scripts alone and no downloads."""
    hashes = (
        "'none'"
        if not scripts
        else " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    )
    others = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {others}"


@lru_cache(maxsize=32)
def _file(name: str) -> str:
    """Return the text of a file beside this module."""
    return (HERE / name).read_text(encoding="utf-8")


def style() -> str:
    """Return the style of all pages, with the colours of the charts."""
    light = "".join(f"--c{n}:{c[0]};" for n, c in enumerate(palette.COLOURS))
    dark = "".join(f"--c{n}:{c[1]};" for n, c in enumerate(palette.COLOURS))
    return _file("page.css").replace("/*light*/", light).replace("/*dark*/", dark)


def templates(read: Callable[[str], str]) -> "Environment":
    """Return an environment for the templates that `read` returns by name. All values are escaped."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = lambda data: Markup(packed(data))
    environment.filters["drawn"] = lambda chart: Markup(drawn(chart))
    return environment


@lru_cache(maxsize=1)
def _template() -> "Template":
    return templates(_file).get_template("page.html.j2")
