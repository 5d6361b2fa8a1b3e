"""`lengthwise probe`: a command for each probe, whose options are the fields of the probe's `Options`."""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from lengthwise.cli.options import FLATTENED, Place, Threads, option_class, option_values, whole_numbers
from lengthwise.cli.printing import one_line, print_json, stdout
from lengthwise.cli.progress import progress
from lengthwise.cli.selection import require_one
from lengthwise.config import ConfigError
from lengthwise.machine_memory import limited_to_machine
from lengthwise.measurements import PROBES, Probe, Table
from lengthwise.values import join_names

if TYPE_CHECKING:
    from lengthwise.store import RunRow, Store
    from lengthwise.studies.probing import ProbeJob, ProbeResult

app = App(
    name="probe",
    help="""Measure attention, biases and logits inside trained models. Results are stored and shown in the report.

Example: lengthwise probe attention-distance 3f9a --against 77c0; lengthwise probe attended-distance 3f9a --lengths
20,40; lengthwise probe attention-distance --study quickstart --against nope; lengthwise probe recency --study icfl;
lengthwise probe attended-distance --study sums --task addition:scratchpad=full""",
    help_epilogue="",
    version_flags=[],
)

ARGUMENTS = """

Args:
    run: The run's key, or its first digits.
    device: Device to run on: cpu, cuda, cuda:1, ...
    threads: Number of CPU threads.
    json: Print JSON.
"""


@FLATTENED
@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The runs to probe: a study's runs instead of one run."""

    study: str | None = None
    """Probe all finished runs of this study instead of one run."""
    task: str | None = None
    """Only the study's runs with this task, including its settings: addition:scratchpad=full or
    "Addition(scratchpad=full)"."""

    def require(self, run: str | None, place: Place) -> None:
        """Raise `ConfigError` unless one run or a study is selected."""
        require_one("probe", [] if run is None else [run], self.study, place)
        if self.task is not None and self.study is None:
            raise ConfigError(
                "--task selects runs of a study, but a key already names one run; omit it, or use --study"
            )


