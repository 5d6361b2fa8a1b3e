"""The processes that compute a worker's runs together, one per device. torchrun has started them, on one machine or on
several.

Rank 0 is the worker. It alone uses the store, reports what happens, and reads and writes the files of runs. It sends
messages to the other ranks through the key-value store of torchrun, and each of them answers every message with its
error, if it has one. Tensors go through torch's default process group, which the ranks join for the first run, and
again after an error.

If a rank does not answer after an error, it has ended, or it waits for others and cannot be interrupted. Then all of
them end, and whoever started them starts them again.
"""

import functools
import json
import os
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from lengthwise.config import ConfigError, Run
from lengthwise.errors import error_line
from lengthwise.studies.compute import DEFAULT_COMPUTE
from lengthwise.studies.parent import Flag
from lengthwise.studies.spec import Spec
from lengthwise.torchrun import Launch
from lengthwise.training import Stopped, TrainingError
from lengthwise.training.ranks import ALONE, Ranks

START_SECONDS = 300.0  # for the imports of another process
END_SECONDS = 10.0  # for an answer after an error, or when this process was asked to end
PAUSE_SECONDS = 0.05  # between two looks for a message
MAX_TEXT = 8000  # characters of an error
# Between two collectives, rank 0 writes scores, for which it waits up to an hour for an unreachable database.
COLLECTIVE_TIMEOUT = timedelta(hours=2)


class RankDied(ValueError):
    """A process of a run ended. The message is one line."""


class ErrorOfRank(Exception):
    """An unexpected error in the process of another rank. The message is the line of the report."""


class RankGroup:
    """The processes of a worker. This one has no others, and every run is computed by the worker alone."""

    is_broken = False  # no further run can be computed

    def start(self, spec: Spec, stop_requested: Flag) -> None:
        """Make the other processes ready for the runs of a study. Raise `ConfigError` if one of them cannot work."""

    @contextmanager
    def computing(self, run: Run, folder: Path, missing: list[dict[str, Any]]) -> Iterator[Ranks]:
        """Let all processes train and evaluate a run, and yield the place of this one among them.

        `missing`: the questions to answer, as the store has them. Raise the error of another process if there is one,
        and `RankDied` if one ended without an error.
        """
        yield ALONE

    def end(self, code: int) -> None:
        """Let the other processes end with this exit code."""


NO_GROUP = RankGroup()


