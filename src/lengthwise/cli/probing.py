"""`lengthwise probe`: measure attention inside trained models."""

import dataclasses
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.cli.options import whole_numbers
from lengthwise.cli.printing import console, duration, figure, one_line, print_json, stdout
from lengthwise.config import ConfigError, near_miss

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store
    from lengthwise.studies.probing import ProbeJob, ProbeResult

DISTANCE, ATTENDED = "attention-distance", "attended-distance"
RECENCY, DUPLICATES, MIDDLE, INDUCTION = "recency", "duplicates", "lost-in-the-middle", "induction"
IN_CONTEXT = (RECENCY, DUPLICATES, MIDDLE, INDUCTION)  # probes of runs that learn functions in context
PROBES = (DISTANCE, ATTENDED, *IN_CONTEXT)
BARS = "▁▂▃▄▅▆▇█"
MAX_NOISE_COUNTS = 10_000  # in one range of --noise
EXAMPLES = {DISTANCE: 10, ATTENDED: 100}
OPTIONS = {
    RECENCY: ("points", "repeats"),
    DUPLICATES: ("points", "noise", "resamples"),
    MIDDLE: ("points", "positions", "resamples"),
    INDUCTION: ("points", "repeats", "neighbours"),
}


@dataclass(frozen=True)
class ProbeOptions:
    """The options of the command."""

    probe: str
    run: str | None
    against: str | None
    study: str | None
    lengths: str | None
    examples: int | None
    seed: int
    variant: str | None
    across_seeds: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of the IN_CONTEXT probes; None for the default
    task: str | None = None

    def __post_init__(self) -> None:
        if self.probe not in PROBES:
            raise ConfigError(
                f"there is no probe {self.probe!r}{near_miss(self.probe, PROBES)}; available: {', '.join(PROBES)}"
            )
        if (self.run is None) == (self.study is None):
            got = "neither" if self.run is None else "both"
            raise ConfigError(
                f"probe needs either a run's key or --study NAME, got {got}; `lengthwise list runs` shows the keys"
            )
        if self.task is not None and self.study is None:
            raise ConfigError(
                "--task selects runs of a study, but a key already names one run; omit it, or use --study"
            )
        if self.probe == DISTANCE and self.against is None:
            raise ConfigError(
                f"{DISTANCE} compares two models; add --against with a run's key, or with an encoding (--against nope) for "
                "its run with the same task and seed"
            )
        distance_options = {
            "--against": self.against,
            "--variant": self.variant,
            "--across-seeds": self.across_seeds or None,
        }
        unsupported = [option for option, value in distance_options.items() if value is not None]
        if self.probe != DISTANCE and unsupported:
            raise ConfigError(f"{unsupported[0]} applies only to {DISTANCE}, not to {self.probe}; omit it")
        known = OPTIONS.get(self.probe, ())
        for option in (name for name, value in self.options.items() if value is not None and name not in known):
            probes = ", ".join(probe for probe, names in OPTIONS.items() if option in names)
            raise ConfigError(f"--{option} applies only to {probes}, not to {self.probe}; omit it")

    @property
    def settings(self) -> dict[str, Any]:
        if self.probe in IN_CONTEXT:
            options = {name: value for name, value in self.options.items() if value is not None}
            if "noise" in options:
                options["noise"] = _noise_counts(options["noise"])
            return {"examples": self.examples, "seed": self.seed, **options}
        examples = EXAMPLES[self.probe] if self.examples is None else self.examples
        settings: dict[str, Any] = {"examples": examples, "seed": self.seed}
        return settings if self.variant is None else settings | {"variant": self.variant}

    def parsed_lengths(self) -> list[int] | None:
        if self.lengths is None:
            return None
        return list(dict.fromkeys(whole_numbers(self.lengths, "--lengths", 1, "20,40,80")))


