"""The processes of a run that torchrun has started, on one machine or on several.

For each run, rank 0 publishes a command, all ranks connect by a process group of this run, and each rank publishes how it ended.
If all of them end the run with an error, the next run can begin. Otherwise some of them wait for others that have left, and nothing
can interrupt them, so all processes end. `torchrun --max-restarts` starts them again.
"""

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from lengthwise.config import ConfigError, Run
from lengthwise.errors import error_line, is_own_error
from lengthwise.store import open_folder
from lengthwise.studies.compute import Compute
from lengthwise.studies.rank_groups.base import (
    END_SECONDS,
    MAX_TEXT,
    START_SECONDS,
    ErrorOfRank,
    RankDied,
    RankGroup,
    join,
    take_part,
)
from lengthwise.studies.rank_groups.exchange import END, PAUSE_SECONDS, READY, STOP, Exchange, wait
from lengthwise.torchrun import Launch
from lengthwise.training import Stopped, TrainingError
from lengthwise.training.numerics import use_process
from lengthwise.training.ranks import ALONE, Ranks

HURRY_SECONDS = 4.0  # after SIGTERM, for messages of others; torchrun kills its processes after 30 s
# Whether the ranks continue together after a run. The first of them that knows it decides.
CONTINUE, LEAVE = "continue", "leave"
LOOK_SECONDS = 0.5  # between two looks whether another machine asks to stop


class LaunchedRanks(RankGroup):
    """Rank 0's handle. `stopping`: whether this process was asked to end soon."""

    def __init__(self, launch: Launch, compute: Compute, stopping: Callable[[], bool]):
        self.launch, self.compute, self.stopping = launch, compute, stopping
        self.exchange = Exchange(launch)
        self.number = 0  # of the current run
        self.closed = threading.Event()

    def start(self, results_id: str | None) -> None:
        """Wait until all other ranks are ready. Raise `ConfigError` if one of them cannot work."""
        self.exchange.put("setup", {"results_id": results_id})
        threading.Thread(target=self._forward_stop, daemon=True).start()
        for rank in range(1, self.launch.size):
            key = f"{READY}/{rank}"
            if not wait(lambda key=key: self.exchange.get(key), START_SECONDS, self.stopping, HURRY_SECONDS):  # type: ignore[misc]
                if self.stopping():
                    return
                raise ConfigError(f"{_process(rank)} did not start within {START_SECONDS:.0f} s; look at its messages")
            if problem := self.exchange.get(key)["problem"]:
                raise ConfigError(f"{_process(rank)}: {problem}")

    def _forward_stop(self) -> None:
        """Handle a signal that another machine has received as if it were sent to this process."""
        exchange = Exchange(self.launch)
        while not self.closed.wait(LOOK_SECONDS):
            try:
                number = exchange.get(STOP)
            except RuntimeError:  # torchrun has ended
                number = signal.SIGTERM
            if number is not None:
                if not self.closed.is_set() and not self.stopping():
                    os.kill(os.getpid(), number)
                return

    @contextmanager
    def computing(self, run: Run, folder: Path, missing: list[dict[str, Any]]) -> Iterator[Ranks]:
        if self.launch.size == 1:
            yield ALONE
            return
        self.number += 1
        command = {"key": run.key, "run": run.to_data(), "folder": str(folder), "missing": missing}
        self.exchange.put(f"command/{self.number}", command)
        if not wait(self._have_begun, START_SECONDS, self.stopping, HURRY_SECONDS):
            self.is_broken = True
            raise RankDied("a process of another device does not answer")
        if errors := self._errors():  # before it could begin, so the others wait for it
            self.is_broken = True
            raise errors[0]
        try:
            _join(self.exchange, self.launch, self.compute, self.number)
            yield Ranks(0, self.launch.size, self.compute.sharding)
        except BaseException as error:
            if (cause := self._cause(error)) is not None:
                raise cause from error
            raise
        else:
            self.exchange.put(f"outcome/{self.number}/0", {"error": None})
            self._missing()
        finally:
            _leave()

    def _have_begun(self) -> bool:
        return bool(self._errors()) or self.exchange.count(f"accepted/{self.number}") == self.launch.size - 1

    def _missing(self) -> list[int]:
        """Return the ranks that do not say how they have ended the run. Decide whether the ranks continue together."""
        wait(lambda: not self._silent(), END_SECONDS, self.stopping, HURRY_SECONDS)
        missing = self._silent()
        self.is_broken = self.exchange.decide(f"fate/{self.number}", LEAVE if missing else CONTINUE) == LEAVE
        return missing

    def _silent(self) -> list[int]:
        key = f"outcome/{self.number}/"
        return [rank for rank in range(self.launch.size) if self.exchange.get(key + str(rank)) is None]

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return the error of another rank that has caused the error of this one, if there is one."""
        self.exchange.put(f"outcome/{self.number}/0", _described(error, 0))
        missing = self._missing()
        if not _lost_connection(error):
            return None
        if errors := self._errors():
            return errors[0]
        return RankDied(f"{_process(missing[0])} of the run ended") if missing else None

    def _errors(self) -> list[BaseException]:
        """Return the errors of other ranks that are no consequences of others, the first one first."""
        outcomes = [self.exchange.get(f"outcome/{self.number}/{rank}") for rank in range(1, self.launch.size)]
        errors = [outcome["error"] for outcome in outcomes if outcome and outcome["error"]]
        return [_raisable(e) for e in sorted(errors, key=lambda e: e["order"]) if not e["lost_connection"]]

    def close(self) -> None:
        self.closed.set()


def _process(rank: int) -> str:
    return f"the process of device {rank}"


def _join(exchange: Exchange, launch: Launch, compute: Compute, number: int) -> None:
    device = launch.device(compute.device)
    join(device, exchange.scope(f"run-{number}"), launch.rank, launch.size, launch.on_one_machine)


def _leave() -> None:
    if dist.is_initialized():
        with suppress(RuntimeError):  # the other ranks may have ended
            dist.destroy_process_group()


def _lost_connection(error: BaseException) -> bool:
    """Return whether torch says that it cannot reach another rank."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _described(error: BaseException, order: int) -> dict[str, Any]:
    """Return the outcome of a run that this rank ended by an exception. `order`: how many ranks had an error before."""
    if isinstance(error, Stopped):
        return {"error": None}
    return {
        "error": {
            "line": error_line(error)[:MAX_TEXT],
            "is_permanent": isinstance(error, (ConfigError, TrainingError)),
            "is_own": is_own_error(error),
            "lost_connection": _lost_connection(error),
            "traceback": "".join(traceback.format_tb(error.__traceback__))[-MAX_TEXT:],
            "order": order,
        }
    }


