"""What the worker processes of the package have in common: how Ctrl-C passes them by, and that they end with their parent."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker

__all__ = ["ctrl_c_held_back", "end_with_parent"]


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Processes that are started meanwhile inherit it, so that Ctrl-C does not hit them before they can ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first process starts it, which would let Ctrl-C through again
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def end_with_parent() -> None:
    """Have this worker process end at once when its parent is gone, which may have been killed."""
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
