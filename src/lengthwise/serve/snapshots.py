"""The state of all studies, read again and again in a thread of its own, so that no request waits for it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lengthwise.store import Activity, Store, StoreError, StudyRow

T = TypeVar("T")

INTERVAL = 1.0  # seconds between two readings, of which each takes at most a fifth of the time
IDLE = 30.0  # seconds after the last request until the reading pauses
FRESH = 3.0  # seconds until a snapshot is too old to be shown without another try
PATIENCE = 0.1  # seconds that a request waits for a newer snapshot
REMEMBERED = 32  # answers of the store
REMEMBERED_SECONDS = 10.0
PACE_WINDOW = 120.0  # seconds over which the speed of a run is measured


@dataclass(frozen=True)
class StudyState:
    """A study, what is done with its runs, and the seconds of training that are left (None: unknown)."""

    study: StudyRow
    runs: Sequence[Activity]
    eta: float | None


@dataclass(frozen=True)
class Snapshot:
    """All studies at one time. `etas`: seconds of training that are left, by the key of a running run."""

    studies: Mapping[str, StudyState] = field(default_factory=dict)
    etas: Mapping[str, float] = field(default_factory=dict)


class Pace:
    """The speed of a run, measured while it is watched: steps at times."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, now: float, step: int) -> None:
        points = self._points
        if points and step < points[-1][1]:
            points.clear()  # another worker continues from a checkpoint
        if not points or step > points[-1][1]:
            points.append((now, step))
        while len(points) > 2 and now - points[0][0] > PACE_WINDOW:
            points.popleft()

    @property
    def steps_per_second(self) -> float:
        """Return the speed, or 0.0 if it is unknown."""
        (first, low), (last, high) = (self._points[0], self._points[-1]) if self._points else ((0.0, 0), (0.0, 0))
        return (high - low) / (last - first) if last > first else 0.0


class Watcher:
    """Opens a store, reads it in a thread while somebody looks, and opens it again after an error."""

    def __init__(self, open_store: Callable[[], Store]):
        """Read the store once. Raises `StoreError`."""
        self._open = open_store
        self._paces: dict[str, Pace] = {}
        self._changed, self._lock = threading.Condition(), threading.Lock()
        self._memory: dict[Hashable, Any] = {}
        self._last_request = time.monotonic()
        self._closed = False
        self._error: str | None = None  # the line of the last reading, if it failed
        self._store: Store = open_store()
        self._snapshot, self._read_at = Snapshot(), 0.0
        try:
            self.refresh()
        except BaseException:
            self._store.close()
            raise
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot. Raises `StoreError` if the store cannot be read now."""
        with self._changed:
            self._last_request = time.monotonic()
            if self._last_request - self._read_at > FRESH:  # no page has been requested for a while
                self._changed.notify_all()
                self._changed.wait(PATIENCE)
            if self._error is not None:
                raise StoreError(self._error)
            return self._snapshot

    def read(self, query: Callable[[Store], T]) -> T:
        """Return what a query reads now. Raises `StoreError`, at once if the last reading in the thread failed."""
        if (error := self._error) is not None:
            raise StoreError(error)
        return query(self._store)

    def remembered(self, runs: Sequence[Activity], what: Hashable, query: Callable[[Store], T]) -> T:
        """Return what a query reads about runs, or what it read before if nothing was done with the runs since then.

        `what`: identifies the query. Rows that somebody else adds to a finished run are read after at most ten seconds.
        """
        identity = (what, tuple(runs), int(time.monotonic() / REMEMBERED_SECONDS))
        with self._lock:
            if identity in self._memory:
                return self._memory[identity]
        result = self.read(query)
        with self._lock:
            self._memory[identity] = result
            while len(self._memory) > REMEMBERED:
                del self._memory[next(iter(self._memory))]
        return result

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=2.0)
        self._store.close()

    def _watch(self) -> None:
        while True:
            start = time.monotonic()
            error = None
            try:
                if self._error is not None:
                    self._reopen()
                self.refresh()
            except StoreError as problem:
                error = str(problem)
            except Exception as problem:  # or else the thread would end, and the page show old numbers for ever
                error = f"the results cannot be read ({type(problem).__name__}: {problem})"
            took = time.monotonic() - start
            with self._changed:
                self._error = error
                self._read_at = time.monotonic()
                self._changed.notify_all()
                if not self._closed:
                    self._changed.wait(max(INTERVAL, 4 * took))
                while not self._closed and time.monotonic() - self._last_request > IDLE:
                    self._changed.wait()
                if self._closed:
                    return

    def _reopen(self) -> None:
        store = self._open()
        self._store, old = store, self._store
        with self._lock:
            self._memory = {}
        old.close()

    def refresh(self) -> None:
        store = self._store
        store.require_file_unchanged()
        now, overview = time.monotonic(), store.overview()
        running = {run.key: run for _, runs in overview for run in runs if run.status == "running"}
        self._paces = {key: self._paces.get(key, Pace()) for key in running}
        for key, run in running.items():
            self._paces[key].add(now, run.step)
        speeds = {key: pace.steps_per_second for key, pace in self._paces.items()}
        etas = {
            key: max(0, run.steps - run.step) / speeds[key] for key, run in running.items() if speeds[key] and run.steps
        }
        studies = {study.name: StudyState(study, runs, _eta(runs, speeds)) for study, runs in overview}
        self._snapshot = Snapshot(studies, etas)


def _eta(runs: Sequence[Activity], speeds: Mapping[str, float]) -> float | None:
    """Return the seconds of training that are left, at the present speed of all running runs; None if that is unknown.

    A run that has not begun is taken to have as many steps as the longest one of the study.
    """
    left = [run for run in runs if run.status in ("pending", "running") and run.finished is None]
    speed = sum(speeds.get(run.key, 0.0) for run in left)
    longest = max((run.steps for run in runs), default=0)
    if not speed or not longest:
        return None
    return sum(max(0, (run.steps or longest) - run.step) for run in left) / speed