def _raisable(error: Mapping[str, Any]) -> BaseException:
    if error["is_permanent"]:
        return ConfigError(error["line"])
    found = ErrorOfRank(error["line"])
    found.add_note(f"In the process of another device:\n{error['traceback']}")
    return found


# ---- in the processes of the other ranks ---


class _Signal:
    """The first signal that asks this process to end. Rank 0 decides when that is, so it is told."""

    def __init__(self, launch: Launch):
        self.number: int | None = None
        for name in ("SIGINT", "SIGTERM", "SIGUSR2"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._record)
        threading.Thread(target=self._tell, args=(Exchange(launch),), daemon=True).start()

    def _record(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number

    def _tell(self, exchange: Exchange) -> None:
        while self.number is None:
            time.sleep(LOOK_SECONDS)
        with suppress(RuntimeError):  # rank 0 has ended
            exchange.put(STOP, int(self.number))

    def is_set(self) -> bool:
        return self.number is not None


def follow(launch: Launch, runs: Mapping[str, Run], results: str, compute: Compute) -> None:
    """Execute the commands of rank 0 until it ends. `runs`: those of the study, by key.

    If the ranks cannot continue together, end this process with exit code 1.
    """
    ended = _Signal(launch)
    compute.require_usable([launch.device(compute.device)])
    use_process(compute.threads)
    exchange = Exchange(launch)
    if (setup := _next(exchange, "setup", ended)) is None:
        return
    _require_results(results, setup["results_id"])
    exchange.put(f"{READY}/{launch.rank}", {"problem": None})
    number = 1
    while (command := _next(exchange, f"command/{number}", ended)) is not None:
        _leave()
        outcome: dict[str, Any] = {"error": None}
        try:
            run = runs.get(command["key"]) or Run.from_data(command["run"])
            exchange.increase(f"accepted/{number}")
            _join(exchange, launch, compute, number)
            ranks = Ranks(launch.rank, launch.size, compute.sharding)
            device = launch.device(compute.device)
            take_part(run, Path(command["folder"]), command["missing"], compute, device, ranks)
        except BaseException as error:
            outcome = _described(error, exchange.increase(f"errors/{number}"))
        exchange.put(f"outcome/{number}/{launch.rank}", outcome)
        if outcome["error"] is not None:
            _require_all_ended(exchange, number, ended, outcome["error"]["lost_connection"])
        number += 1


def _require_all_ended(exchange: Exchange, number: int, ended: _Signal, is_lost: bool) -> None:
    """End this process unless all others end the run too. They notice it where they wait for this rank."""
    seconds, fate = HURRY_SECONDS if is_lost else END_SECONDS, f"fate/{number}"
    wait(lambda: exchange.get(fate), seconds, ended.is_set, HURRY_SECONDS)
    if exchange.decide(fate, LEAVE) == LEAVE:
        os._exit(1)


def _next(exchange: Exchange, key: str, ended: _Signal) -> Any:
    """Return the next message of rank 0, or None if rank 0 has ended. End this process if rank 0 does not answer a signal."""
    if not wait(lambda: exchange.get(END) is not None or exchange.get(key), float("inf"), ended.is_set, END_SECONDS):
        os._exit(1)
    return exchange.get(key) if exchange.get(END) is None else None


def _require_results(results: str, identifier: str | None) -> None:
    """Raise `ConfigError` if this machine does not have the results folder: after a restart, rank 0 may be here."""
    if open_folder(results).identifier(create=False) != identifier:
        raise ConfigError(
            f"{results} on {socket.gethostname()} is not the results folder of the study; give a folder that all machines share, "
            "or an address such as s3://bucket/folder, with --results"
        )


def report_problem(exchange: Exchange, launch: Launch, error: BaseException) -> None:
    """Tell rank 0 why this process cannot work."""
    exchange.put(f"{READY}/{launch.rank}", {"problem": f"{error_line(error)} (on {socket.gethostname()})"})


def wait_for_end(exchange: Exchange) -> int:
    """Return the exit code of rank 0, when it ends."""
    while (code := exchange.get(END)) is None:
        time.sleep(PAUSE_SECONDS)
    return int(code)
