"""The full reports of studies. Each is rendered in a process of its own, because a large one takes seconds."""

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lengthwise.child_processes import python_command

FRESH = 60.0  # seconds for which a report of changed rows is shown before it is rendered again
NICE = 10  # priority of the processes: training and the pages come first
TOKEN = "LENGTHWISE_TOKEN"  # environment variable of `lengthwise serve`, which no other process needs


class ReportError(ValueError):
    """A report could not be rendered. The message is one line."""


@dataclass(frozen=True)
class _Job:
    """A process that renders the report of a study, whose rows had the fingerprint `state`."""

    study: str
    state: object
    process: subprocess.Popen[bytes]


@dataclass(frozen=True)
class _Page:
    state: object
    text: bytes
    when: float


class Reports:
    """Renders one report at a time and keeps the last one of each study until its rows change."""

    def __init__(self, settings: Mapping[str, str]):
        """`settings`: environment variables that say where the results are."""
        self._environment = {name: value for name, value in os.environ.items() if name != TOKEN} | dict(settings)
        self._folder = tempfile.TemporaryDirectory(prefix="lengthwise-serve-")
        self._page, self._messages = (Path(self._folder.name) / name for name in ("report.html", "messages.txt"))
        self._pages: dict[str, _Page] = {}
        self._errors: dict[str, str] = {}
        self._job: _Job | None = None
        self._lock = threading.Lock()

    def get(self, study: str, state: object) -> bytes | None:
        """Return the report, or None while it is rendered. `state`: the fingerprint of the study's rows now.

        Raises `ReportError` if it could not be rendered; the next call tries again.
        """
        with self._lock:
            if self._job is not None and self._job.process.poll() is not None:
                self._take(self._job)
                self._job = None
            page = self._pages.get(study)
            if page is not None and (page.state == state or time.monotonic() - page.when < FRESH):
                return page.text
            if study in self._errors:
                raise ReportError(f"the report could not be written: {self._errors.pop(study)}")
            if self._job is None:
                self._job = _Job(study, state, self._start(study))
            return None

    def close(self) -> None:
        """End the process that renders, and delete its files."""
        with self._lock:
            if self._job is not None:
                self._job.process.kill()
                self._job.process.wait()
            self._job = None
            self._folder.cleanup()

    def _start(self, study: str) -> subprocess.Popen[bytes]:
        command = python_command("-m", "lengthwise", "report", f"--study={study}", f"--output={self._page}")
        with open(self._messages, "wb") as messages:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for this process, which ends the other one
            )
        if hasattr(os, "setpriority"):
            with contextlib.suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        return process

    def _take(self, job: _Job) -> None:
        if job.process.returncode == 0 and self._page.exists():
            self._pages[job.study] = _Page(job.state, self._page.read_bytes(), time.monotonic())
            self._page.unlink()
            return
        lines = self._messages.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        self._errors[job.study] = (
            lines[-1].removeprefix("lengthwise: ") if lines else f"exit code {job.process.returncode}"
        )
