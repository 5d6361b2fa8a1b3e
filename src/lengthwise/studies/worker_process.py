"""A worker in a process of its own: the command `lengthwise work WHERE DEVICES`, which the executors start.

WHERE is `-` if the process that starts the command watches it. Then the first line of standard input is the `Spec`, and
a second one asks the worker to stop. It ends soon after standard input is closed, because its parent has ended.
Standard output gets events, one a line. Otherwise WHERE is a JSON file with the `Spec`, and events are printed for a
log. SIGTERM and SIGUSR2 ask the worker to stop too.

With several DEVICES, the command starts itself under torchrun, once for each of them.
"""

import json
import logging
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from lengthwise.child_processes import exit_reason, without_interrupts
from lengthwise.config import ConfigError
from lengthwise.errors import error_line
from lengthwise.studies.events import Advanced, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.other_rank import follow
from lengthwise.studies.parent import ORPHAN_SECONDS, STOP_SIGNALS, Flag
from lengthwise.studies.ranks import NO_GROUP, ranks_of
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker import debugging, work
from lengthwise.torchrun import Launch, launched
from lengthwise.validation import from_json

WATCHED = "-"  # in place of a file
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR2"  # which the agent of torchrun passes on


@dataclass(frozen=True, kw_only=True)
class Ready(Event):
    """The worker is ready, and its name in the store."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The last event of a worker that ends by itself. `error`: one line if it cannot work, and no other one could."""

    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class RankLost(Event):
    """The last event of torchrun's agent: why the worker ended, or a process that computes its runs with it."""

    reason: str


EVENTS = {kind.__name__: kind for kind in (Advanced, Done, Failed, Note, Released, Started, Ready, Finished, RankLost)}


def worker_command(where: str, devices: int) -> list[str]:
    """Return the command that starts a worker. It imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", "lengthwise", "work", where, str(devices)]


class WorkerProcess:
    """The parent's handle of a worker process. A thread puts its events into `inbox`, each with the handle."""

    def __init__(self, spec: Spec, inbox: "queue.SimpleQueue[tuple[WorkerProcess, Event]]"):
        self._spec, self._inbox = spec, inbox
        with without_interrupts():
            self.process = subprocess.Popen(
                worker_command(WATCHED, spec.compute.devices_per_run),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONSAFEPATH": "1"},  # for the processes that it starts
            )
        self.name: str | None = None  # its name in the store; None until it is ready
        self.key = ""  # of its current run
        self.last: Event | None = None  # `Finished` or `RankLost`
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout
        self._write(self._spec.to_json())
        for line in self.process.stdout:
            name, _, text = line.partition(b" ")
            with suppress(KeyError, ValueError):  # a part of a line, whose process was killed
                self._inbox.put((self, from_json(EVENTS[name.decode()], text)))

    def _write(self, line: str) -> None:
        assert self.process.stdin
        with suppress(OSError):  # the process has already ended
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def has_ended(self) -> bool:
        """Return whether the process has ended and its events are in the inbox."""
        if self.process.poll() is None:
            return False
        self._thread.join(1.0)  # it lasts longer if processes that the worker has started still have the pipe
        return True

    @property
    def error(self) -> str | None:
        """Why neither this worker nor another one can work, in one line."""
        return self.last.error if isinstance(self.last, Finished) else None

    @property
    def reason(self) -> str:
        """Why the process ended, in words."""
        return self.last.reason if isinstance(self.last, RankLost) else exit_reason(self.process.returncode)

    def stop(self) -> None:
        """Ask the worker to save a checkpoint, to release its run and to end."""
        self._write("stop")
        if self.name is None:
            self.process.terminate()  # it is still importing, and has no run yet

    def close(self) -> None:
        """Wait for the end of the process. What it has left behind ends because its standard input is closed."""
        self.process.wait()
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]


def line_of(event: Event) -> str:
    """Return an event as a line of text. Half surrogates, which JSON forbids, become question marks."""
    text = json.dumps(asdict(event), ensure_ascii=False)
    return f"{type(event).__name__} {text.encode('utf-8', 'replace').decode()}"


