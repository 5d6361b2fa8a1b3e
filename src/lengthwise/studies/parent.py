"""What a worker needs of the executor that started it: somebody who hears its events and may ask it to stop."""

import random
import signal
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from lengthwise.store import StoreUnreachable
from lengthwise.studies.events import Event, Note

R = TypeVar("R")
# Clusters send SIGUSR2 shortly before they end a job, if they are asked to. Windows has no such signal.
STOP_SIGNALS = (signal.SIGTERM, *([signal.SIGUSR2] if hasattr(signal, "SIGUSR2") else []))
ORPHAN_SECONDS = 20.0  # for a last checkpoint after the parent has ended
PATIENCE_SECONDS = 3600.0
LONGEST_PAUSE = 30.0  # seconds between two attempts


class Flag:
    """What tells a worker to stop. It has no lock, unlike `threading.Event`, so a signal's handler may set it."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, for at most about `seconds`. Return whether it is."""
        end = time.monotonic() + seconds
        while not self._is_set and (left := end - time.monotonic()) > 0:
            time.sleep(min(0.1, left))
        return self._is_set


class Parent(Protocol):
    """What a worker needs of the executor that started it."""

    stop_requested: Flag  # the worker saves a checkpoint, releases its run and ends

    def send(self, event: Event) -> None: ...


def when_reachable(parent: Parent, call: Callable[..., R], *arguments: Any, **options: Any) -> R:
    """Return what the call returns, once the server of the database or of the files answers, for at most an hour.

    Raise `StoreUnreachable` if the parent asks the worker to stop meanwhile. A call may have been stored although the
    server did not answer, so every repeated call must do no harm then: a run that a worker has claimed without knowing
    it counts as abandoned after a minute without a heartbeat.
    """
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
