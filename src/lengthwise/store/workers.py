"""Names of workers, and whether a worker's process is still alive.

A worker's name is `host:pid:token`. The token is new for every call. On Linux it also contains the pid namespace and
the start time of the process, so that another process with the same pid, or a pid in another container, is not mistaken
for the worker.
"""

import os
import secrets
import socket
import sys

STALE_SECONDS = 60.0
"""A worker without a heartbeat for longer than this has lost its run, on whatever host it is."""


def worker_name() -> str:
    """Return `host:pid:token` with a new token. A worker must keep its name for its whole life."""
    pid = os.getpid()
    return f"{host()}:{pid}:{_namespace()}-{_started(pid) or 0}-{secrets.token_hex(4)}"


def host() -> str:
    """Return the name of this machine as the names of its workers have it."""
    return socket.gethostname().replace(":", "-") or "localhost"


def is_dead(worker: str, silent: float) -> bool:
    """Return whether a worker whose last heartbeat is `silent` seconds old counts as dead.

    On this host, a worker whose process has ended is dead at once. Otherwise it is dead after 60 s without a heartbeat.
    A heartbeat more than 60 s in the future comes from a clock that was set back, and is ignored.
    """
    return abs(silent) > STALE_SECONDS or _is_gone(worker)


def _is_gone(worker: str) -> bool:
    """Return whether the process certainly ended: it was on this host, and it no longer exists."""
    try:
        where, pid_text, token = worker.rsplit(":", 2)
        namespace, started, _ = token.split("-")
        pid = int(pid_text)
    except ValueError:
        return False  # not a name of ours; only its heartbeats matter
    if where != host() or namespace != _namespace() or sys.platform == "win32":
        return False  # on Windows, os.kill(pid, 0) would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # the process belongs to another user
    if started == "0":
        return False
    return _started(pid) != started


def _namespace() -> str:
    """Return the pid namespace, which differs between containers that share a host name; "0" if unknown."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid"))) or "0"
    except OSError:
        return "0"


def _started(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot; None for a zombie, no process, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before ")" may contain any character
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in (b"Z", b"X") else started.decode()
