"""A process of torchrun that is not the first one: it does what rank 0 says, and ends with its exit code."""

import os
import sys
import threading
import time
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from lengthwise.config import Run
from lengthwise.evaluation import Division, evaluate, shifted, together
from lengthwise.studies.parent import ORPHAN_SECONDS, Parent
from lengthwise.studies.ranks import END_SECONDS, Messages, described, leave
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker import prepared
from lengthwise.torchrun import Launch
from lengthwise.training import train
from lengthwise.training.ranks import Ranks
from lengthwise.validation import from_json


def follow(launch: Launch, parent: Parent) -> NoReturn:
    """Execute the messages of rank 0 until it ends, quietly, and end this process with its exit code, or with 1 without
    it.

    `parent` asks all ranks to stop after the same step. It gets no events.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # rank 0 prints the same
    warnings.simplefilter("ignore")
    code = 1
    with suppress(BaseException):  # rank 0 or torchrun has ended
        code = _follow(launch, parent)
    os._exit(code)  # shutting torch down would wait for the others


def _follow(launch: Launch, parent: Parent) -> int:
    threading.Thread(target=_watch_parent, daemon=True).start()
    messages, seconds = Messages(launch), float("inf")
    with ExitStack() as stack:
        while (message := messages.receive(seconds, parent.stop_requested.is_set)) is not None:
            seconds, error = float("inf"), None
            try:
                if "spec" in message:
                    stack.close()
                    spec = from_json(Spec, message["spec"])
                    stack.enter_context(prepared(spec, parent))
                    spec.compute.require_usable([launch.device(spec.compute.device)])
                elif "run" in message:
                    messages.join(launch.device(spec.compute.device))
                    _take_part(message, spec, launch, parent)
                elif "leave" in message:
                    leave()
            except BaseException as raised:
                error = described(raised)
            messages.answer(error)
            if "end" in message:
                return int(message["end"])
            if error is not None and error["lost_connection"]:
                return 1
            if error is not None and "run" in message:
                seconds = END_SECONDS  # if the other ranks have no error, they wait for this one, and cannot go on
    return 1


def _watch_parent() -> None:
    """End this process 20 s after torchrun has ended, so that rank 0 can end in order."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def _take_part(message: dict[str, Any], spec: Spec, launch: Launch, parent: Parent) -> None:
    """Do in this process what `Worker.run` does in rank 0, without the store."""
    run, ranks = Run.from_data(message["run"]), Ranks(launch.rank, launch.size, spec.compute.sharding)
    trained = train(
        run,
        Path(message["folder"]),
        device=launch.device(spec.compute.device),
        backend=spec.compute.backend,
        should_stop=parent.stop_requested.is_set,
        optimizations=spec.compute.optimizations,
        ranks=ranks,
    )
    for config, shift in together(message["missing"]):
        evaluate(
            trained.model,
            shifted(run.task, shift).build() if shift else trained.task,
            config,
            positions=run.training.positions,
            shift=shift,
            division=Division(ranks=ranks),
        )
