"""What workers on other machines do, as the store shows it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from lengthwise.store import Activity, Store, StoreError, StoreGone
from lengthwise.studies.events import Advanced, Done, Event, Failed, Released, Started

PAUSE_SECONDS = 2.0  # between two looks, or 20 times as long as a look takes


class Watcher:
    """Emits the events of a study's runs that start, advance and end anywhere."""

    def __init__(self, store: Store, study: str, emit: Callable[[Event], None]):
        self.store, self.study, self.emit = store, study, emit
        self.running: dict[str, Activity] = {}
        self.statuses: dict[str, str] = {}  # at the last look
        self.begun: dict[str, tuple[float, int]] = {}  # when a run was first seen with its worker, and at which step
        self.ended = 0  # runs that were done or failed since the beginning
        self.next_look = 0.0

    def look(self, now: bool = False) -> None:
        """Emit what has happened since the last look, if that is long enough ago."""
        start = time.monotonic()
        if not now and start < self.next_look:
            return
        try:
            rows = self.store.activity(self.study)
            for row in rows:
                before = self.running.get(row.key)
                if before is None and row.status in ("done", "failed") and self.statuses.get(row.key) == "pending":
                    self._start(row)  # it started and ended since the last look
                    self._end(row)
                self._compare(before, row)
                self.statuses[row.key] = row.status
        except StoreGone:
            raise
        except StoreError:  # it does not answer now; look again later
            return
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
        elif before is not None and row.step != before.step:
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
        self.emit(Started(key=row.key, what="train" if row.finished is None else "evaluate", where=where))

    def _end(self, row: Activity) -> None:
        """Emit how a run ended that a worker had."""
        seconds = time.monotonic() - self.begun.pop(row.key)[0]
        del self.running[row.key]
        self.ended += row.status in ("done", "failed")
        if row.status == "done":
            scores = self.store.scores([row.key])
            means = tuple((score.length, score.mean) for score in scores if not _shift(score.asked))
            self.emit(Done(key=row.key, scores=means, shift_scores=len(scores) - len(means), seconds=seconds))
        elif row.status == "failed":
            self.emit(Failed(key=row.key, error=row.error or "unknown"))
        else:
            self.emit(Released(key=row.key, reason="its worker has released it"))


def _shift(asked: Mapping[str, Any]) -> Any:
    return asked.get("shift")
