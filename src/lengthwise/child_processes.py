"""Helpers for starting processes and for worker processes.

A process that lengthwise starts imports nothing from the current folder, which may hold anybody's files (a copied
results folder): `python -m` and `python -c`, which multiprocessing uses, would search it first. The folder of a study
or plug-in is searched last, as in the parent. Worker processes ignore Ctrl-C, which the parent handles, and end when
their parent ends.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker


@contextmanager
def starting_processes() -> Iterator[None]:
    """Start processes of multiprocessing inside this block: they, and those that they start, have a safe `sys.path`.

    They inherit that SIGINT is blocked.
    """
    with _safe_path():
        if hasattr(signal, "pthread_sigmask"):
            resource_tracker.ensure_running()  # starting the first process would start it, which unblocks SIGINT
        with without_interrupts():
            yield


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block SIGINT. Processes that start meanwhile inherit it, so Ctrl-C cannot hit them before they ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextmanager
def _safe_path() -> Iterator[None]:
    old = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # multiprocessing has no argument for the environment of its processes
    try:
        yield
    finally:
        if old is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = old


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def exit_reason(code: int | None) -> str:
    """Return why a process ended, in words."""
    if code is not None and code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"
    return f"exit code {code}"


def end_with_parent() -> None:
    """End this worker process as soon as its parent has ended, even if the parent was killed."""
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
