"""`Exchange`: plain data that the processes of torchrun tell each other, in a key-value store that all of them reach."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from lengthwise.config import ConfigError
from lengthwise.torchrun import SESSION, Launch

PAUSE_SECONDS = 0.05  # between two looks for a message
CONNECT_SECONDS = 300.0
END, ENDED, READY, STOP = "end", "ended", "ready", "stop"


class Exchange:
    """A connection of one thread. If rank 0 hosts the store, it must keep one until the other ranks have ended.

    Methods raise `RuntimeError` (torch's `DistError`) if the process that hosts the store has ended.
    """

    def __init__(self, launch: Launch):
        self.prefix = f"lengthwise/{launch.session}/"
        try:
            self.store = dist.TCPStore(  # type: ignore[attr-defined]
                launch.address,
                launch.port,
                is_master=launch.is_first and not launch.has_store,
                wait_for_workers=False,
                multi_tenant=True,
                timeout=timedelta(seconds=CONNECT_SECONDS),
            )
        except RuntimeError as error:
            raise ConfigError(
                f"the processes of torchrun cannot reach {launch.address}:{launch.port} (MASTER_ADDR and MASTER_PORT); start "
                "torchrun with an --rdzv-endpoint or a --master-addr that all machines reach"
            ) from error

    def put(self, key: str, value: Any) -> None:
        self.store.set(self.prefix + key, json.dumps(value))

    def get(self, key: str) -> Any:
        """Return the value of a key, or None if it has none yet."""
        return json.loads(self.store.get(self.prefix + key)) if self.store.check([self.prefix + key]) else None

    def decide(self, key: str, value: str) -> str:
        """Return the value that the first call with this key has given it."""
        return str(self.store.compare_set(self.prefix + key, "", json.dumps(value)).decode()).strip('"')

    def increase(self, key: str) -> int:
        """Return by which number of calls this is, from 1."""
        return int(self.store.add(self.prefix + key, 1))

    def count(self, key: str) -> int:
        """Return how often `increase` was called."""
        return int(self.store.add(self.prefix + key, 0))

    def scope(self, name: str) -> Any:
        """Return a part of the store, in which ranks can find each other."""
        return dist.PrefixStore(self.prefix + name, self.store)  # type: ignore[attr-defined]


@contextmanager
def session(launch: Launch) -> Iterator[Exchange]:
    """Let the processes agree on a new session, and yield a connection for it. Raise `ConfigError` if one of them is missing.

    Each of the others writes a random number, and rank 0 repeats it with the name of the session. So nobody takes part in the
    session of processes that have ended.
    """
    first = Exchange(launch)
    if launch.is_first:
        name = secrets.token_hex(8)
        seen: dict[str, Any] = {}

        def have_joined() -> bool:
            hellos = {str(rank): first.get(f"hello/{rank}") for rank in range(1, launch.size)}
            if hellos != seen:
                seen.update(hellos)
                first.put("session", {"name": name, "hellos": hellos})
            return first.count(f"joined/{name}") == launch.size - 1

        if not wait(have_joined, CONNECT_SECONDS, lambda: False, 0.0):
            raise ConfigError(f"not all processes of torchrun began within {CONNECT_SECONDS:.0f} s; see its messages")
    else:
        hello, rank = secrets.token_hex(8), str(launch.rank)
        first.put(f"hello/{rank}", hello)

        def is_known() -> bool:
            return bool((found := first.get("session")) and found["hellos"].get(rank) == hello)

        if not wait(is_known, CONNECT_SECONDS, lambda: False, 0.0):
            raise ConfigError(f"rank 0 of torchrun did not begin within {CONNECT_SECONDS:.0f} s")
        name = first.get("session")["name"]
        first.increase(f"joined/{name}")
    token = SESSION.set(name)
    try:
        yield Exchange(replace(launch, session=name))
    finally:
        SESSION.reset(token)


def wait(condition: Callable[[], object], seconds: float, hurry: Callable[[], bool], hurry_seconds: float) -> bool:
    """Wait until the condition is true, for at most `seconds`. Return whether it is.

    As soon as `hurry` returns True, wait for at most `hurry_seconds` more.
    """
    end, is_hurried = time.monotonic() + seconds, False
    while not condition():
        if not is_hurried and hurry():
            is_hurried, end = True, min(end, time.monotonic() + hurry_seconds)
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True
