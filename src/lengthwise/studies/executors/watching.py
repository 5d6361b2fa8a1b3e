"""Executors whose workers are on other machines, so that only the store shows what they do."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import make_url

from lengthwise.config import ConfigError
from lengthwise.store import STATUSES, Activity, Store, StoreUnreachable
from lengthwise.studies.compute import Compute
from lengthwise.studies.events import Advanced, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.executors.base import Executor
from lengthwise.studies.spec import Spec

PAUSE_SECONDS = 2.0  # between two looks, or 20 times as long as a look takes


class Watcher:
    """Emits the events of a study's runs that start, advance and end anywhere."""

    def __init__(self, store: Store, study: str, emit: Callable[[Event], None]):
        self.store, self.study, self.emit = store, study, emit
        self.running: dict[str, Activity] = {}
        self.last: dict[str, Activity] = {}  # all runs, at the last look
        self.begun: dict[str, tuple[float, int]] = {}  # when a run was first seen with its worker, and at which step
        self.unfinished = 1  # runs that were neither done nor failed at the last look
        self.counts: dict[str, int] = {}  # runs by status at the last look, after its events
        self.ended = 0  # runs that were done or failed since the beginning
        self.next_look = 0.0
        self.unreachable = False  # the server did not answer at the last look

    def look(self, now: bool = False) -> None:
        """Emit what has happened since the last look, if that is long enough ago."""
        start = time.monotonic()
        if not now and start < self.next_look:
            return
        try:
            rows = self.store.activity(self.study)
            self.unfinished = sum(row.status in ("pending", "running") for row in rows)
            for row in rows:
                before, last = self.running.get(row.key), self.last.get(row.key)
                if (
                    before is None
                    and row.status in ("done", "failed")
                    and last is not None
                    and last.status == "pending"
                ):
                    self._start(row)  # it started and ended since the last look
                    self._end(row)
                self._compare(before, row)
            self.last = {row.key: row for row in rows}
            numbers = Counter(row.status for row in rows)
            self.counts = {status: numbers[status] for status in STATUSES}
        except StoreUnreachable as error:  # look again later
            if not self.unreachable:
                self.emit(Note(text=f"{str(error).partition(';')[0]}; progress is shown again when it answers"))
            self.unreachable = True
        else:
            self.unreachable = False
        finally:
            end = time.monotonic()
            self.next_look = end + max(PAUSE_SECONDS, 20 * (end - start))

    @property
    def idle(self) -> bool:
        return not self.running

    def _compare(self, before: Activity | None, row: Activity) -> None:
        if before is not None and (row.status != "running" or row.claims != before.claims):
            self._end(row)
        if row.status != "running":
            return
        if row.key not in self.running:
            self._start(row)
        elif before is not None and row.step != before.step and row.steps:  # 0 until the worker's first step
            begun, first = self.begun[row.key]
            rate = (row.step - first) / max(1e-9, time.monotonic() - begun)
            left = (row.steps - row.step) / rate if rate > 0 else 0.0
            self.emit(
                Advanced(
                    key=row.key,
                    phase="train",
                    step=row.step,
                    steps=row.steps,
                    loss=None,
                    steps_per_second=max(0.0, rate),
                    eta_seconds=left,
                )
            )
        self.running[row.key] = row

    def _start(self, row: Activity) -> None:
        self.running[row.key] = row
        self.begun[row.key] = time.monotonic(), row.step
        where = (row.worker or "").partition(":")[0]
        last = self.last.get(row.key, row)
        what: Literal["train", "continue", "evaluate"] = "continue" if last.step else "train"
        self.emit(Started(key=row.key, what=what if last.finished is None else "evaluate", where=where))

    def _end(self, row: Activity) -> None:
        """Emit how a run ended that a worker had."""
        seconds = time.monotonic() - self.begun.pop(row.key)[0]
        del self.running[row.key]
        self.ended += row.status in ("done", "failed")
        if row.status == "done":
            scores = self.store.scores([row.key])
            means = tuple((score.length, score.mean) for score in scores if "shift" not in score.question)
            self.emit(Done(key=row.key, scores=means, shift_scores=len(scores) - len(means), seconds=seconds))
        elif row.status == "failed":
            self.emit(Failed(key=row.key, error=row.error or "unknown"))
        else:
            self.emit(Released(key=row.key, reason="its worker has released it"))


class RemoteExecutor(Executor):
    """An executor whose workers only write to the store. They have to find the same results folder."""

    remote = True

    def __init__(self, config: Any, spec: Spec, store: Store, emit: Callable[[Event], None]):
        identifier = store.files.identifier(create=True)
        super().__init__(config, replace(spec, results_id=identifier), store, emit)
        self.watcher = Watcher(store, spec.study, emit)

    def counts(self) -> dict[str, int]:
        return self.watcher.counts or super().counts()

    @property
    def active(self) -> bool:
        return self.watcher.unfinished > 0

    @property
    def idle(self) -> bool:
        return False  # the workers of other calls are watched like our own

    def close(self) -> None:
        self.watcher.look(now=True)


def require_consistent(gpus: float, compute: Compute, store: str | None) -> None:
    """Raise `ConfigError` for a GPU that is only used or only reserved, and for a password in the address."""
    if bool(gpus) != (compute.device != "cpu"):
        fix = "add --device cuda" if gpus else "add --gpus 1"
        raise ConfigError(f"gpus is {gpus:g} but device is {compute.device}; {fix}")
    if gpus and compute.devices_per_run > 1 and gpus != compute.devices_per_run:
        raise ConfigError(
            f"gpus is {gpus:g} but a run has {compute.devices_per_run} devices; use --gpus {compute.devices_per_run}"
        )
    if store is not None and (make_url(store).password or "password" in make_url(store).query):
        raise ConfigError(
            "the address of the database must not contain a password, because the cluster may write it to a disk; "
            "write it into ~/.pgpass on each machine"
        )