def _noise_counts(text: str) -> list[int]:
    """Return the numbers of `5-20` or `5,10,20`, sorted."""
    counts: set[int] = set()
    expected = "write counts of examples, each at least 1: 5-20 or 5,10,20"
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not (1 <= first <= last) or last - first >= MAX_NOISE_COUNTS:
            raise ConfigError(f"--noise contains {part[:40]!r}; {expected}")
        counts |= set(range(first, last + 1))
    if not counts:
        raise ConfigError(f"--noise is empty; {expected}")
    return sorted(counts)


def probe(query: ProbeOptions, results_folder: str, device: str, threads: int, json: bool) -> int:
    from lengthwise.store import open_results

    with open_results(results_folder, create=False) as store:
        skipped: list[str] = []
        jobs = _jobs(store, query, skipped)
        results = _ask(store, store.folder, jobs, device, threads)
    for line in [*(f"skipped: {line}" for line in skipped), *_outdated(results)]:
        print(f"lengthwise: {one_line(line)}", file=sys.stderr)
    if json:
        print_json([_data(result) for result in results])
        return 0
    stored = sum(not result.new for result in results)
    stdout().print(_table(query.probe, results))
    if stored:
        print(f"\n{stored} of {len(results)} results were already stored.")
    return 0


def _outdated(results: "list[ProbeResult]") -> list[str]:
    """Return a warning if stored results belong to models whose code has changed since."""
    from lengthwise.studies.stored import changed_since
    from lengthwise.values import join_names

    runs = {result.job.run.key: result.job.run for result in results if not result.new}
    changed = {key: names for key, run in runs.items() if (names := changed_since(run))}
    if not changed:
        return []
    names = list(dict.fromkeys(name for changed_names in changed.values() for name in changed_names))
    count = "1 run was" if len(changed) == 1 else f"{len(changed)} runs were"
    return [
        f"{join_names(names)} changed since {count} trained, so these results belong to the old code; run the study again to train "
        "with the new code"
    ]


def _jobs(store: "Store", query: ProbeOptions, skipped: list[str]) -> "list[ProbeJob]":
    from lengthwise.studies import probing

    lengths = query.parsed_lengths()
    if query.probe == ATTENDED:
        runs = [store.run(query.run)] if query.run is not None else _runs_of_study(store, query)
        if query.study is not None:
            skipped += probing.unsupported_reasons(runs)
            runs = [run for run in runs if run.finished is not None and probing.has_attention(run)]
            _require_any(runs, query.study)
        return probing.attended_distance_jobs(runs, lengths, **query.settings)
    if query.probe in IN_CONTEXT:
        return _in_context_jobs(store, query, lengths, skipped)
    assert query.against is not None
    if query.study is not None:
        pairs, reasons = probing.partners(_runs_of_study(store, query), query.against, across_seeds=query.across_seeds)
        skipped += reasons
        _require_any(pairs, query.study)
    else:
        assert query.run is not None
        run = store.run(query.run)
        pairs = [(run, _partner(store, run, query))]
    return probing.attention_distance_jobs(pairs, lengths, **query.settings)


def _runs_of_study(store: "Store", query: ProbeOptions) -> "list[RunRow]":
    """Return the runs of the study, restricted to the task if one is named."""
    from lengthwise.studies import probing

    assert query.study is not None
    runs = store.runs(query.study)
    return runs if query.task is None else probing.runs_with_task(runs, query.task, query.study)


def _in_context_jobs(
    store: "Store", query: ProbeOptions, lengths: list[int] | None, skipped: list[str]
) -> "list[ProbeJob]":
    from lengthwise.studies import probing

    if query.run is not None:
        return probing.in_context_jobs([store.run(query.run)], query.probe, lengths, **query.settings)
    assert query.study is not None
    runs = _runs_of_study(store, query)
    skipped += [f"{run.key[:8]} ({run.label}, seed {run.seed}) is {run.status}" for run in runs if run.finished is None]
    finished = [run for run in runs if run.finished is not None]
    _require_any(finished, query.study)
    jobs, reasons = probing.split_supported(probing.in_context_jobs(finished, query.probe, lengths, **query.settings))
    if not jobs:
        raise ConfigError(f"no run of study {query.study!r} can be probed: {reasons[0]}")
    skipped += reasons
    return jobs


