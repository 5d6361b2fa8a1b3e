"""Probes of the runs in a store: who is compared with whom, and every answer stored, so that it is not asked twice."""

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
    ask_attended,
    ask_distance,
    ask_in_context,
    ask_lengths,
    attended_question,
    distance_question,
    in_context_question,
    lengths_question,
    load_trained_run,
    require_alike,
    require_attention,
    require_in_context,
)
from lengthwise.store import ProbeRow, RunRow, Store, StoreError, run_folder
from lengthwise.studies.provenance import facts
from lengthwise.studies.stored import stored_run, without_versions
from lengthwise.studies.study import encoding, task
from lengthwise.training.checkpoint import WEIGHTS
from lengthwise.training.tensorfile import CheckpointError, DamagedFile
from lengthwise.values import require_no_address

KEPT = 2  # trained models in memory: of a pair that is compared


@dataclass(frozen=True)
class Item:
    """One question to one run; `against` is the run that it is compared with, if there is one."""

    run: RunRow
    asked: ProbeQuestion
    against: RunRow | None = None

    @property
    def name(self) -> str:
        against = f" against {_named(self.against)}" if self.against else ""
        return f"{_named(self.run)}{against}, length {self.asked['length']}"

    @property
    def work(self) -> float:
        """In no unit: what it costs, beside others."""
        return float(self.asked["examples"] * self.asked["length"] ** 2)


@dataclass(frozen=True)
class Answer:
    """An item, and what was found; `new`: in this call."""

    item: Item
    row: ProbeRow
    new: bool


# ---- who is asked what --------------------------------------------------------------------------------------------


def distances(pairs: Iterable[tuple[RunRow, RunRow]], lengths: Sequence[int] | None, **settings: Any) -> list[Item]:
    """What is asked of each pair: at `lengths`, or at those that the run's evaluation asks for."""
    return [
        Item(run, distance_question(against.key, length, **settings), against)
        for run, against in pairs
        for length in (lengths if lengths is not None else _asked_lengths(run))
    ]


def attended_distance_jobs(runs: Iterable[RunRow], lengths: Sequence[int] | None, **settings: Any) -> list[Item]:
    """What is asked of each run: at `lengths`, or at those of its evaluation that are longer than the trained one."""
    items = []
    for run in runs:
        usual = _asked_lengths(run) if lengths is None else []
        longer = [length for length in usual if length > run.train_length]
        items += [Item(run, attended_question(length, **settings)) for length in lengths or longer or usual]
    return items


def in_context(runs: Iterable[RunRow], probe: str, lengths: Sequence[int] | None, **settings: Any) -> list[Item]:
    """What is asked of each run that learns functions in context: at `lengths`, or at the published multiple of the trained one.
    Settings that are None are as published."""
    wanted: Sequence[int | None] = lengths or [None]
    return [
        Item(run, in_context_question(probe, run.train_length, length, **settings)) for run in runs for length in wanted
    ]


def split_supported(items: Iterable[Item]) -> tuple[list[Item], list[str]]:
    """The questions that can be put to their runs, and why the others cannot: of a whole study, some encodings end before."""
    kept, left_out = [], []
    for item in items:
        try:
            require_in_context(stored_run(item.run), item.asked)
        except ConfigError as error:
            left_out.append(f"{_named(item.run)}: {error}")
        else:
            kept.append(item)
    return kept, left_out


def of_task(runs: Sequence[RunRow], word: str, study: str) -> list[RunRow]:
    """The runs of a study that have a task, by one word (`addition:scratchpad=full`, other settings as usual) or by its label.

    `ConfigError` where there are none; it names the near miss.
    """
    labels = list(dict.fromkeys(run.task for run in runs))
    if word in labels:
        return [run for run in runs if run.task == word]
    if "(" not in word.partition(":")[0]:  # else it is a label, with a mistake in it
        choice = task(word)
        skip = getattr(choice.make, "excluded_from_key", ())

        def identity(data: dict[str, Any]) -> Any:  # of a changed class too: whoever asks its runs is told
            return {k: v for k, v in without_versions(data).items() if k not in skip}

        found = [run for run in runs if identity(run.config["task"]) == identity(choice.to_data())]
        if found:
            return found
        word = choice.label
    raise ConfigError(
        f"study {study!r} has no run of {word}{near_miss(word, labels)}; its tasks are: {', '.join(labels)}"
    )


