"""Run a command in this process: its exit code, signals, warnings and error messages."""

import _thread
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lengthwise.torchrun import launched

SHUTDOWN_SECONDS = 5.0  # time that SIGTERM leaves a command to release and remove what it has started
RAISED_AGAIN_AFTER = 0.05  # seconds
USER_ERROR = 2  # exit code of every error that the user can fix
EXECUTING = (
    "work",
    "run",
    "compare",
)  # commands that all processes of torchrun would execute, of which only `work` can


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 1: some runs failed. 2: an error, explained in one line on stderr. 130 and 143: stopped by Ctrl-C and by SIGTERM.
    With LENGTHWISE_DEBUG=1, errors are printed with their traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # the parent process closed it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # print a question mark for characters that the terminal cannot show
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if len(arguments) == 3 and arguments[0] == "work" and (arguments[1] == "-" or arguments[1].endswith(".json")):
        from lengthwise.studies import worker_process

        worker_process.main(arguments[1], int(arguments[2]))  # it handles signals itself
    launch = launched() if arguments and arguments[0] in EXECUTING else None
    if launch is not None and not launch.is_first:
        from lengthwise.studies import worker_process

        worker_process.follow_first_rank(launch)
    with _recorded_signals() as interrupts:
        code = _exit_code(arguments, interrupts)
    if launch is not None:
        from lengthwise.studies import worker_process

        worker_process.end_ranks(launch, code)
    return code


def _exit_code(arguments: list[str], interrupts: list[KeyboardInterrupt]) -> int:
    try:
        code = _run(arguments)
        sys.stdout.flush()
        if interrupts:  # a callback in which Python ignores exceptions swallowed it
            return _report_interrupt(interrupts[-1])
    except KeyboardInterrupt as interrupt:
        return _report_interrupt(interrupt)
    except BrokenPipeError:  # as in `lengthwise list runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):  # rich's answer to it
            return 0
        if interrupts:  # the interrupt left an import in some package unfinished, which caused this error
            return _report_interrupt(interrupts[-1])
        if os.environ.get("LENGTHWISE_DEBUG", "") not in ("", "0"):
            traceback.print_exc()
        from lengthwise.cli.printing import one_line
        from lengthwise.values import without_secrets

        print(f"lengthwise: {one_line(without_secrets(_error_message(error, arguments)))}", file=sys.stderr)
        return USER_ERROR
    return code


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds the stack like Ctrl-C, so that every `finally` block runs."""

    signal = signal.SIGTERM


@contextmanager
def _recorded_signals() -> Iterator[list[KeyboardInterrupt]]:
    """Yield a list to which Ctrl-C and SIGTERM append their exception before they raise it.

    The list shows an interrupt even if some package swallowed the exception. Handlers are installed only in the main thread, and
    only if the caller has no handlers of its own.
    """
    interrupts: list[KeyboardInterrupt] = []
    finished = threading.Event()

    def swallowed(unraisable: Any) -> None:
        """Raise the signal again shortly after an interrupt in a callback (of a weak reference, say) that cannot raise it."""
        if unraisable.exc_value not in interrupts:
            return usual_hook(unraisable)
        number = getattr(unraisable.exc_value, "signal", signal.SIGINT)
        timer = threading.Timer(RAISED_AGAIN_AFTER, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    def handle(number: int, _: FrameType | None) -> None:
        interrupts.append(_Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        if number == signal.SIGTERM:  # not a `Thread`, which takes a lock that the interrupted code may hold
            _thread.start_new_thread(_exit_after_timeout, (finished, interrupts[-1]))
        raise interrupts[-1]

    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    in_main_thread = threading.current_thread() is threading.main_thread()
    replaced = {number: old for number, old in defaults.items() if in_main_thread and signal.getsignal(number) is old}
    usual_hook = sys.unraisablehook
    try:
        if replaced:
            sys.unraisablehook = swallowed
        for number in replaced:
            signal.signal(number, handle)
        yield interrupts
    finally:
        finished.set()
        sys.unraisablehook = usual_hook
        for number, old in replaced.items():
            signal.signal(number, old)


def _exit_after_timeout(finished: threading.Event, interrupt: KeyboardInterrupt) -> None:
    """End the process if the exception was swallowed, as imports of torch sometimes do: SIGTERM is sent only once."""
    if not finished.wait(SHUTDOWN_SECONDS):
        os._exit(_report_interrupt(interrupt))


def _run(arguments: list[str]) -> int:
    try:
        from lengthwise.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "cyclopts":
            raise
        raise OSError(_missing_package("cyclopts")) from error
    if arguments and arguments[0] in EXECUTING and arguments[0] != "work" and launched() is not None:
        from lengthwise.values import ConfigError

        raise ConfigError(
            f"torchrun -m lengthwise {arguments[0]} is not supported; use torchrun -m lengthwise work STUDY, or omit torchrun"
        )
    code = app(arguments or ["--help"], exit_on_error=False, print_error=False, result_action="return_value")
    return code if isinstance(code, int) else 0


def _report_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Print in one line how to continue, and return the exit code."""
    counts = getattr(interrupt, "counts", None)
    hint = getattr(interrupt, "hint", "run the same command again to continue")
    if counts is not None:
        saved = "and all progress is saved"
        if getattr(interrupt, "killed", False):
            saved = "and workers that did not answer were killed, which loses the steps since their last checkpoints"
        hint = f"{counts['done']} of {sum(counts.values())} runs are done {saved}; {hint}"
    print(f"\nlengthwise: stopped; {hint}", file=sys.stderr)
    return 128 + int(getattr(interrupt, "signal", 2))


def _error_message(error: BaseException, arguments: list[str]) -> str:
    """Return in one line what is wrong and how to fix it."""
    kind = type(error)
    text = " ".join(str(error).split())
    if kind.__name__ == "UnknownCommandError" and arguments:
        from lengthwise.probes import PROBES

        if (probe := PROBES.get(arguments[0])) is not None:
            return f"{probe.name} is a probe and not a command; use `{probe.command}`"
    if kind.__module__.startswith("cyclopts"):
        known = list(getattr(error, "command_chain", None) or ())
        text = text.partition(" Available commands: ")[0].removesuffix("...").rstrip(" ,.")
        return f"{text}; see `{' '.join(['lengthwise', *known, '--help'])}`"
    from lengthwise.machine_memory import out_of_memory_line
    from lengthwise.plugins import LOADED, error_in_user_file
    from lengthwise.values import join_names

    user_error = error_in_user_file(error)
    if (
        isinstance(error, ModuleNotFoundError)
        and user_error is None
        and not (error.name or "").startswith("lengthwise")
    ):
        return _missing_package(error.name) if error.name else text  # an import of ours says itself what to install
    if isinstance(error, OSError):
        path = "" if error.filename is None else f"{error.filename or 'the empty path'}: "
        return f"{path}{error.strerror or text}"
    if text == "can't start new thread":
        return "this machine cannot start more threads or processes now; use fewer --workers and --threads, or try again later"
    if (line := out_of_memory_line(error)) is not None:
        return line
    if isinstance(error, ValueError) and kind.__module__.startswith("lengthwise."):
        return text
    if user_error is not None:
        return user_error
    cause = "this is probably a bug in lengthwise"
    if files := getattr(error, LOADED, None):
        cause = f"a class in {join_names(files)} may not follow its base class's rules, or this is a bug in lengthwise"
    return f"{kind.__name__}: {text}; {cause}; set LENGTHWISE_DEBUG=1 to see the traceback"


def _missing_package(name: str) -> str:
    from lengthwise.values import install_extra

    return f"the package {name} is missing; {install_extra('lab')}"
