"""Probes of stored runs: which runs are measured or compared, and results that are stored and reused."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lengthwise.analysis.gather import canonical, protocol
from lengthwise.config import ConfigError, Run, near_miss
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import check_lengths
from lengthwise.probes import (
    IN_CONTEXT,
    ProbeQuestion,
    TrainedRun,
    attended_question,
    count_lengths,
    distance_question,
    in_context_question,
    lengths_question,
    load_trained_run,
    measure_attended_distance,
    measure_attention_distance,
    measure_in_context,
    require_attention,
    require_comparable,
    require_in_context,
)
from lengthwise.store import ProbeRow, RunRow, Store, StoreError, run_folder
from lengthwise.studies.provenance import facts
from lengthwise.studies.stored import stored_run, without_versions
from lengthwise.studies.study import encoding, task
from lengthwise.training.checkpoint import WEIGHTS
from lengthwise.training.tensor_file import CheckpointError, DamagedFile
from lengthwise.values import require_no_address

MAX_LOADED = 2  # trained models in memory: those of one comparison


@dataclass(frozen=True)
class ProbeJob:
    """One question about one run. `against` is the run that it is compared with, if any."""

    run: RunRow
    question: ProbeQuestion
    against: RunRow | None = None

    @property
    def name(self) -> str:
        against = f" against {_description(self.against)}" if self.against else ""
        return f"{_description(self.run)}{against}, length {self.question['length']}"

    @property
    def work(self) -> float:
        """Return the cost relative to other jobs, for progress display."""
        return float(self.question["examples"] * self.question["length"] ** 2)


@dataclass(frozen=True)
class ProbeResult:
    """A job with its stored result. `new` is True if it was measured in this call."""

    job: ProbeJob
    row: ProbeRow
    new: bool


# ---- jobs ---------------------------------------------------------------------------------------------------------


def attention_distance_jobs(
    pairs: Iterable[tuple[RunRow, RunRow]], lengths: Sequence[int] | None, **settings: Any
) -> list[ProbeJob]:
    """Return the jobs for each pair, at `lengths` or at the lengths of the run's evaluation."""
    return [
        ProbeJob(run, distance_question(against.key, length, **settings), against)
        for run, against in pairs
        for length in (lengths if lengths is not None else _evaluated_lengths(run))
    ]


def attended_distance_jobs(runs: Iterable[RunRow], lengths: Sequence[int] | None, **settings: Any) -> list[ProbeJob]:
    """Return the jobs for each run, at `lengths` or at the evaluated lengths that are longer than training."""
    jobs = []
    for run in runs:
        evaluated = _evaluated_lengths(run) if lengths is None else []
        longer = [length for length in evaluated if length > run.train_length]
        jobs += [ProbeJob(run, attended_question(length, **settings)) for length in lengths or longer or evaluated]
    return jobs


def in_context_jobs(
    runs: Iterable[RunRow], probe: str, lengths: Sequence[int] | None, **settings: Any
) -> list[ProbeJob]:
    """Return the jobs for runs that learn functions in context, at `lengths` or at the published multiple of the training length.

    Settings that are None take the published values.
    """
    job_lengths: Sequence[int | None] = lengths or [None]
    return [
        ProbeJob(run, in_context_question(probe, run.train_length, length, **settings))
        for run in runs
        for length in job_lengths
    ]


def split_supported(jobs: Iterable[ProbeJob]) -> tuple[list[ProbeJob], list[str]]:
    """Return the jobs that their runs support, and the reasons for the others, such as an encoding's maximal length."""
    supported, reasons = [], []
    for job in jobs:
        try:
            require_in_context(stored_run(job.run), job.question)
        except ConfigError as error:
            reasons.append(f"{_description(job.run)}: {error}")
        else:
            supported.append(job)
    return supported, reasons


