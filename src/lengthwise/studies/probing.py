"""Probes of stored runs: which runs are measured or compared, and answers that are stored and reused."""

import dataclasses
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from lengthwise.analysis.protocol import canonical, protocol
from lengthwise.config import ConfigError, near_miss
from lengthwise.encodings import ENCODINGS
from lengthwise.machine_memory import naming_what_needs_memory
from lengthwise.measurements import Options, Probe, Table
from lengthwise.measurements.example_lengths import ExampleLengths, length_rows, lengths_options
from lengthwise.measurements.inside.trained import TrainedRun, answer
from lengthwise.store import AnswerRow, RunRow, Store, StoreError
from lengthwise.studies.provenance import facts
from lengthwise.studies.stored import described, stored_run, without_versions
from lengthwise.studies.study import encoding, task
from lengthwise.studies.trained_models import load_model, require_trained

MAX_LOADED = 2  # trained models in memory: those of one comparison


@dataclass(frozen=True)
class ProbeJob:
    """One question about one run. `against` is the run that it is compared with, if any."""

    probe: Probe
    run: RunRow
    options: Options
    against: RunRow | None = None

    @property
    def name(self) -> str:
        against = f" against {described(self.against)}" if self.against else ""
        return f"{described(self.run)}{against}, {self.options.about or self.probe.name}"

    @property
    def question(self) -> dict[str, Any]:
        """Return what is stored with the answer."""
        return self.options.to_data()


@dataclass(frozen=True)
class ProbeResult:
    """A job with its stored answer. `new` is True if it was measured in this call."""

    job: ProbeJob
    row: AnswerRow
    new: bool


# ---- jobs ---------------------------------------------------------------------------------------------------------


def jobs_of_runs(
    probe: Probe, runs: Iterable[RunRow], lengths: Sequence[int] | None = None, **options: Any
) -> list[ProbeJob]:
    """Return the jobs for each run, at `lengths` or at the probe's default lengths. None stands for a default."""
    return [
        ProbeJob(probe, run, probe.Options.with_defaults(run.train_length, length=length, **options))
        for run in runs
        for length in lengths or _default_lengths(probe, run)
    ]


def jobs_of_pairs(
    probe: Probe, pairs: Iterable[tuple[RunRow, RunRow]], lengths: Sequence[int] | None = None, **options: Any
) -> list[ProbeJob]:
    """Return the jobs that compare the first run of each pair with the second one; see `jobs_of_runs`."""
    return [
        dataclasses.replace(job, against=against)
        for run, against in pairs
        for job in jobs_of_runs(probe, [run], lengths, against=against.key, **options)
    ]


def split_supported(jobs: Iterable[ProbeJob]) -> tuple[list[ProbeJob], list[str]]:
    """Return the jobs that their runs support, and the reasons for the others, such as an encoding's maximal length."""
    supported, reasons = [], []
    for job in jobs:
        try:
            job.probe.require(stored_run(job.run), job.options, None)
        except ConfigError as error:
            text = str(error)
            reasons.append(text if job.run.key[:8] in text else f"{described(job.run)}: {text}")
        else:
            supported.append(job)
    return supported, reasons


def runs_with_task(runs: Sequence[RunRow], name: str, study: str) -> list[RunRow]:
    """Return the runs of a study with a task, given as on the command line (`addition:scratchpad=full`) or by its
    label.

    Settings that `name` omits have their defaults. Raise `ConfigError` with a suggestion if there are no such runs.
    """
    labels = list(dict.fromkeys(run.task for run in runs))
    if name in labels:
        return [run for run in runs if run.task == name]
    if "(" not in name.partition(":")[0]:  # otherwise it is a misspelled label
        choice = task(name)
        skip = getattr(choice.cls, "excluded_from_key", ())

        def identity(data: dict[str, Any]) -> Any:  # ignores class versions; `stored_run` reports a changed class
            return {k: v for k, v in without_versions(data).items() if k not in skip}

        matching = [run for run in runs if identity(run.config["task"]) == identity(choice.to_data())]
        if matching:
            return matching
        name = choice.label
    raise ConfigError(
        f"study {study!r} has no run of {name}{near_miss(name, labels)}; its tasks are: {', '.join(labels)}"
    )


def is_encoding(name: str) -> bool:
    try:
        encoding(name)
    except ConfigError:
        return False
    return True