def is_encoding(word: str) -> bool:
    try:
        encoding(word)
    except ConfigError:
        return False
    return True


def why_not(runs: Iterable[RunRow]) -> list[str]:
    """The runs that cannot be looked into, each with the reason."""
    reasons = ((run, "has no attention" if not has_attention(run) else f"is {run.status}") for run in runs)
    return [f"{_named(run)} {why}" for run, why in reasons if run.finished is None or not has_attention(run)]


def has_attention(run: RunRow) -> bool:
    return run.config["model"].get("mixer") is None


def require_no_misspelling(key: str) -> None:
    """Raise `ConfigError` for what is no key of a run, but an encoding's name or settings with a mistake in them."""
    name = key.partition(":")[0]
    if not re.fullmatch("[0-9a-fA-F]+", key) and (name != key or near_miss(name, ENCODINGS.names())):
        encoding(key)


def partners(
    runs: Sequence[RunRow], word: str, *, across: bool = False
) -> tuple[list[tuple[RunRow, RunRow]], list[str]]:
    """Each finished run with the run of an encoding (`word`) that has its task, model, training and seed, and consecutive
    positions; and why others are left out.

    `across`: with the run of the next seed instead. Two runs of one seed begin with the same weights, and what training leaves of
    that makes them alike. Runs of that encoding itself are always paired with the next seed, the last with the first.
    """
    choice, share = encoding(word)

    def refers(run: RunRow) -> bool:
        config = run.config
        shared = share is None or config["model"].get("share_encoding") == share
        return config["encoding"] == choice.to_data() and shared and config["training"].get("positions") is None

    references: dict[str, dict[int, RunRow]] = defaultdict(dict)
    finished = [run for run in runs if run.finished is not None and has_attention(run)]
    for run in filter(refers, finished):
        references[_protocol(run)][run.seed] = run
    pairs: list[tuple[RunRow, RunRow]] = []
    left_out = why_not(runs)
    for run in finished:
        other = _reference(references[_protocol(run)], run.seed, across or refers(run))
        if other is None:
            seed = "another seed" if across or refers(run) else "seed"
            left_out.append(
                f"{_named(run)} has no finished run of {choice.label} with its task, model, training and {seed}"
            )
        elif (other, run) not in pairs:  # two seeds of the reference are one pair
            pairs.append((run, other))
    return pairs, left_out


def _reference(of_seed: dict[int, RunRow], seed: int, across: bool) -> RunRow | None:
    """The reference's run of that seed, or of the next one, after the last the first."""
    if not across:
        return of_seed.get(seed)
    others = sorted(other for other in of_seed if other != seed)
    following = next((other for other in others if other > seed), others[0] if others else None)
    return None if following is None else of_seed[following]


def partner(run: RunRow, runs: Sequence[RunRow], word: str, *, across: bool = False) -> RunRow:
    """The run that `partners` puts beside `run`. `ConfigError` where there is none."""
    for one, other in partners([run, *(r for r in runs if r.key != run.key)], word, across=across)[0]:
        if one.key == run.key:
            return other
    raise ConfigError(
        f"run {_named(run)} has no finished run of {word} to be compared with, of its task, model and training and of its seed "
        "(where that would be itself, or with --across-seeds, of another one); train one, or name a run by its key"
    )


def _asked_lengths(run: RunRow) -> list[int]:
    lengths = [question["length"] for question in run.asked]
    if not lengths:
        raise ConfigError(f"no study asks anything of run {_named(run)}; say at which lengths: --lengths 20,40")
    return lengths


def _protocol(run: RunRow) -> str:
    return canonical(protocol(run.config))


def _named(run: RunRow) -> str:
    return f"{run.key[:8]} ({run.label}, seed {run.seed})"


# ---- what needs no model -------------------------------------------------------------------------------------------


def lengths_of(store: Store, row: RunRow, field: str) -> ProbeRow:
    """How long the run's examples are, from its rows where it is known; else counted, and stored where the store can be written."""
    run = stored_run(row)
    asked = lengths_question(run, field, [question["length"] for question in row.asked])
    if (known := store.probe(row.key, asked)) is not None:
        return known
    result, found = ask_lengths(run, asked), facts("cpu", torch.get_num_threads())
    if store.readonly:
        return ProbeRow(key=row.key, asked=asked, result=result, facts=found, created=time.time())
    store.add_probe(row.key, asked, result, found)
    stored = store.probe(row.key, asked)
    assert stored is not None
    return stored