def runs_with_task(runs: Sequence[RunRow], name: str, study: str) -> list[RunRow]:
    """Return the runs of a study with a task, given as on the command line (`addition:scratchpad=full`) or by its label.

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


def unsupported_reasons(runs: Iterable[RunRow]) -> list[str]:
    """Return why runs cannot be probed, for those that are unfinished or have no attention."""
    reasons = ((run, "has no attention" if not has_attention(run) else f"is {run.status}") for run in runs)
    return [
        f"{_description(run)} {reason}" for run, reason in reasons if run.finished is None or not has_attention(run)
    ]


def has_attention(run: RunRow) -> bool:
    return run.config["model"].get("mixer") is None


def require_no_misspelling(key: str) -> None:
    """Raise `ConfigError` if `key` looks like a misspelled encoding rather than a run's key."""
    name = key.partition(":")[0]
    if not re.fullmatch("[0-9a-fA-F]+", key) and (name != key or near_miss(name, ENCODINGS.names())):
        encoding(key)


def partners(
    runs: Sequence[RunRow], encoding_name: str, *, across_seeds: bool = False
) -> tuple[list[tuple[RunRow, RunRow]], list[str]]:
    """Pair each finished run with the named encoding's run that has the same task, model, training and seed.

    The encoding's run must have consecutive positions. Return the pairs, and the reasons why other runs have no partner.
    `across_seeds`: pair with the run of the next seed instead, because two runs of the same seed start from the same weights, which
    keeps their attention similar. Runs of the named encoding itself are always paired with the next seed, the last with the first.
    """
    choice, share = encoding(encoding_name)

    def is_reference(run: RunRow) -> bool:
        config = run.config
        shared = share is None or config["model"].get("share_encoding") == share
        return config["encoding"] == choice.to_data() and shared and config["training"].get("positions") is None

    references: dict[str, dict[int, RunRow]] = defaultdict(dict)
    finished = [run for run in runs if run.finished is not None and has_attention(run)]
    for run in filter(is_reference, finished):
        references[_protocol(run)][run.seed] = run
    pairs: list[tuple[RunRow, RunRow]] = []
    reasons = unsupported_reasons(runs)
    for run in finished:
        next_seed = across_seeds or is_reference(run)
        other = _reference(references[_protocol(run)], run.seed, next_seed)
        if other is None:
            seed = "another seed" if next_seed else "seed"
            reasons.append(
                f"{_description(run)} has no finished run of {choice.label} with its task, model, training and {seed}"
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
        f"run {_description(run)} has no finished run of {encoding_name} with its task, model, training and seed (with another "
        "seed for the same encoding or --across-seeds); train one, or give a run's key"
    )


def _evaluated_lengths(run: RunRow) -> list[int]:
    lengths = [question["length"] for question in run.asked]
    if not lengths:
        raise ConfigError(f"no study evaluates run {_description(run)}; give the lengths: --lengths 20,40")
    return lengths


def _protocol(run: RunRow) -> str:
    return canonical(protocol(run.config))


def _description(run: RunRow) -> str:
    return f"{run.key[:8]} ({run.label}, seed {run.seed})"


# ---- example lengths, which need no model --------------------------------------------------------------------------


def lengths_of(store: Store, row: RunRow, field: str) -> ProbeRow:
    """Return the lengths of a run's examples. They are counted if they are not stored yet, and stored if the store is writable."""
    run = stored_run(row)
    asked = lengths_question(run, field, [question["length"] for question in row.asked])
    if (stored := store.probe(row.key, asked)) is not None:
        return stored
    result, origin = count_lengths(run, asked), facts("cpu", torch.get_num_threads())
    if store.readonly:
        return ProbeRow(key=row.key, asked=asked, result=result, facts=origin, created=time.time())
    store.add_probe(row.key, asked, result, origin)
    stored = store.probe(row.key, asked)
    assert stored is not None
    return stored


# ---- measurements -------------------------------------------------------------------------------------------------