def unsupported_reason(run: RunRow, needs_attention: bool = True) -> str | None:
    """Return why the run cannot be probed: it is unfinished, or lacks attention. None if it can be."""
    if needs_attention and run.config["model"].get("mixer") is not None:
        return f"{described(run)} has no attention"
    if run.finished is None:
        return f"{described(run)} is not trained (its status is {run.status}); run its study"
    return None


def require_no_misspelling(key: str) -> None:
    """Raise `ConfigError` if `key` looks like a misspelled encoding rather than a run's key."""
    name = key.partition(":")[0]
    if not re.fullmatch("[0-9a-fA-F]+", key) and (name != key or near_miss(name, ENCODINGS.names())):
        encoding(key)


def require_encoding(runs: Iterable[RunRow], name: str, study: str | None) -> None:
    """Raise `ConfigError` unless one of the study's runs has the encoding and consecutive positions."""
    labels = list(dict.fromkeys(run.label for run in runs))
    if not any(map(_has_encoding(name), runs)):
        raise ConfigError(
            f"study {study!r} has no run of {encoding(name)[0].label}{near_miss(name, labels)}; its encodings are: "
            f"{', '.join(labels)}"
        )


def _has_encoding(name: str) -> Callable[[RunRow], bool]:
    """Return a function that tells whether a run has the named encoding, and consecutive positions."""
    choice, share = encoding(name)

    def has_encoding(run: RunRow) -> bool:
        config = run.config
        shared = share is None or config["model"].get("share_encoding") == share
        return config["encoding"] == choice.to_data() and shared and config["training"].get("positions") is None

    return has_encoding


def partners(
    runs: Sequence[RunRow], encoding_name: str, *, across_seeds: bool = False
) -> tuple[list[tuple[RunRow, RunRow]], list[str]]:
    """Pair each finished run with the named encoding's run that has the same task, model, training and seed.

    The encoding's run must have consecutive positions. Return the pairs, and the reasons why other runs have no
    partner. `across_seeds`: pair with the run of the next seed instead, because two runs of the same seed start from
    the same weights, which keeps their attention similar. Runs of the named encoding itself are always paired with
    the next seed, the last with the first.
    """
    choice, _ = encoding(encoding_name)
    is_reference = _has_encoding(encoding_name)
    references: dict[str, dict[int, RunRow]] = defaultdict(dict)
    finished = [run for run in runs if unsupported_reason(run) is None]
    for run in filter(is_reference, finished):
        references[_protocol(run)][run.seed] = run
    pairs: list[tuple[RunRow, RunRow]] = []
    reasons = list(filter(None, map(unsupported_reason, runs)))
    for run in finished:
        next_seed = across_seeds or is_reference(run)
        other = _reference(references[_protocol(run)], run.seed, next_seed)
        if other is None:
            seed = "another seed" if next_seed else "seed"
            reasons.append(
                f"{described(run)} has no finished run of {choice.label} with its task, model, training and {seed}"
            )
        elif (other, run) not in pairs:  # two seeds of the reference are one pair
            pairs.append((run, other))
    return pairs, reasons


def _reference(by_seed: dict[int, RunRow], seed: int, next_seed: bool) -> RunRow | None:
    """Return the run with that seed, or with the next seed; the first follows the last."""
    if not next_seed:
        return by_seed.get(seed)
    others = sorted(other for other in by_seed if other != seed)
    following = next((other for other in others if other > seed), others[0] if others else None)
    return None if following is None else by_seed[following]


def partner(run: RunRow, runs: Sequence[RunRow], encoding_name: str, *, across_seeds: bool = False) -> RunRow:
    """Return the run that `partners` pairs with `run`. Raise `ConfigError` if there is none."""
    candidates = [run, *(r for r in runs if r.key != run.key)]
    for first, second in partners(candidates, encoding_name, across_seeds=across_seeds)[0]:
        if first.key == run.key:
            return second
    raise ConfigError(
        f"run {described(run)} has no finished run of {encoding_name} with its task, model, training and seed (with "
        "another seed for the same encoding or --across-seeds); train one, or give a run's key"
    )


def _default_lengths(probe: Probe, run: RunRow) -> Sequence[int | None]:
    lengths = probe.lengths(run.train_length, [question["length"] for question in run.questions])
    if not lengths:
        raise ConfigError(f"no study evaluates run {described(run)}; give the lengths: --lengths 20,40")
    return lengths


