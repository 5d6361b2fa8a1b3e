"""Call transformers about a folder that somebody else made: without the hub, without its output, with its errors in one line."""

import contextlib
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lengthwise.config import ConfigError


@contextmanager
def calling(path: Path, purpose: str, *, asked: bool = False) -> Iterator[None]:
    """Call transformers for a purpose, such as "read its tokenizer", about the folder `path`.

    The hub is off, and nothing is printed. Whatever transformers raises becomes a `ConfigError` that names the folder.

    `asked`: the model computes answers. A progress bar is drawn at the same time, so stderr is left alone, see `silent`; and as
    memory then goes by how much is asked for, errors of memory remain what they are.
    """
    try:
        with offline(), silent(native=not asked):
            yield
    except ConfigError:
        raise
    except BaseException as error:
        # Where the Rust of a tokenizer panics, it raises an exception that is no `Exception`.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        text = " ".join(str(error).split())
        if is_of_memory(error):
            if asked:
                raise
            size = re.search(r"allocate ([\d.]+ ?\w+)", text)
            in_one = f" ({size[1]} in one piece)" if size else ""
            raise ConfigError(
                f"{path}: there is not enough memory to {purpose}{in_one}; compare the sizes in its config.json with the model's "
                "own, and take a smaller model, or --dtype bfloat16, where they are right"
            ) from error
        text = text if len(text) < 200 else f"{text[:200]}..."
        raise ConfigError(
            f"{path}: transformers cannot {purpose} ({type(error).__name__}: {text}); get the whole folder again"
        ) from error


@contextmanager
def offline() -> Iterator[None]:
    """Switch Hugging Face's hub off for a while; afterwards it is as it was before.

    Every request of `huggingface_hub` asks this constant, and so does `kernels`. The variable is for processes that start inside.
    """
    from huggingface_hub import constants

    constant, variable = constants.HF_HUB_OFFLINE, os.environ.get("HF_HUB_OFFLINE")
    constants.HF_HUB_OFFLINE, os.environ["HF_HUB_OFFLINE"] = True, "1"
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = constant
        if variable is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = variable


@contextmanager
def silent(*, native: bool) -> Iterator[None]:
    """Discard log records, Python warnings and what is printed to stdout: they repeat the folder's values as they are.

    `native`: discard everything that is written to the process's stderr as well. A tokenizer's Rust writes there without Python.
    Leave it off where a progress bar is drawn at the same time.
    """
    disabled = logging.root.manager.disable
    logging.disable(sys.maxsize)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            if native:
                stack.enter_context(_stderr_discarded())
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def _stderr_discarded() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            before = os.dup(2)
        except OSError:  # it is closed already
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            os.close(nowhere)


def is_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. A text alone says nothing: it may be that of a folder's name."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return type(error) is RuntimeError and re.match(r"\[enforce fail at .*DefaultCPUAllocator", str(error)) is not None