class Prober:
    """Probes the trained models under `folder`, and stores the results."""

    def __init__(self, store: Store, folder: Path, *, device: str = "cpu", threads: int = 1):
        require_no_address("the results folder", folder)
        self.store, self.folder, self.device = store, folder, device
        self.facts = facts(device, threads)
        self._loaded: dict[str, TrainedRun] = {}

    def stored(self, jobs: Sequence[ProbeJob]) -> dict[int, ProbeRow]:
        """Return the results that are already stored, by the job's index."""
        keys = dict.fromkeys(job.run.key for job in jobs)
        rows = {(row.key, canonical(row.asked)): row for row in self.store.probes(keys)}
        results = ((n, rows.get((job.run.key, canonical(job.question)))) for n, job in enumerate(jobs))
        return {n: row for n, row in results if row is not None}

    def require(self, jobs: Iterable[ProbeJob]) -> None:
        """Raise `ConfigError` or `StoreError` for jobs that cannot be done, before anything is computed."""
        by_pair: dict[tuple[str, str | None], list[ProbeJob]] = defaultdict(list)
        for job in jobs:
            by_pair[job.run.key, job.against.key if job.against else None].append(job)
        for group in by_pair.values():
            first = group[0]
            lengths = [job.question["length"] for job in group if job.question["probe"] not in IN_CONTEXT]
            run = self._run(first.run)
            for job in group:
                if job.question["probe"] in IN_CONTEXT:
                    require_in_context(run, job.question)
            if not lengths:
                continue
            if first.against is None:
                require_attention(run)
                check_lengths(run, lengths)
            else:
                require_comparable(run, self._run(first.against), lengths)
        if by_pair and self.store.readonly:
            raise StoreError(f"{self.store.name} is read-only, so results cannot be stored; change its permissions")

    def measure(self, job: ProbeJob, on_progress: Callable[[float], None] | None = None) -> ProbeRow:
        """Measure, store, and return the stored result. `on_progress` receives numbers of finished examples."""
        run = self._trained_run(job.run, job.against)
        if job.question["probe"] in IN_CONTEXT:
            result = measure_in_context(run, job.question, on_progress)
        elif job.against is None:
            result = measure_attended_distance(run, job.question, on_progress)
        else:
            result = measure_attention_distance(run, self._trained_run(job.against, job.run), job.question, on_progress)
        self.store.add_probe(job.run.key, job.question, result, self.facts)
        row = self.store.probe(job.run.key, job.question)
        assert row is not None
        return row

    def _run(self, row: RunRow) -> Run:
        if row.finished is None:
            raise ConfigError(
                f"run {_description(row)} is {row.status}, and only trained models can be probed; run its study"
            )
        run = stored_run(row)
        if not (weights := run_folder(self.folder, row.key) / WEIGHTS).is_file():
            raise ConfigError(
                f"run {_description(row)} has no weights here ({weights}); copy them from where it was trained, or run its study "
                "again to retrain it"
            )
        return run

    def _trained_run(self, row: RunRow, partner: RunRow | None) -> TrainedRun:
        if row.key not in self._loaded:
            while len(self._loaded) >= MAX_LOADED:
                other = next(key for key in self._loaded if partner is None or key != partner.key)
                del self._loaded[other]
            folder = run_folder(self.folder, row.key)
            try:
                self._loaded[row.key] = load_trained_run(self._run(row), folder, device=torch.device(self.device))
            except DamagedFile as error:
                raise CheckpointError(
                    f"{error}; copy it again from where it was trained, or delete it and run its study again to retrain it"
                ) from error
        return self._loaded[row.key]


def probe_all(
    prober: Prober, jobs: Sequence[ProbeJob], on_progress: Callable[[ProbeJob, float], None] | None = None
) -> list[ProbeResult]:
    """Return the results in the order of the jobs. `on_progress(job, examples)` is called after each batch of a new result."""
    rows = prober.stored(jobs)
    pending = [n for n in range(len(jobs)) if n not in rows]
    prober.require(jobs[n] for n in pending)
    # Sort by reference model, so that each one is loaded once.
    pending.sort(key=lambda n: (jobs[n].against.key if jobs[n].against else "", jobs[n].run.key))  # type: ignore[union-attr]
    for n in pending:
        job = jobs[n]

        def report(examples: float, job: ProbeJob = job) -> None:
            if on_progress is not None:
                on_progress(job, examples)

        rows[n] = prober.measure(job, report)
    new = set(pending)
    return [ProbeResult(job, rows[n], n in new) for n, job in enumerate(jobs)]
