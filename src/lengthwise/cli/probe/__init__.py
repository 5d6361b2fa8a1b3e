"""`lengthwise probe`: measure attention inside trained models."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import Place, Threads, number_ranges
from lengthwise.cli.printing import figure, one_line, plain_table, print_json, stdout
from lengthwise.cli.probe.options import QuestionOptions, Selection, description_of_probes
from lengthwise.cli.progress import progress
from lengthwise.config import ConfigError
from lengthwise.machine_memory import limited_to_machine
from lengthwise.probes import PROBES, ModelProbe
from lengthwise.values import join_names

if TYPE_CHECKING:
    from lengthwise.store import ResultsFolder, RunRow, Store
    from lengthwise.studies.probing import ProbeJob, ProbeResult


def command(
    what: str,
    run: str | None = None,
    /,
    *,
    selection: Selection = Selection(),
    question: QuestionOptions = QuestionOptions(),
    place: Place = Place(),
    device: str = "cpu",
    threads: Threads = 1,
    json: bool = False,
) -> int:
    """Measure attention, biases and logits inside trained models. Results are stored and shown in the report.

    {probes}

    Example: lengthwise probe attention-distance 3f9a --against 77c0; lengthwise probe attended-distance 3f9a --lengths 20,40;
    lengthwise probe attention-distance --study quickstart --against nope; lengthwise probe recency --study icfl;
    lengthwise probe attended-distance --study sums --task addition:scratchpad=full

    Args:
        what: Name of the probe; `lengthwise list probes` lists them.
        run: The run's key, or its first digits.
        device: Device to run on: cpu, cuda, cuda:1, ...
        threads: Number of CPU threads.
        json: Print JSON.
    """
    from lengthwise.cli.app import app

    if what in app and PROBES.get(what) is None:
        raise ConfigError(f"{what} is a command and not a probe; see `lengthwise {what} --help`")

    options = dataclasses.asdict(question)
    selection = dataclasses.replace(selection, run=run, lengths=options.pop("lengths"))
    probe = PROBES.find_model_probe(what)
    selection.require(probe, place)
    _require_applicable(probe, selection, options)
    values = _parsed(probe, options)
    with place.open() as store:
        skipped: list[str] = []
        jobs = _jobs(store, probe, selection, values, skipped)
        answers = _ask(store, store.files, jobs, device, threads)
    for line in [*(f"skipped: {line}" for line in skipped), *_outdated(answers)]:
        print(f"lengthwise: {one_line(line)}", file=sys.stderr)
    if json:
        print_json([_data(answer) for answer in answers])
        return 0
    stored = sum(not answer.new for answer in answers)
    stdout().print(table_of_results(probe, answers))
    if stored:
        which = "The result was" if len(answers) == 1 else f"{stored} of {len(answers)} results were"
        print(f"\n{which} already stored.")
    return 0


command.__doc__ = (command.__doc__ or "").replace("{probes}", description_of_probes())


def _require_applicable(probe: ModelProbe, selection: Selection, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option of other probes."""
    comparing = [other.name for other in PROBES.of_models if other.compares]
    given = [(name, comparing) for name in ("against", "across_seeds") if getattr(selection, name) not in (None, False)]
    given += [("lengths", PROBES.with_option("length"))] if selection.lengths is not None else []
    given += [(name, PROBES.with_option(name)) for name, value in options.items() if value is not None]
    for option, names in given:
        if probe.name not in names:
            flag = option.replace("_", "-")
            raise ConfigError(f"--{flag} applies only to {', '.join(names)}, not to {probe.name}; omit it")


