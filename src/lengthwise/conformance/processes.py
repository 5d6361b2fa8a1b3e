"""Compute independent results on all cores."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from lengthwise.child_processes import cores, end_with_parent, starting_processes
from lengthwise.plugins import load_plugins, loaded_plugins

# What shows progress during a block: it gets a text, how much is done, and the total.
Progress = Callable[[], AbstractContextManager[Callable[[str, float, float], None]]]
_T = TypeVar("_T")
_R = TypeVar("_R")


def no_progress() -> AbstractContextManager[Callable[[str, float, float], None]]:
    return nullcontext(lambda text, done, total: None)


def run_in_processes(
    function: Callable[[_T], _R], tasks: Sequence[_T], on_result: Callable[[_T, _R], None]
) -> list[_R]:
    """Return `function(task)` for each task, in order. Processes with one thread each call it, at most 16 at a time.

    `on_result` is called with each task and its result, in order.
    """
    results: list[_R] = []
    spawn = multiprocessing.get_context("spawn")
    earlier_children = multiprocessing.active_children()
    with starting_processes():
        executor = ProcessPoolExecutor(min(cores(), 16), spawn, initializer=_init_worker, initargs=(loaded_plugins(),))
    with executor as pool:
        try:
            with starting_processes():
                futures = [pool.submit(function, task) for task in tasks]
            for task, future in zip(tasks, futures, strict=True):
                results.append(future.result())
                on_result(task, results[-1])
        except BaseException:  # Ctrl-C, SIGTERM: leaving the pool would wait for the tasks that are being computed
            for process in multiprocessing.active_children():
                if process not in earlier_children:
                    process.kill()
            raise
    return results


def _init_worker(plugins: tuple[str, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the parent handles it
    end_with_parent()  # workers hold each other's pipes open, so a closed pipe does not show that the parent ended
    torch.set_num_threads(1)
    load_plugins(plugins)
