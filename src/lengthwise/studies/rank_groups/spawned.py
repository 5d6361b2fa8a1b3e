"""The processes of a run that the worker starts on its machine. It sends them commands through pipes.

They start when the worker begins its first run. If anything goes wrong in one of them, all of them end, and the next run begins
with new ones.
"""

import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lengthwise.child_processes import end_with_parent, exit_reason, starting_processes
from lengthwise.config import ConfigError, Run
from lengthwise.errors import error_line, is_own_error
from lengthwise.plugins import load_plugins
from lengthwise.studies.compute import Compute
from lengthwise.studies.loading import load_module
from lengthwise.studies.rank_groups.base import (
    END_SECONDS,
    MAX_TEXT,
    PAUSE_SECONDS,
    START_SECONDS,
    ErrorOfRank,
    RankDied,
    RankGroup,
    join,
    take_part,
)
from lengthwise.training import Stopped
from lengthwise.training.numerics import use_process
from lengthwise.training.ranks import ALONE, Ranks

PREFIX = "lengthwise-ranks-"  # of temporary folders


@dataclass(frozen=True)
class Setup:
    """What another rank needs before its first command: plain data, because it is sent to a process.

    `rendezvous`: a file through which the ranks find each other, in a folder that other users cannot read.
    """

    compute: Compute
    plugins: tuple[str, ...]
    source: str | None
    rendezvous: str


@dataclass(frozen=True)
class Command:
    """One run to train and evaluate. `missing`: the questions to answer, as the store has them."""

    run: Run
    folder: str
    missing: list[dict[str, Any]]


@dataclass(frozen=True)
class Failure:
    """The last message of a rank: its error."""

    error: BaseException


class SpawnedRanks(RankGroup):
    """With one device per run it starts nothing."""

    def __init__(self, compute: Compute, plugins: tuple[str, ...], source: str | None):
        self.compute, self.plugins, self.source = compute, plugins, source
        self.others: list[tuple[Any, Connection]] = []  # the processes of the ranks 1, 2, ... and the pipes to them
        self.folder: str | None = None

    @contextmanager
    def computing(self, run: Run, folder: Path, missing: list[dict[str, Any]]) -> Iterator[Ranks]:
        if self.compute.devices_per_run == 1:
            yield ALONE
            return
        try:
            if not self.others:
                self._start()
            for _, pipe in self.others:
                with suppress(OSError):  # it has ended, which the next collective notices
                    pipe.send(Command(run, str(folder), missing))
            yield Ranks(0, self.compute.devices_per_run, self.compute.sharding)
        except BaseException as error:
            if isinstance(error, Stopped) and error.phase == "train":
                raise  # all ranks have stopped after the same step
            cause = self._cause(END_SECONDS) if _may_come_from_another_rank(error) else None
            self.close()
            if cause is not None:
                raise cause from error
            raise

    def _start(self) -> None:
        """Start the other ranks and connect with them."""
        if dist.is_initialized():
            raise ConfigError("this process already uses torch.distributed; execute the study in another process")
        _remove_leftovers()
        self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        setup = Setup(self.compute, self.plugins, self.source, os.path.join(self.folder, "rendezvous"))
        self.finalizer = util.Finalize(
            None, self.close, exitpriority=100
        )  # before Python waits for its child processes
        context = get_context("spawn")
        for rank in range(1, self.compute.devices_per_run):
            pipe, child_pipe = context.Pipe()
            process = context.Process(target=main, args=(child_pipe, setup, rank), daemon=True)
            with starting_processes():  # the process inherits this, so Ctrl-C cannot hit it while it starts
                process.start()
            child_pipe.close()
            self.others.append((process, pipe))
        for rank, (_, pipe) in enumerate(self.others, 1):
            if not pipe.poll(START_SECONDS):
                raise RankDied(f"the process of device {rank} did not start within {START_SECONDS:.0f} s")
            try:
                message = pipe.recv()
            except EOFError:
                raise self._cause(END_SECONDS) or RankDied(f"the process of device {rank} did not start") from None
            if isinstance(message, Failure):
                raise message.error
        connect(self.compute, setup.rendezvous, 0)

    def _cause(self, seconds: float) -> BaseException | None:
        """Return the error of another rank, or how its process ended, if one of them ends within a time."""
        end = time.monotonic() + seconds
        while True:
            died: RankDied | None = None
            for rank, (process, pipe) in enumerate(self.others, 1):
                with suppress(EOFError, OSError):
                    if pipe.poll() and isinstance(message := pipe.recv(), Failure):
                        return message.error
                if process.exitcode is not None:
                    reason = exit_reason(process.exitcode)
                    died = died or RankDied(f"the process of device {rank} of the run ended ({reason})")
            if died is not None or time.monotonic() >= end:
                return died
            time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """End the other ranks."""
        for process, _ in self.others:
            process.kill()
        for process, pipe in self.others:
            process.join()
            pipe.close()
        self.others.clear()
        if self.folder is not None:
            if dist.is_initialized():
                with suppress(RuntimeError):  # the other ranks, which were just killed, cannot take part
                    dist.destroy_process_group()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
            self.finalizer.cancel()


