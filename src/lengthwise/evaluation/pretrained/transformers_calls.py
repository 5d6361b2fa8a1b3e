"""Call transformers on an untrusted model folder: without the hub, without output, and with errors in one line."""

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lengthwise.config import ConfigError
from lengthwise.machine_memory import is_out_of_memory, refused_allocation

CORRECT = "correct config.json, or download it again"
"""The advice where an error is likely to come from the settings."""


@contextmanager
def transformers_call(
    path: Path, purpose: str, *, computing: bool = False, advice: str = "download the whole folder again"
) -> Iterator[None]:
    """A context for calls of transformers on the folder `path`, with a purpose such as "read its tokenizer".

    The hub is off, and nothing is printed. Errors of transformers become a `ConfigError` that names the folder.

    `advice`: what to do about an error. `computing`: the model computes answers. Then stderr is left alone, because a
    progress bar is drawn there (see `silent`). Errors for lack of memory are raised unchanged, because the memory
    depends on the batch size and not on the folder.
    """
    try:
        with offline(), silent(stderr=not computing):
            yield
    except ConfigError:
        raise
    except BaseException as error:
        # A panic in a tokenizer's Rust code raises an exception that does not derive from `Exception`.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        text = " ".join(str(error).split())
        if is_out_of_memory(error):
            if computing:
                raise
            size = refused_allocation(error)
            in_one = f" ({size} in one piece)" if size else ""
            raise ConfigError(
                f"{path}: there is not enough memory to {purpose}{in_one}; check the sizes in its config.json, and if "
                "they are correct, take a smaller model or --dtype bfloat16"
            ) from error
        text = text if len(text) < 200 else f"{text[:200]}..."
        raise ConfigError(
            f"{path}: transformers cannot {purpose} ({type(error).__name__}: {text}); {advice}"
        ) from error


@contextmanager
def offline() -> Iterator[None]:
    """Switch Hugging Face's hub off within a `with` block, and restore its previous state afterwards.

    `huggingface_hub` and `kernels` check this constant before every request. The environment variable is for child
    processes.
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
def silent(*, stderr: bool) -> Iterator[None]:
    """Discard log records, Python warnings and stdout, which would repeat untrusted values of the folder unescaped.

    `stderr`: discard this too, with the progress bars of transformers. Leave it off while a progress bar of ours is
    drawn.
    """
    disabled = logging.root.manager.disable
    logging.disable(sys.maxsize)
    try:
        discarded = contextlib.redirect_stderr(io.StringIO()) if stderr else contextlib.nullcontext()
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()), discarded:
            yield
    finally:
        logging.disable(disabled)
