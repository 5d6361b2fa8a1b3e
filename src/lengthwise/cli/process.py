"""Run a command in this process: its exit code, signals and error messages."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from lengthwise.torchrun import launched

USER_ERROR = 2  # exit code of every error that the user can fix
# Commands that all processes of torchrun would execute, of which only `work` can.
EXECUTING = ("work", "run", "compare")

# Commands that go on where they were stopped. The others begin anew.
CONTINUING = ("run", "work", "compare", "tokenize", "probe", "reach", "extend")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 1: some runs failed. 2: an error, explained in one line on stderr. 130 and 143: stopped by Ctrl-C and by
    SIGTERM. With LENGTHWISE_DEBUG=1, errors are printed with their traceback.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
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
    command = arguments[0] if arguments else ""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        return _report_interrupt(interrupt, command)
    except BrokenPipeError:  # as in `lengthwise list runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):  # rich's answer to it
            return 0
        if interrupts:  # the interrupt left an import in some package unfinished, which caused this error
            return _report_interrupt(interrupts[-1], command)
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

    Handlers are installed only in the main thread, and only if the caller has no handlers of its own.
    """
    interrupts: list[KeyboardInterrupt] = []

    def handle(number: int, _: FrameType | None) -> None:
        interrupts.append(_Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise interrupts[-1]

    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    in_main_thread = threading.current_thread() is threading.main_thread()
    replaced = {number: old for number, old in defaults.items() if in_main_thread and signal.getsignal(number) is old}
    for number in replaced:
        signal.signal(number, handle)
    try:
        yield interrupts
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)


def _run(arguments: list[str]) -> int:
    from lengthwise.cli.app import run

    if arguments and arguments[0] in EXECUTING and arguments[0] != "work" and launched() is not None:
        from lengthwise.values import ConfigError

        raise ConfigError(
            f"torchrun -m lengthwise {arguments[0]} is not supported; use torchrun -m lengthwise work STUDY, or omit "
            "torchrun"
        )
    code = run(arguments)
    return code if isinstance(code, int) else 0


def _report_interrupt(interrupt: KeyboardInterrupt, command: str) -> int:
    """Print in one line how to continue the command, and return the exit code."""
    counts = getattr(interrupt, "counts", None)
    default = "run the same command again" + (" to continue" if command in CONTINUING else "")
    hint = getattr(interrupt, "hint", default)
    if counts is not None:
        saved = "and all progress is saved"
        if getattr(interrupt, "killed", False):
            saved = "and workers that did not answer were killed, which loses the steps since their last checkpoints"
        hint = f"{counts['done']} of {sum(counts.values())} runs are done {saved}; {hint}"
    print(f"\nlengthwise: stopped; {hint}", file=sys.stderr)
    return 128 + int(getattr(interrupt, "signal", 2))


def _error_message(error: BaseException, arguments: list[str]) -> str:
    """Return in one line what is wrong and how to fix it."""
    from cyclopts import MissingArgumentError

    from lengthwise.cli.printing import counted
    from lengthwise.errors import expected_line, first_line

    if type(error).__name__ == "UnknownCommandError" and arguments:
        from lengthwise.measurements import MEASUREMENTS, PROBES

        name = arguments[1] if arguments[0] == "probe" and len(arguments) > 1 else arguments[0]
        if name in MEASUREMENTS:
            not_this = "a probe of trained models" if name not in PROBES else "a command"
            return f"{name} is not {not_this}; use `{MEASUREMENTS[name].command}`"
    if type(error).__module__.startswith("cyclopts"):
        command = " ".join(["lengthwise", *(getattr(error, "command_chain", None) or ())])
        if type(error) is MissingArgumentError and error.argument is not None:
            needed, _ = error.argument.token_count()
            option = error.keyword or next((t.keyword for t in error.argument.tokens if t.keyword), None)
            what, needs = (option, counted(needed, "value")) if option else (command, error.argument.name)
            return f"{what.removeprefix('lengthwise ')} needs {needs}; see `{command} --help`"
        text = " ".join(str(error).split()).partition(" Available commands: ")[0].removesuffix("...").rstrip(" ,.")
        return f"{text}; see `{command} --help`"
    if (line := expected_line(error)) is not None:
        return line
    cause = "this is probably a bug in lengthwise"
    if any(word.startswith("--plugin") for word in arguments):
        cause = "a class of your plug-in may not follow its base class's rules, or this is a bug in lengthwise"
    return f"{first_line(error)}; {cause}; set LENGTHWISE_DEBUG=1 to see the traceback"