class Messages:
    """The messages of rank 0 and the answers of the others, in a part of torchrun's key-value store. For one thread."""

    def __init__(self, launch: Launch):
        try:
            store, *_ = next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))
        except RuntimeError as error:
            raise ConfigError(
                f"the processes of torchrun cannot reach {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} "
                "(MASTER_ADDR and MASTER_PORT); start torchrun with an --rdzv-endpoint or a --master-addr that all "
                "machines reach"
            ) from error
        self.launch, self.number = launch, 0
        self.store = dist.PrefixStore(f"lengthwise/{_session(store, launch)}", store)  # type: ignore[attr-defined]

    def send(self, message: Mapping[str, Any]) -> None:
        self.number += 1
        self.store.set(f"message/{self.number}", json.dumps(message))

    def answers(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> dict[int, dict[str, Any] | None]:
        """Return the answers to the last message that arrive within this time, by rank: an error, or None."""
        keys = {rank: f"answer/{self.number}/{rank}" for rank in range(1, self.launch.size)}
        wait(lambda: self.store.check(list(keys.values())), seconds, hurry)
        return {rank: json.loads(self.store.get(key)) for rank, key in keys.items() if self.store.check([key])}

    def receive(self, seconds: float, hurry: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the next message, or None if there is none within this time."""
        key = f"message/{self.number + 1}"
        if not wait(lambda: self.store.check([key]), seconds, hurry):
            return None
        self.number += 1
        message: dict[str, Any] = json.loads(self.store.get(key))
        return message

    def answer(self, error: dict[str, Any] | None) -> None:
        self.store.set(f"answer/{self.number}/{self.launch.rank}", json.dumps(error))

    def join(self, device: str) -> None:
        """Connect the ranks by torch's default process group, unless they are connected. Collective."""
        if not dist.is_initialized():
            store = dist.PrefixStore(f"group/{self.number}", self.store)  # type: ignore[attr-defined]
            join(device, store, self.launch.rank, self.launch.size, self.launch.on_one_machine)


def _session(store: Any, launch: Launch) -> str:
    """Return a new name on which all ranks agree. Collective.

    After a restart, torchrun's store still has the messages of processes that have ended. So each rank waits for an
    answer to a random number of its own.
    """
    if not launch.is_first:
        hello = secrets.token_hex(8)
        store.set(f"lengthwise/hello/{launch.rank}", hello)
        if not wait(lambda: store.check([f"lengthwise/{hello}"]), START_SECONDS):
            raise ConfigError(f"rank 0 of torchrun did not begin within {START_SECONDS:.0f} s; see its messages")
        name = store.get(f"lengthwise/{hello}").decode()
        store.add(f"lengthwise/{name}", 1)
        return str(name)
    name, hellos = secrets.token_hex(8), [f"lengthwise/hello/{rank}" for rank in range(1, launch.size)]

    def have_joined() -> bool:
        for key in hellos:
            if store.check([key]):
                store.set(f"lengthwise/{store.get(key).decode()}", name)
        return bool(store.add(f"lengthwise/{name}", 0) == launch.size - 1)

    if not wait(have_joined, START_SECONDS):
        raise ConfigError(f"not all processes of torchrun began within {START_SECONDS:.0f} s; see their messages")
    return name


def wait(condition: Callable[[], object], seconds: float, hurry: Callable[[], bool] = lambda: False) -> bool:
    """Wait until the condition is true, for at most this time. Return whether it is.

    As soon as `hurry` returns True, wait for at most `END_SECONDS` more.
    """
    end = time.monotonic() + seconds
    while not condition():
        if hurry():
            hurry, end = (lambda: False), min(end, time.monotonic() + END_SECONDS)
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


class FirstRank(RankGroup):
    """The processes of a worker that is rank 0."""

    def __init__(self, launch: Launch):
        self.launch, self.messages, self.compute = launch, Messages(launch), DEFAULT_COMPUTE

    def start(self, spec: Spec, stop_requested: Flag) -> None:
        self.compute = spec.compute
        self.messages.send({"spec": spec.to_json()})
        answers = self.messages.answers(START_SECONDS, stop_requested.is_set)
        for rank in range(1, self.launch.size):
            if stop_requested.is_set():
                return
            if rank not in answers:
                raise ConfigError(f"{_process(rank)} did not start within {START_SECONDS:.0f} s; look at its messages")
            if (error := answers[rank]) is not None:
                raise ConfigError(f"{_process(rank)}: {error['line']}")

    @contextmanager
    def computing(self, run: Run, folder: Path, missing: list[dict[str, Any]]) -> Iterator[Ranks]:
        self.messages.send({"run": run.to_data(), "folder": str(folder), "missing": missing})
        try:
            self.messages.join(self.launch.device(self.compute.device))
            yield Ranks(0, self.launch.size, self.compute.sharding)
        except Stopped as stopped:
            self.is_broken = stopped.phase != "train"  # otherwise all ranks have stopped after the same step
            raise
        except BaseException as error:
            if (cause := self._cause(error)) is not None:
                raise cause from error
            raise
        if (cause := self._cause(None)) is not None:
            raise cause

    def _cause(self, error: BaseException | None) -> BaseException | None:
        """Return the error of another rank that has caused the error of this one, if there is one.

        Afterwards all ranks have left the process group if one of them had an error, or the group is broken.
        """
        is_lost = error is not None and _lost_connection(error)
        answers = self.messages.answers(END_SECONDS)
        errors = [answer for answer in answers.values() if answer is not None]
        missing = [rank for rank in range(1, self.launch.size) if rank not in answers]
        self.is_broken = is_lost or bool(missing)
        if not self.is_broken and (errors or error is not None):
            self.messages.send({"leave": True})
            leave()
        if error is not None and not is_lost:
            return None
        if causes := [answer for answer in errors if not answer["lost_connection"]]:
            return _raisable(causes[0])
        return RankDied(f"{_process(missing[0])} of the run ended") if is_lost and missing else None

    def end(self, code: int) -> None:
        with suppress(RuntimeError):  # torchrun has ended
            self.messages.send({"end": code})
            self.messages.answers(END_SECONDS)  # this process may host the store


@functools.cache
def ranks_of(launch: Launch) -> RankGroup:
    """Return the processes that torchrun has started, if this is the first of them. Collective."""
    return FirstRank(launch) if launch.size > 1 else NO_GROUP


def _process(rank: int) -> str:
    return f"the process of device {rank}"


def join(device: str, store: Any, rank: int, size: int, on_one_machine: bool) -> None:
    """Connect processes by torch's default process group. Collective. `store`: torch's, where they meet."""
    names = [name for _, name in socket.if_nameindex()]
    for loopback in ("lo", "lo0"):  # the host name of a single machine may not be resolvable
        if loopback in names and on_one_machine:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda:
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if is_cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)


def leave() -> None:
    """Leave the process group, which all ranks do after an error."""
    if dist.is_initialized():
        with suppress(RuntimeError):  # the other ranks may have ended
            dist.destroy_process_group()


def _lost_connection(error: BaseException) -> bool:
    """Return whether torch says that it cannot reach another rank."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def described(error: BaseException) -> dict[str, Any] | None:
    """Return the error of this rank as plain data, or None if the run was only stopped."""
    if isinstance(error, Stopped):
        return None
    return {
        "line": error_line(error)[:MAX_TEXT],
        "is_permanent": isinstance(error, (ConfigError, TrainingError)),
        "lost_connection": _lost_connection(error),
        "traceback": "".join(traceback.format_tb(error.__traceback__))[-MAX_TEXT:],
    }


def _raisable(error: Mapping[str, Any]) -> BaseException:
    if error["is_permanent"]:
        return ConfigError(error["line"])
    raisable = ErrorOfRank(error["line"])
    raisable.add_note(f"In the process of another device:\n{error['traceback']}")
    return raisable
