"""The process of one tracker: it reads messages from its input, one JSON object in a line, and tells problems on its output.

A process of its own keeps the library away from the training: from its random state, its threads and signals, its environment
and its output, and from waiting for a network. It ends when its input ends, so it does not outlive the worker for long.
"""

import json
import os
import re
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, TextIO

from lengthwise.trackers import TRACKERS, TrackedRun, TrackedScore, Tracker
from lengthwise.values import without_secrets

LAST_SECONDS = 60.0  # to finish after the worker has ended
MAX_TEXT = 300  # characters of a problem
_SECRET_NAME = re.compile("KEY|TOKEN|PASSWORD|SECRET", re.IGNORECASE)


def main() -> None:
    output = _private_output()
    for name in ("SIGINT", "SIGTERM", "SIGUSR2"):  # the worker handles them
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    warnings.simplefilter("ignore")
    try:
        _serve(sys.stdin, output)
    except BaseException as error:
        print(json.dumps({"problem": problem(error)}), file=output, flush=True)
        os._exit(1)
    os._exit(0)  # threads of a library cannot keep the process


def _private_output() -> TextIO:
    """Return the standard output, and keep what libraries print away from it."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    return output


def _serve(messages: TextIO, output: TextIO) -> None:
    first = json.loads(messages.readline())
    tracker: Tracker = TRACKERS[first["tracker"]](**first["settings"])
    last_step = tracker.begin(TrackedRun(**first["run"]), Path(first["results"]))
    print(json.dumps({"has_begun": True}), file=output, flush=True)
    for line in messages:
        last_step, is_last = _handle(tracker, json.loads(line), last_step)
        if is_last:
            return
    threading.Timer(LAST_SECONDS, os._exit, (1,)).start()
    tracker.end("stopped")


def _handle(tracker: Tracker, message: dict[str, Any], last_step: int) -> tuple[int, bool]:
    """Pass a message to the tracker. Return the last step that is logged now, and whether this was the last message."""
    if points := [point for point in message.get("points", ()) if point["step"] > last_step]:
        tracker.log_points(points)
        last_step = points[-1]["step"]
    if scores := message.get("scores"):
        tracker.log_scores([TrackedScore(**score) for score in scores])
    if (status := message.get("status")) is not None:
        tracker.end(status)
    return last_step, status is not None


def problem(error: BaseException) -> str:
    """Return an error of a library in one line, without passwords and API keys."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= 4:
            text = text.replace(value, "***")
    text = without_secrets(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