def _protocol(run: RunRow) -> str:
    return canonical(protocol(run.config))


# ---- example lengths, which need no model --------------------------------------------------------------------------


def lengths_of(store: Store, row: RunRow, field: str) -> AnswerRow:
    """Return the lengths of a run's examples. If they are not stored, count them, and store them if possible."""
    run = stored_run(row)
    options = lengths_options(run, field, [question["length"] for question in row.questions])
    name, question = ExampleLengths.name, options.to_data()
    if (stored := store.answer(row.key, name, question)) is not None:
        return stored
    rows, origin = Table.from_rows(length_rows(run, options)).to_data(), facts("cpu", torch.get_num_threads())
    if store.readonly:
        created = time.time()
        return AnswerRow(key=row.key, measurement=name, question=question, rows=rows, facts=origin, created=created)
    return store.add_answer(row.key, name, question, rows, origin)


# ---- measurements -------------------------------------------------------------------------------------------------


class Prober:
    """Probes the trained models in a results folder, and stores the results."""

    def __init__(self, store: Store, *, device: str = "cpu", threads: int = 1):
        self.store, self.device, self.facts = store, device, facts(device, threads)
        self._loaded: dict[str, TrainedRun] = {}

    def stored(self, jobs: Sequence[ProbeJob]) -> dict[int, AnswerRow]:
        """Return the answers that are already stored, by the job's index."""
        keys = dict.fromkeys(job.run.key for job in jobs)
        rows = {(row.key, row.measurement, canonical(row.question)): row for row in self.store.answers(keys)}
        results = ((n, rows.get((j.run.key, j.probe.name, canonical(j.question)))) for n, j in enumerate(jobs))
        return {n: row for n, row in results if row is not None}

    def require(self, jobs: Iterable[ProbeJob]) -> None:
        """Raise `ConfigError` or `StoreError` for jobs that cannot be done, before anything is computed."""
        jobs = list(jobs)
        trained = {
            row.key: require_trained(self.store.files, row) for job in jobs for row in (job.run, job.against) if row
        }
        for job in jobs:
            job.probe.require(trained[job.run.key], job.options, trained[job.against.key] if job.against else None)
        if jobs and self.store.readonly:
            raise StoreError(f"{self.store.name} is read-only, so results cannot be stored; change its permissions")

    def measure(self, job: ProbeJob, on_progress: Callable[[float], None] | None = None) -> AnswerRow:
        """Measure, store, and return the stored answer. `on_progress` receives shares of the job, which add up to 1."""
        trained = self._trained_run(job.run, job.against)
        if job.against is not None:
            trained = dataclasses.replace(trained, against=self._trained_run(job.against, job.run))
        with naming_what_needs_memory(job.name):
            table, seconds = answer(job.probe, trained, job.options, on_progress)
        facts = self.facts | {"seconds": seconds}
        return self.store.add_answer(job.run.key, job.probe.name, job.question, table.to_data(), facts)

    def _trained_run(self, row: RunRow, partner: RunRow | None) -> TrainedRun:
        if row.key not in self._loaded:
            while len(self._loaded) >= MAX_LOADED:
                other = next(key for key in self._loaded if partner is None or key != partner.key)
                del self._loaded[other]
            self._loaded[row.key] = load_model(self.store.files, row, self.device)
        return self._loaded[row.key]


def probe_all(
    prober: Prober, jobs: Sequence[ProbeJob], on_progress: Callable[[ProbeJob, float], None] | None = None
) -> list[ProbeResult]:
    """Return the results in the order of the jobs. `on_progress(job, share)` is called after each batch of a new
    answer.

    Answers that are stored are not measured again, so an interrupted call continues with those that are missing.
    """
    rows = prober.stored(jobs)
    pending = [n for n in range(len(jobs)) if n not in rows]
    prober.require(jobs[n] for n in pending)
    # Sort by reference model, so that each one is loaded once.
    pending.sort(
        key=lambda n: (
            jobs[n].against.key if jobs[n].against else "",  # type: ignore[union-attr]
            jobs[n].run.key,
        )
    )
    for n in pending:
        rows[n] = prober.measure(jobs[n], None if on_progress is None else partial(on_progress, jobs[n]))
    new = set(pending)
    return [ProbeResult(job, rows[n], n in new) for n, job in enumerate(jobs)]