def _partner(store: "Store", run: "RunRow", query: ProbeOptions) -> "RunRow":
    from lengthwise.studies import probing

    assert query.against is not None
    if probing.is_encoding(query.against):
        return probing.partner(run, store.runs(), query.against, across_seeds=query.across_seeds)
    if query.across_seeds:
        raise ConfigError("--across-seeds needs --against with an encoding's name, got a key; omit --across-seeds")
    probing.require_no_misspelling(query.against)
    return store.run(query.against)


def _require_any(rows: "Sequence[Any]", study: str) -> None:
    if not rows:
        raise ConfigError(
            f"study {study!r} has no trained runs that can be probed, or none to compare them with; run it first"
        )


def _ask(store: "Store", folder: Path, jobs: "Sequence[ProbeJob]", device: str, threads: int) -> "list[ProbeResult]":
    from lengthwise.studies import execution, probing
    from lengthwise.training.numerics import use_process

    execution._check(None, device, "auto", threads)
    use_process(threads)
    prober = probing.Prober(store, folder, device=device, threads=threads)
    stored = prober.stored(jobs)
    with _progress([job for n, job in enumerate(jobs) if n not in stored]) as show:
        return probing.probe_all(prober, jobs, show)


def _data(result: "ProbeResult") -> dict[str, Any]:
    run = result.job.run
    return {"label": run.label, "task": run.task, "seed": run.seed, "new": result.new, **dataclasses.asdict(result.row)}


# ---- tables -----------------------------------------------------------------------------------------------------