@FLATTENED
@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The runs that probed runs are compared with."""

    against: str | None = None
    """The run to compare with: its key, or an encoding, which selects its run with the same task and seed (the next
    seed if the run itself has that encoding)."""
    across_seeds: bool = False
    """Compare with the other encoding's run of the next seed. Runs of the same seed start from the same weights, which
    keeps their attention similar."""


def _command(probe: Probe) -> Callable[..., int]:
    # `lengths` stands for the length of several questions.
    fields = {"lengths" if option.name == "length" else option.name: option for option in probe.Options.fields()}
    options_type = option_class(fields, probe.shown_default)
    comparison_type = Comparison if probe.compares else Annotated[Comparison, Parameter(parse=False)]

    def command(
        run: str | None = None,
        /,
        *,
        comparison: comparison_type = Comparison(),  # type: ignore[valid-type]
        selection: Selection = Selection(),
        options: options_type = options_type(),  # type: ignore[valid-type]
        place: Place = Place(),
        device: str = "cpu",
        threads: Threads = 1,
        json: bool = False,
    ) -> int:
        return _probe(probe, run, selection, comparison, options, place, device, threads, json)

    command.__doc__ = f"{probe.documentation}{ARGUMENTS}"
    return command


def _probe(
    probe: Probe,
    run: str | None,
    selection: Selection,
    comparison: Comparison,
    options: Any,
    place: Place,
    device: str,
    threads: int,
    json: bool,
) -> int:
    selection.require(run, place)
    if probe.compares and comparison.against is None:
        raise ConfigError(
            f"{probe.name} compares two models; add --against with a run's key, or with an encoding (--against nope) "
            "for its run with the same task and seed"
        )
    values = dataclasses.asdict(options)
    lengths = values.pop("lengths", None)
    lengths = None if lengths is None else list(dict.fromkeys(whole_numbers(lengths, "--lengths", 1, "20,40,80")))
    values = option_values(probe.Options.fields(), values)
    with place.open() as store:
        jobs, skipped = _jobs(store, probe, run, selection, comparison, lengths, values)
        results = _measure(store, jobs, device, threads)
    for line in [*skipped_lines(skipped), *_outdated(results)]:
        print(f"lengthwise: {one_line(line)}", file=sys.stderr)
    if json:
        print_json([_data(result) for result in results])
        return 0
    print_table(probe, results)
    if stored := sum(not result.new for result in results):
        which = "The result was" if len(results) == 1 else f"{stored} of {len(results)} results were"
        print(f"\n{which} already stored.")
    return 0


def skipped_lines(skipped: Sequence[str]) -> list[str]:
    """Return one line for each reason why runs are skipped, with the first run and the number of runs."""
    by_reason: dict[str, list[str]] = {}
    for line in skipped:
        by_reason.setdefault(re.sub(r"\brun [0-9a-f]{8}\b", "run", line), []).append(line)
    return [
        f"skipped: {lines[0]}" if len(lines) == 1 else f"skipped {len(lines)} runs for the same reason: {lines[0]}"
        for lines in by_reason.values()
    ]


def _jobs(
    store: "Store",
    probe: Probe,
    run: str | None,
    selection: Selection,
    comparison: Comparison,
    lengths: Sequence[int] | None,
    options: dict[str, Any],
) -> "tuple[list[ProbeJob], list[str]]":
    """Return the jobs, and the reasons why runs of a study are skipped. Raise `ConfigError` if all are."""
    from lengthwise.studies import probing

    if run is not None:
        row = store.run(run)
        if probe.compares:
            return probing.jobs_of_pairs(probe, [(row, _partner(store, row, comparison))], lengths, **options), []
        return probing.jobs_of_runs(probe, [row], lengths, **options), []
    assert selection.study is not None
    runs = store.runs(selection.study)
    if not runs:
        raise ConfigError(f"study {selection.study!r} has no runs; run it first")
    if selection.task is not None:
        runs = probing.runs_with_task(runs, selection.task, selection.study)
    if probe.compares:
        assert comparison.against is not None
        probing.require_encoding(runs, comparison.against, selection.study)
        pairs, skipped = probing.partners(runs, comparison.against, across_seeds=comparison.across_seeds)
        jobs, reasons = probing.jobs_of_pairs(probe, pairs, lengths, **options), skipped
    else:
        needs_attention = probe.needs_attention and not probe.skips_unsupported
        problems = [probing.unsupported_reason(row, needs_attention) for row in runs]
        skipped, reasons = [problem for problem in problems if problem is not None], []
        runs = [row for row, problem in zip(runs, problems, strict=True) if problem is None]
        jobs = probing.jobs_of_runs(probe, runs, lengths, **options)
        if probe.skips_unsupported:
            jobs, reasons = probing.split_supported(jobs)
        skipped, reasons = skipped + reasons, reasons or skipped
    if not jobs:
        raise ConfigError(f"no run of study {selection.study!r} can be probed: {reasons[0]}")
    return jobs, skipped


def _partner(store: "Store", run: "RunRow", comparison: Comparison) -> "RunRow":
    """Return the run to compare with: the named one, or that of the named encoding."""
    from lengthwise.studies import probing

    against = comparison.against
    assert against is not None
    if probing.is_encoding(against):
        return probing.partner(run, store.runs(), against, across_seeds=comparison.across_seeds)
    if comparison.across_seeds:
        raise ConfigError("--across-seeds needs --against with an encoding's name, got a key; omit --across-seeds")
    probing.require_no_misspelling(against)
    return store.run(against)


def _measure(store: "Store", jobs: "Sequence[ProbeJob]", device: str, threads: int) -> "list[ProbeResult]":
    from lengthwise.studies import Compute, probing
    from lengthwise.training.numerics import use_process

    Compute(device=device, threads=threads).require_usable()
    use_process(threads)
    prober = probing.Prober(store, device=device, threads=threads)
    stored = prober.stored(jobs)
    with limited_to_machine(device), _progress([job for n, job in enumerate(jobs) if n not in stored]) as show:
        return probing.probe_all(prober, jobs, show)


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
        f"{join_names(list(classes))} changed since {count} trained, so these results belong to the old code; run the "
        f"study again to train with the new code{edit_note(classes.values())}"
    ]


def _data(result: "ProbeResult") -> dict[str, Any]:
    run, row = result.job.run, result.row
    about = {"label": run.label, "task": run.task, "seed": run.seed, "new": result.new, "key": run.key}
    return about | {
        "measurement": row.measurement,
        "question": row.question,
        "columns": Table.from_data(row.rows).columns,
        "facts": row.facts,
        "created": row.created,
    }


def print_table(probe: Probe, results: "Sequence[ProbeResult]") -> None:
    from lengthwise.analysis.answers import of_answers
    from lengthwise.report.answer_table import answer_table

    several_tasks = len({result.job.run.task for result in results}) > 1
    names = []
    for result in results:
        run, against, question = result.job.run, result.job.against, result.row.question
        parts = [run.label, *([run.task] if several_tasks else []), f"seed {run.seed}", run.key[:8]]
        parts += [f"against {against.label}, seed {against.seed}"] if against else []
        parts += [f"length {question['length']}"] if "length" in question else []
        names.append(", ".join(parts))
    summary = of_answers(probe, names, [r.row for r in results], {r.job.run.key: r.job.run for r in results})
    console = stdout()
    console.print(probe.tables[0].title, style="bold")
    console.print(answer_table(summary, "run"))


@contextmanager
def _progress(jobs: "Sequence[ProbeJob]") -> "Iterator[Callable[[ProbeJob, float], None]]":
    total = sum(job.options.work for job in jobs)
    done = 0.0
    with progress() as show:

        def advance(job: "ProbeJob", share: float) -> None:
            nonlocal done
            done += job.options.work * share
            show(one_line(job.name), done, total)

        yield advance


for name, probe in PROBES.items():
    app.command(_command(probe), name=name)
