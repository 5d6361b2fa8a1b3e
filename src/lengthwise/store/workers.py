"""Who works on a run, and whether that process still lives.

A worker's name is `host:pid:token`. The token is new at every call and also says which boot-time namespace the pid
counts in and when the process started, where the system tells (Linux), so that a pid given to another process, or one
seen from another container, is not taken for the worker.
"""

import os
import secrets
import socket
import sys

STALE_SECONDS = 60.0
"""A worker that was silent for longer has lost its run, wherever it is."""


def worker_name() -> str:
    """`host:pid:token`, a new token at every call: keep it for the life of the worker."""
    host = socket.gethostname().replace(":", "-") or "localhost"
    pid = os.getpid()
    return f"{host}:{pid}:{_namespace()}-{_started(pid) or 0}-{secrets.token_hex(4)}"


def is_dead(worker: str, silent: float) -> bool:
    """Whether `worker`, not heard of for `silent` seconds, can be taken for dead.

    On this host a process that is gone is dead at once. Otherwise it takes 60 s of silence; a heartbeat from further
    than that in the future comes from a clock that was set back, and counts for nothing.
    """
    return abs(silent) > STALE_SECONDS or _is_gone(worker)


def _is_gone(worker: str) -> bool:
    """True only when it is certain: this host, and no such process here any more."""
    try:
        host, pid_text, token = worker.rsplit(":", 2)
        namespace, started, _ = token.split("-")
        pid = int(pid_text)
    except ValueError:
        return False  # not one of our names: only its silence can tell
    here = socket.gethostname().replace(":", "-") or "localhost"
    if host != here or namespace != _namespace() or sys.platform == "win32" or pid <= 0:
        return False  # Windows: os.kill(pid, 0) is no question there but a signal
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # there is one, which belongs to someone else; or no process has such a number
    if started == "0":
        return False
    return _started(pid) != started


def _namespace() -> str:
    """The pid namespace, so that two containers that share a host name do not judge each other's pids."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid"))) or "0"
    except OSError:
        return "0"


def _started(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None for a zombie, for none, and where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before ")" may hold anything
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in (b"Z", b"X") else started.decode()