def _table(probe: str, results: "Sequence[ProbeResult]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    several_tasks = len({result.job.run.task for result in results}) > 1
    if several_tasks:
        table.add_column("task", overflow="fold")
    if probe == DISTANCE:
        table.add_column("against", overflow="fold")
    table.add_column("length", justify="right")
    table.add_column("prompts" if probe in IN_CONTEXT else "examples", justify="right")
    if probe in IN_CONTEXT:
        for header in COLUMNS[probe]:
            table.add_column(header, justify="right")
    elif probe == DISTANCE:
        table.add_column("mean", justify="right")
        table.add_column("nats per layer, from first to last", overflow="fold")
    else:
        table.add_column("highest logit at distance 0 … 1", no_wrap=True)
        table.add_column("share below 0.05", justify="right")
        table.add_column("share from 0.95", justify="right")
    for entry in results:
        run, against, result = entry.job.run, entry.job.against, entry.row.result
        cells = [Text(f"{run.label}, seed {run.seed}, {run.key[:8]}"), *([Text(run.task)] if several_tasks else [])]
        if against is not None:
            cells.append(Text(f"{against.label}, seed {against.seed}"))
        cells += [Text(f"{entry.job.question['length']}"), Text(f"{result['n']}")]
        table.add_row(*cells, *CELLS[probe](result))
    return table


def _distance_cells(result: dict[str, Any]) -> list[str]:
    layers = [math.nan if value is None else value for value in result["layers"]]
    return [f"{_nats(sum(layers) / len(layers))}", " ".join(map(_nats, layers))]


def _nats(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"


def _attended_distance_cells(result: dict[str, Any]) -> list[str]:
    """Return a histogram and two shares, averaged over all layers and heads."""
    heads = [head for layer in result["most"] for head in layer]
    shares = [sum(bins) / len(heads) / result["queries"] for bins in zip(*heads, strict=True)]
    highest = max(shares)
    strip = "".join(BARS[round(share / highest * (len(BARS) - 1))] for share in shares)
    return [strip, figure(shares[0], 3), figure(shares[-1], 3)]


def _recency_cells(result: dict[str, Any]) -> list[str]:
    """Return the share of the attention to labels that falls on the most recent tenth.

    The first two cells are means over the heads of the first and the last layer, the third is the maximum over all heads.
    """
    heads = [[_recent_share(head) for head in layer] for layer in result["layers"]]
    means = [sum(layer) / len(layer) for layer in heads]
    return [figure(means[0], 3), figure(means[-1], 3), figure(max(map(max, heads)), 3)]


def _recent_share(head: list[float | None]) -> float:
    """Return the share of the weights on the most recent tenth of the labels; a uniform head has 0.1."""
    weights = [0.0 if n is None else n for n in head]
    return math.fsum(weights[-max(1, round(len(weights) / 10)) :]) / (math.fsum(weights) or math.nan)


def _score_cells(*columns: tuple[str, int | str]) -> Any:
    """Return a function that returns the scores of prompts. Each column is a kind of prompt and where its repeated part is."""

    def cells(result: dict[str, Any]) -> list[str]:
        scores = {(prompt["kind"], prompt["at"]): prompt["score"] for prompt in result["prompts"]}
        curve = [
            prompt["at"]
            for prompt in result["prompts"]
            if prompt["kind"] in ("noise", "serial") and prompt["at"] != "none"
        ]
        ends: dict[tuple[str, int | str], tuple[str, int | str]] = {
            (kind, n): (kind, curve[n]) for kind in ("noise", "serial") for n in (0, -1)
        }
        return [_score(scores[ends.get(column, column)]) for column in columns]

    return cells


def _score(value: float | None) -> str:
    return "–" if value is None else figure(value, 3)


def _induction_cells(result: dict[str, Any]) -> list[str]:
    best = max(head or 0.0 for layer in result["induction"] for head in layer)
    return [figure(result["prefix_score"] or 0.0, 3), figure(best, 3), figure(result["nearest_score"] or 0.0, 3)]


COLUMNS = {
    RECENCY: ("most recent tenth: first layer", "last layer", "best head"),
    DUPLICATES: ("least noise", "most noise", "target: begin", "middle", "end", "all the same"),
    MIDDLE: ("answers: begin", "middle", "end", "duplicate: first", "last", "none"),
    INDUCTION: ("prefix score", "best head", "nearest-neighbour score"),
}
CELLS: dict[str, Any] = {
    DISTANCE: _distance_cells,
    ATTENDED: _attended_distance_cells,
    RECENCY: _recency_cells,
    DUPLICATES: _score_cells(
        ("noise", 0), ("noise", -1), ("target", "begin"), ("target", "middle"), ("target", "end"), ("all", "all")
    ),
    MIDDLE: _score_cells(
        ("answers", "begin"),
        ("answers", "middle"),
        ("answers", "end"),
        ("serial", 0),
        ("serial", -1),
        ("serial", "none"),
    ),
    INDUCTION: _induction_cells,
}


# ---- progress ---------------------------------------------------------------------------------------------------


class Show(Protocol):
    def __call__(self, job: "ProbeJob", examples: float) -> None: ...


@contextmanager
def _progress(jobs: "Sequence[ProbeJob]") -> Iterator[Show]:
    """Show progress on stderr: a bar on a terminal, otherwise occasional lines."""
    total = sum(job.work for job in jobs)
    lines = _ProgressLines(total)
    if not (sys.stderr.isatty() and jobs):
        yield lines
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=total)

        def show(job: "ProbeJob", examples: float) -> None:
            bars.update(bar, advance=job.work * examples / job.question["examples"], description=job.name)

        yield show


class _ProgressLines:
    def __init__(self, total: float):
        self.total, self.done = total, 0.0
        self.start = self.printed = time.perf_counter()

    def __call__(self, job: "ProbeJob", examples: float) -> None:
        self.done += job.work * examples / job.question["examples"]
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.start) / 30):
            return
        self.printed = now
        left = (now - self.start) * (self.total - self.done) / self.done
        remaining = f", about {duration(left)} left" if left >= 1 else ""
        print(f"{one_line(job.name)} ({self.done / self.total:.0%}{remaining})", file=sys.stderr, flush=True)
