"""The command line `lengthwise`, also `python -m lengthwise`.

The verbs are in `app.py`, what they take in `options.py`. Nothing heavy is imported before a verb needs it: help answers at
once, and what only reads results never imports torch.
"""

import _thread
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["main"]

UNWINDING = 5.0  # seconds that SIGTERM leaves a command to give back and remove what it has begun
WRONG = 2  # the exit code of everything that the user can put right


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. 0: done; 1: some runs failed; 2: it cannot be done, as one line on stderr says.

    130 and 143: stopped by Ctrl-C and by SIGTERM. With LENGTHWISE_DEBUG=1 errors show where they come from.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by whoever started this: there is nobody to print for
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a letter shows a question mark
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with _signals_remembered() as came, _rows_left_out():
        return _answer(given, came)


def _answer(given: list[str], came: list[KeyboardInterrupt]) -> int:
    try:
        code = _run(given)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        return _stopped(interrupt)
    except BrokenPipeError:  # as in `lengthwise list runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if came:  # it hit an import inside a package, which went on half made: what failed later says nothing
            return _stopped(came[-1])
        if os.environ.get("LENGTHWISE_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        from lengthwise.cli.printing import shown
        from lengthwise.values import without_secrets

        print(f"lengthwise: {shown(without_secrets(_line(error, given)))}", file=sys.stderr)
        return WRONG
    return code


class _Terminated(KeyboardInterrupt):
    """SIGTERM: it unwinds as Ctrl-C does, so that whatever is under way is given back and removed."""

    signal = signal.SIGTERM


@contextmanager
def _signals_remembered() -> Iterator[list[KeyboardInterrupt]]:
    """Raise SIGTERM too. A list that is no longer empty once Ctrl-C or SIGTERM came, also when some package swallowed what was
    raised. Outside the main thread, and where whoever calls has handlers of their own, signals stay as they are."""
    came: list[KeyboardInterrupt] = []
    over = threading.Event()

    def note(number: int, _: FrameType | None) -> None:
        came.append(_Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        if number == signal.SIGTERM:  # by the bare function: a `Thread` takes a lock that the code below may hold
            _thread.start_new_thread(_end_late, (over, came[-1]))
        raise came[-1]

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    own = threading.current_thread() is threading.main_thread()
    ours = {number: old for number, old in usual.items() if own and signal.getsignal(number) is old}
    try:
        for number in ours:
            signal.signal(number, note)
        yield came
    finally:
        over.set()
        for number, old in ours.items():
            signal.signal(number, old)


def _end_late(over: threading.Event, interrupt: KeyboardInterrupt) -> None:
    """End the process if what was raised was swallowed, which imports of torch do now and then. Nobody repeats a SIGTERM."""
    if not over.wait(UNWINDING):
        os._exit(_stopped(interrupt))


@contextmanager
def _rows_left_out() -> Iterator[None]:
    """Says once on stderr which row of a database could not be read (`StoreWarning`), in one line each."""
    said: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__name__ != "StoreWarning" or category.__module__ != "lengthwise.store.errors":
                usual(message, category, *where, **more)
            elif (line := str(message)) not in said:
                said.add(line)
                print(f"lengthwise: {line}", file=sys.stderr)  # it is ASCII and has no control characters

        warnings.showwarning = show
        warnings.filterwarnings("always", module=r"lengthwise\.store\.")
        yield


def _run(given: list[str]) -> int:
    try:
        from lengthwise.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "cyclopts":
            raise
        raise OSError(_extra("cyclopts")) from error
    code = app(given or ["--help"], exit_on_error=False, print_error=False, result_action="return_value")
    return code if isinstance(code, int) else 0


def _stopped(interrupt: KeyboardInterrupt) -> int:
    """One line on how to go on."""
    counts = getattr(interrupt, "counts", None)
    how = "run the same command again to continue"
    if counts is not None:
        how = f"{counts['done']} of {sum(counts.values())} runs are done and everything is kept; {how}"
    print(f"\nlengthwise: stopped; {how}", file=sys.stderr)
    return 128 + int(getattr(interrupt, "signal", 2))


def _line(error: Exception, given: list[str]) -> str:
    """What is wrong and what to do, in one line."""
    kind = type(error)
    text = " ".join(str(error).split())
    if kind.__module__.startswith("cyclopts"):
        verb = given[0] if given and not given[0].startswith("-") and kind.__name__ != "UnknownCommandError" else ""
        text = text.partition(" Available commands: ")[0].removesuffix("...").rstrip(" ,.")
        return f"{text}; `{' '.join(filter(None, ['lengthwise', verb, '--help']))}` shows how it is written"
    from lengthwise.plugins import LOADED, fault_of_a_file
    from lengthwise.values import listing

    fault = fault_of_a_file(error)
    if isinstance(error, ModuleNotFoundError) and fault is None and not (error.name or "").startswith("lengthwise"):
        return _extra(error.name or "a package")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}"
    if isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        size = re.search(r"allocate ([\d.]+ ?\w+)", text)
        asked = f" ({size[1]} in one piece)" if size else ""
        return f"there is not enough memory for this{asked}; ask for shorter lengths, fewer examples or smaller batches"
    if isinstance(error, ValueError) and kind.__module__.startswith("lengthwise."):
        return text
    if fault is not None:
        return fault
    whose = "this looks like a fault in the program"
    if files := getattr(error, LOADED, None):
        whose = f"a class in {listing(files)} may break a rule of its kind, or this is a fault in the program"
    return f"{kind.__name__}: {text}; {whose}, LENGTHWISE_DEBUG=1 shows where"


def _extra(name: str) -> str:
    return f"the package {name} is missing; install the laboratory with: pip install 'lengthwise[lab]'"