# ---- asking -------------------------------------------------------------------------------------------------------


class Asker:
    """Answers questions about the runs of a store, from its rows where they are known and else from the trained models, which
    lie under `folder`."""

    def __init__(self, store: Store, folder: Path, *, device: str = "cpu", threads: int = 1):
        require_no_address("the results folder", folder)
        self.store, self.folder, self.device = store, folder, device
        self.facts = facts(device, threads)
        self._subjects: dict[str, TrainedRun] = {}

    def known(self, items: Sequence[Item]) -> dict[int, ProbeRow]:
        """The answers that are stored, by the item's place."""
        keys = dict.fromkeys(item.run.key for item in items)
        rows = {(row.key, canonical(row.asked)): row for row in self.store.probes(keys)}
        found = ((n, rows.get((item.run.key, canonical(item.asked)))) for n, item in enumerate(items))
        return {n: row for n, row in found if row is not None}

    def require(self, items: Iterable[Item]) -> None:
        """Raise `ConfigError` (or another plain error) for what cannot be asked: before anything is computed."""
        by_pair: dict[tuple[str, str | None], list[Item]] = defaultdict(list)
        for item in items:
            by_pair[item.run.key, item.against.key if item.against else None].append(item)
        for some in by_pair.values():
            first, lengths = some[0], [item.asked["length"] for item in some if item.asked["probe"] not in IN_CONTEXT]
            run = self._run(first.run)
            for item in some:
                if item.asked["probe"] in IN_CONTEXT:
                    require_in_context(run, item.asked)
            if not lengths:
                continue
            if first.against is None:
                require_attention(run)
                check_lengths(run, lengths)
            else:
                require_alike(run, self._run(first.against), lengths)
        if by_pair and self.store.readonly:
            raise StoreError(f"{self.store.name} is read-only, and answers are stored; change its permissions")

    def answer(self, item: Item, on_portion: Callable[[float], None] | None = None) -> ProbeRow:
        """Ask, store, and give back what is stored."""
        run = self._subject(item.run, item.against)
        if item.asked["probe"] in IN_CONTEXT:
            result = ask_in_context(run, item.asked, on_portion)
        elif item.against is None:
            result = ask_attended(run, item.asked, on_portion)
        else:
            result = ask_distance(run, self._subject(item.against, item.run), item.asked, on_portion)
        self.store.add_probe(item.run.key, item.asked, result, self.facts)
        row = self.store.probe(item.run.key, item.asked)
        assert row is not None
        return row

    def _run(self, row: RunRow) -> Run:
        if row.finished is None:
            raise ConfigError(
                f"run {_named(row)} is {row.status}, and only a trained model can be looked into; run its study"
            )
        run = stored_run(row)
        if not (weights := run_folder(self.folder, row.key) / WEIGHTS).is_file():
            raise ConfigError(
                f"run {_named(row)} has no weights here ({weights}); bring them here from where it was trained, or run its study "
                "again, which trains it again"
            )
        return run

    def _subject(self, row: RunRow, beside: RunRow | None) -> TrainedRun:
        if row.key not in self._subjects:
            while len(self._subjects) >= KEPT:
                other = next(key for key in self._subjects if beside is None or key != beside.key)
                del self._subjects[other]
            folder = run_folder(self.folder, row.key)
            try:
                self._subjects[row.key] = load_trained_run(self._run(row), folder, device=torch.device(self.device))
            except DamagedFile as error:
                raise CheckpointError(
                    f"{error}; bring it here again from where it was trained, or remove it and run its study again, which "
                    "trains it again"
                ) from error
        return self._subjects[row.key]


def ask_all(
    asker: Asker, items: Sequence[Item], on_progress: Callable[[Item, float], None] | None = None
) -> list[Answer]:
    """The answers, in the order of the items. `on_progress(item, examples)` after each portion of what is new."""
    known = asker.known(items)
    todo = [n for n in range(len(items)) if n not in known]
    asker.require(items[n] for n in todo)
    # One reference after the other: each is then loaded once.
    todo.sort(key=lambda n: (items[n].against.key if items[n].against else "", items[n].run.key))  # type: ignore[union-attr]
    for n in todo:
        item = items[n]

        def tell(examples: float, item: Item = item) -> None:
            if on_progress is not None:
                on_progress(item, examples)

        known[n] = asker.answer(item, tell)
    new = set(todo)
    return [Answer(item, known[n], n in new) for n, item in enumerate(items)]