def _remove_leftovers() -> None:
    """Remove the folders of workers of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError, ValueError, AttributeError):  # Windows has no user IDs
            if folder.stat().st_uid == os.getuid() and not folder.is_symlink() and not _is_alive(int(pid)):
                shutil.rmtree(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _may_come_from_another_rank(error: BaseException) -> bool:
    """Return whether the cause of an error can be that another rank ended, which torch reports as a `RuntimeError`."""
    return isinstance(error, RuntimeError)


def connect(compute: Compute, rendezvous: str, rank: int) -> None:
    """Connect the ranks of a run by torch's default process group. Collective."""
    store = dist.FileStore(rendezvous, compute.devices_per_run)  # type: ignore[attr-defined]
    join(compute.device_of(rank), store, rank, compute.devices_per_run, on_one_machine=True)


# ---- in the processes of the other ranks ---


def main(pipe: Connection, setup: Setup, rank: int) -> None:
    """Execute the commands of rank 0 until it ends."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR2"):
        if hasattr(signal, name):  # rank 0 handles it, and all ranks stop after the same step
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    end_with_parent()
    warnings.simplefilter("ignore")  # rank 0 has the same ones, and passes them on
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # a user's code prints the same in rank 0
    try:
        _follow(pipe, setup, rank)
    except EOFError:  # rank 0 has ended
        code = 0
    except BaseException as error:
        error.add_note(
            f"In the process of device {rank}:\n{''.join(traceback.format_tb(error.__traceback__))[-MAX_TEXT:]}"
        )
        with suppress(OSError):
            pipe.send(_sendable(error))
        code = 1
    os._exit(code)  # destroying the process group would wait for the other ranks


def _follow(pipe: Connection, setup: Setup, rank: int) -> None:
    compute = setup.compute
    use_process(compute.threads)
    load_plugins(setup.plugins)
    if setup.source is not None:
        load_module(setup.source)
    pipe.send("ready")
    connect(compute, setup.rendezvous, rank)
    ranks = Ranks(rank, compute.devices_per_run, compute.sharding)
    while True:
        command: Command = pipe.recv()
        with suppress(Stopped):
            take_part(command.run, Path(command.folder), command.missing, compute, compute.device_of(rank), ranks)


def _sendable(error: BaseException) -> Failure:
    """Return the message with an error. Errors of users' code become `ErrorOfRank`, because their classes can have any content.

    Rank 0 may be waiting in a collective and not read the pipe. A larger message would fill the pipe, and this process could not
    end.
    """
    if is_own_error(error) and len(pickle.dumps(error)) <= 3 * MAX_TEXT:
        return Failure(error)
    text = ErrorOfRank(error_line(error)[:MAX_TEXT])
    for note in getattr(error, "__notes__", ()):
        text.add_note(str(note)[-MAX_TEXT:])
    return Failure(text)