# ---- in the worker process ----------------------------------------------------------------------------------------


class _Parent:
    """The parent of a worker without one: signals ask it to stop, and events are printed for a log."""

    def __init__(self) -> None:
        self.stop_requested = Flag()
        self.signal = 0  # the first one
        for number in (signal.SIGINT, *STOP_SIGNALS):
            signal.signal(number, self._record)

    def _record(self, number: int, _: object) -> None:
        self.signal = self.signal or number
        self.stop_requested.set()

    def send(self, event: Event) -> None:
        if isinstance(event, Finished) and event.error is not None:
            print(f"lengthwise: {event.error}", flush=True)
        elif not isinstance(event, (Advanced, Ready)):
            print(time.strftime("%Y-%m-%d %H:%M:%S"), event, flush=True)


class _WatchingParent(_Parent):
    """The parent at the other ends of standard input and standard output, which users' code does not get."""

    def __init__(self) -> None:
        super().__init__()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to the parent too
        self._lock = threading.Lock()
        self._input, self._output = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def spec(self) -> str:
        """Return the first line from the parent. From now on, stop when it says so or when it has ended."""
        line = self._input.readline().decode()
        threading.Thread(target=self._watch, daemon=True).start()
        return line

    def _watch(self) -> None:
        while self._input.readline():
            self.stop_requested.set()
        self.stop_requested.set()
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    def send(self, event: Event) -> None:
        with self._lock, suppress(OSError):  # the parent may have ended
            self._output.write(f"{line_of(event)}\n".encode())
            self._output.flush()


def main(where: str, devices: int) -> NoReturn:
    """Work until all runs are finished, a signal arrives, or the parent has ended.

    End this process with 128 + the signal's number, 1 after an error, or 0. Shutting torch down would only take time.
    """
    launch = launched()
    if launch is None and devices > 1:
        code = _start_ranks(where, devices)
    else:
        parent = _WatchingParent() if where == WATCHED else _Parent()
        if launch is not None and not launch.is_first:
            follow(launch, parent)
        code = _work(where, parent, launch)
    sys.stdout.flush()
    if where != WATCHED and launch is None:
        from lengthwise.studies.executors.slurm import end_job

        end_job(code - 128)
    os._exit(code)


def follow_first_rank(launch: Launch) -> NoReturn:
    """Do in another process of torchrun what the first one says, and end with its exit code."""
    follow(launch, _Parent())


def end_ranks(launch: Launch, code: int) -> None:
    """End the other processes of torchrun with the exit code of this one."""
    with suppress(ConfigError, KeyboardInterrupt):  # they did not begin, or a signal asks all of them to end
        ranks_of(launch).end(code)


def _work(where: str, parent: _Parent, launch: Launch | None) -> int:
    finished, group = Finished(), NO_GROUP
    try:
        spec = from_json(Spec, parent.spec() if isinstance(parent, _WatchingParent) else Path(where).read_bytes())
        group = NO_GROUP if launch is None else ranks_of(launch)
        work(spec, parent, lambda name: parent.send(Ready(name=name)), group)
    except (Exception, SystemExit) as error:
        if debugging():
            traceback.print_exc()
        finished = Finished(error=error_line(error))
    if not group.is_broken:
        parent.send(finished)
    code = 1 if group.is_broken or finished.error else 128 + parent.signal if parent.signal else 0
    group.end(code)
    return code


def _start_ranks(where: str, devices: int) -> int:
    """Start this command once for each device, under an agent of torchrun, and wait for the end of all."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # one line says what happened
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",  # the host name of a single machine may not be resolvable
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        max_restarts=0,
        signals_to_handle=SIGNALS,
    )
    python, *arguments = worker_command(where, devices)
    try:
        elastic_launch(config, python)(*arguments)
    except SignalException as received:
        return 128 + int(received.sigval)
    except ChildFailedError as error:
        rank, failure = min(error.failures.items())
        reason = f"device {rank}: {exit_reason(failure.exitcode)}"
        print(f"\n{line_of(RankLost(reason=reason))}" if where == WATCHED else f"lengthwise: {reason}", flush=True)
        return 1
    return 0
