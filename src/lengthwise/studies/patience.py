"""Calls of a store that wait while its database server does not answer."""

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lengthwise.store import Store, StoreUnreachable
from lengthwise.studies.events import Note

if TYPE_CHECKING:
    from lengthwise.studies.worker import Parent

R = TypeVar("R")
PATIENCE_SECONDS = 3600.0
LONGEST_PAUSE = 30.0  # seconds between two attempts


def patient(store: Store, parent: "Parent") -> Store:
    """Return the store with methods that repeat a call until the server answers, for at most an hour.

    A call raises `StoreUnreachable` if the parent asks the worker to stop meanwhile. A call may have been stored although the
    server did not answer, so every repeated call must do no harm then: a run that a worker has claimed without knowing it counts
    as abandoned after a minute without a heartbeat.
    """
    return cast(Store, _Patient(store, parent))


class _Patient:
    def __init__(self, store: Store, parent: "Parent"):
        self._store, self._parent = store, parent

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value) or name == "close":
            return value
        return lambda *arguments, **options: patiently(self._parent, value, *arguments, **options)


def patiently(parent: "Parent", call: Callable[..., R], *arguments: Any, **options: Any) -> R:
    """Return what the call returns, once the server answers; see `patient`."""
    end, pause = time.monotonic() + PATIENCE_SECONDS, 1.0
    while True:
        try:
            return call(*arguments, **options)
        except StoreUnreachable as error:
            if time.monotonic() > end or parent.stop_requested.is_set():
                raise
            if pause == 1.0:
                problem = str(error).partition(";")[0]
                parent.send(Note(text=f"{problem}; the worker waits for it and then continues"))
            parent.stop_requested.wait(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)
