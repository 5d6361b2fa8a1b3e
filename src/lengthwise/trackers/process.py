"""`TrackerProcess`: one tracker of one run, in a process that never makes its caller wait."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lengthwise.child_processes import python_command
from lengthwise.trackers.base import Tracker

CODE = "from lengthwise.trackers.child import main; main()"
NO_REPORTS = {  # what the libraries send to their makers unless they are told not to
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}


class TrackerProcess:
    """Send messages to the process of a tracker. After its first problem, further messages are ignored."""

    def __init__(self, tracker: Tracker, first: dict[str, Any]):
        self.tracker = tracker
        self.problem: str | None = None
        self._has_begun = False
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        environment = {**os.environ, **NO_REPORTS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            self._process: subprocess.Popen[str] | None = subprocess.Popen(
                python_command("-c", CODE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                env=environment,
                start_new_session=True,  # signals for the worker's group do not end it before the worker
            )
        except OSError as error:
            self._process = None
            self.problem = f"its process cannot be started ({error.strerror})"
            return
        for target in (self._write, self._read):
            threading.Thread(target=target, daemon=True).start()
        self.send({"tracker": tracker.name, "settings": tracker.to_data(), **first})

    def send(self, message: dict[str, Any]) -> None:
        self._messages.put(message)

    def finish(self, status: str, must_hurry: Callable[[], bool], seconds: float, hurried_seconds: float) -> None:
        """End the run in the tracker, and wait for the process. It is killed after `seconds`, or sooner if it must hurry."""
        if self._process is None:
            return
        self.send({"status": status})
        self._messages.put(None)
        begin = time.monotonic()
        while self._process.poll() is None:
            if time.monotonic() - begin > (hurried_seconds if must_hurry() else seconds):
                self.kill()
                self.problem = self.problem or self._silence
                return
            time.sleep(0.02)
        if self._process.returncode and self.problem is None:
            time.sleep(0.1)  # for the thread that reads the problem
            self.problem = self.problem or f"its process ended with exit code {self._process.returncode}"

    def kill(self) -> None:
        """End the process at once, without the last points."""
        self._messages.put(None)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _silence(self) -> str:
        if self._has_begun:
            return "it did not finish in time, so its last points may be missing"
        return "it could not begin in time; it may be offline"

    def _write(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError, ValueError), self._process.stdin as pipe:
            while (message := self._messages.get()) is not None:
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with suppress(OSError, ValueError), self._process.stdout as pipe:
            for line in pipe:
                message = json.loads(line)
                self._has_begun = self._has_begun or "has_begun" in message
                self.problem = message.get("problem", self.problem)
