"""A command in the processes of torchrun: the first one executes it and prints, and the others end with its exit code."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

from lengthwise.torchrun import Launch

GOODBYE_SECONDS = {True: 10.0, False: 3.0}  # for the other processes to notice the end, after a success or an error


def first_rank(launch: Launch, run: Callable[[], int]) -> int:
    """Run a command in the first process, and tell its exit code to the others."""
    from lengthwise.config import ConfigError
    from lengthwise.studies.rank_groups.exchange import END, ENDED, session

    code = None
    try:
        with session(launch) as exchange:
            code = run()
            exchange.put(END, code)
            end = time.monotonic() + GOODBYE_SECONDS[code == 0]
            while exchange.count(ENDED) < launch.size - 1 and time.monotonic() < end:
                time.sleep(0.05)
    except (RuntimeError, KeyboardInterrupt) as error:  # torchrun has ended, or asks this process to end
        return 128 + int(getattr(error, "signal", signal.SIGTERM)) if code is None else code
    except ConfigError as error:
        print(f"lengthwise: {error}", file=sys.stderr)
        return 2
    return code


def other_rank(launch: Launch, run: Callable[[], int]) -> NoReturn:
    """Run a command in another process, quietly, and end the process with the exit code of the first one."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the first process prints the same
    warnings.simplefilter("ignore")
    code = 1
    try:
        from lengthwise.studies.rank_groups.exchange import ENDED, session
        from lengthwise.studies.rank_groups.launched import report_problem, wait_for_end

        with session(launch) as exchange:
            try:
                run()
            except (Exception, SystemExit) as error:
                report_problem(exchange, launch, error)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = wait_for_end(exchange)
            exchange.increase(ENDED)
    except BaseException:  # the first process has ended without saying so, or a signal ends this one
        pass
    os._exit(code)  # shutting torch down would wait for the others