def _parsed(probe: ModelProbe, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given as the values of the question's fields."""
    lists = {p.name: p.metadata["minimum"] for p in probe.question.options() if p.type == tuple[int, ...]}
    given = {name: value for name, value in options.items() if value is not None}
    return given | {name: number_ranges(given[name], f"--{name}", lists[name]) for name in lists if name in given}


def _outdated(results: "list[ProbeResult]") -> list[str]:
    """Return a warning if stored results belong to models whose code has changed since."""
    from lengthwise.studies.stored import changed_since, edit_note

    runs = {result.job.run.key: result.job.run for result in results if not result.new}
    changed = {key: names for key, run in runs.items() if (names := changed_since(run))}
    if not changed:
        return []
    classes = {name: hashed for names in changed.values() for name, hashed in names.items()}
    count = "1 run was" if len(changed) == 1 else f"{len(changed)} runs were"
    return [
        f"{join_names(list(classes))} changed since {count} trained, so these results belong to the old code; run the study again "
        f"to train with the new code{edit_note(classes.values())}"
    ]


def _jobs(
    store: "Store", probe: ModelProbe, selection: Selection, options: Mapping[str, Any], skipped: list[str]
) -> "list[ProbeJob]":
    from lengthwise.studies import probing

    lengths = selection.parsed_lengths()
    if probe.compares:
        return probing.jobs_of_pairs(probe, _pairs(store, selection, skipped), lengths, **options)
    if selection.run is not None:
        return probing.jobs_of_runs(probe, [store.run(selection.run)], lengths, **options)
    runs = _runs_of_study(store, selection)
    needs_attention = probe.needs_attention and not probe.skips_unsupported
    problems = [probing.why_not_probed(run, needs_attention) for run in runs]
    skipped += filter(None, problems)
    runs = [run for run, problem in zip(runs, problems, strict=True) if problem is None]
    jobs = probing.jobs_of_runs(probe, runs, lengths, **options)
    reasons: list[str] = []
    if probe.skips_unsupported:
        jobs, reasons = probing.split_supported(jobs)
    skipped += reasons
    _require_any(jobs, selection.study, reasons or skipped)
    return jobs


def _pairs(store: "Store", selection: Selection, skipped: list[str]) -> "list[tuple[RunRow, RunRow]]":
    """Return the runs to compare."""
    from lengthwise.studies import probing

    assert selection.against is not None
    if selection.run is not None:
        run = store.run(selection.run)
        return [(run, _partner(store, run, selection))]
    runs = _runs_of_study(store, selection)
    probing.require_encoding(runs, selection.against, selection.study)
    pairs, reasons = probing.partners(runs, selection.against, across_seeds=selection.across_seeds)
    skipped += reasons
    _require_any(pairs, selection.study, reasons)
    return pairs


def _runs_of_study(store: "Store", selection: Selection) -> "list[RunRow]":
    """Return the runs of the study, restricted to the task if one is named."""
    from lengthwise.studies import probing

    assert selection.study is not None
    runs = store.runs(selection.study)
    if not runs:
        raise ConfigError(f"study {selection.study!r} has no runs; run it first")
    return runs if selection.task is None else probing.runs_with_task(runs, selection.task, selection.study)


def _partner(store: "Store", run: "RunRow", selection: Selection) -> "RunRow":
    from lengthwise.studies import probing

    assert selection.against is not None
    if probing.is_encoding(selection.against):
        return probing.partner(run, store.runs(), selection.against, across_seeds=selection.across_seeds)
    if selection.across_seeds:
        raise ConfigError("--across-seeds needs --against with an encoding's name, got a key; omit --across-seeds")
    probing.require_no_misspelling(selection.against)
    return store.run(selection.against)


def _require_any(rows: "Sequence[Any]", study: str | None, reasons: "Sequence[str]") -> None:
    """Raise `ConfigError` with the first reason if no run of the study can be probed."""
    if not rows:
        raise ConfigError(f"no run of study {study!r} can be probed: {reasons[0]}")


def _ask(
    store: "Store", files: "ResultsFolder", jobs: "Sequence[ProbeJob]", device: str, threads: int
) -> "list[ProbeResult]":
    from lengthwise.studies import Compute, probing
    from lengthwise.training.numerics import use_process

    Compute(device=device, threads=threads).require_usable()
    use_process(threads)
    prober = probing.Prober(store, files, device=device, threads=threads)
    stored = prober.stored(jobs)
    with limited_to_machine(device), _progress([job for n, job in enumerate(jobs) if n not in stored]) as show:
        return probing.probe_all(prober, jobs, show)


def _data(result: "ProbeResult") -> dict[str, Any]:
    run = result.job.run
    return {"label": run.label, "task": run.task, "seed": run.seed, "new": result.new, **dataclasses.asdict(result.row)}


# ---- the table --------------------------------------------------------------------------------------------------


def table_of_results(probe: ModelProbe, results: "Sequence[ProbeResult]") -> Any:
    table = plain_table()
    table.add_column("run", overflow="fold")
    several_tasks = len({result.job.run.task for result in results}) > 1
    if several_tasks:
        table.add_column("task", overflow="fold")
    if probe.compares:
        table.add_column("against", overflow="fold")
    if probe.reads_examples:
        table.add_column("length", justify="right")
        table.add_column(probe.counted, justify="right")
    for column in probe.columns:
        if column.is_text:
            table.add_column(column.header, overflow="fold" if column.wrap else "ellipsis", no_wrap=not column.wrap)
        else:
            table.add_column(column.header, justify="right")
    for entry in results:
        run, against, result = entry.job.run, entry.job.against, entry.row.result
        cells = [f"{run.label}, seed {run.seed}, {run.key[:8]}", *([run.task] if several_tasks else [])]
        if against is not None:
            cells.append(f"{against.label}, seed {against.seed}")
        if probe.reads_examples:
            cells += [f"{entry.row.asked['length']}", f"{result['n']}"]
        own = [cell if isinstance(cell, str) else figure(cell, 3) for cell in probe.cells(result)]
        table.add_row(*cells, *own)
    return table


# ---- progress ---------------------------------------------------------------------------------------------------


@contextmanager
def _progress(jobs: "Sequence[ProbeJob]") -> "Iterator[Callable[[ProbeJob, float], None]]":
    total = sum(job.work for job in jobs)
    done = 0.0
    with progress() as show:

        def advance(job: "ProbeJob", examples: float) -> None:
            nonlocal done
            done += job.work * examples / job.question.reports
            show(one_line(job.name), done, total)

        yield advance
