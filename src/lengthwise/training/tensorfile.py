"""One file of named tensors and facts: written whole or not at all, and known to be whole when read.

The format is safetensors; the metadata carries the SHA-256 of every tensor's bytes and of the facts, so that damage
anywhere is found. Nothing is ever unpickled.
"""

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from lengthwise import regular_file

MOST_BYTES = 64 << 30  # of one file: weights of 16e9 parameters


class CheckpointError(ValueError):
    """A checkpoint or a weights file that cannot be written, read or used. One line: what, why, what to do."""


class DamagedFile(CheckpointError):
    """The file's content is not what was written."""


class CheckpointWarning(UserWarning):
    """Something about a checkpoint that the user should know; training goes on."""


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Put `tensors` and `facts` at `path`, atomically: after a crash or a full disk the old file, or none, is there.

    Raises `CheckpointError` when it cannot be written; nothing half-written is left.
    """
    at_rest = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    metadata = {**facts, "sha256": digest(at_rest, facts)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        content = save(at_rest, metadata)
        temporary.unlink(missing_ok=True)  # of a killed process that had this number
        with open(temporary, "xb") as file:  # new: never through a link, and with the permissions that the umask leaves
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot write {path}: {_reason(error)}; make room or choose another folder, then run it again: "
            "it continues from what was saved before"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors (on the CPU, this process's own memory) and the facts.

    Raises `DamagedFile` when the content is not what was written, `CheckpointError` when the file cannot be read.
    """
    content = _content(path)
    try:
        end = 8 + int.from_bytes(content[:8], "little")
        facts = dict(json.loads(content[8:end])["__metadata__"])
        expected = facts.pop("sha256")
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: it is not a complete safetensors file of ours") from error
    if digest(tensors, facts) != expected:
        raise DamagedFile(f"{path} is damaged: its checksum is not the one that was written into it")
    return tensors, facts


def _content(path: Path) -> bytes:
    """The bytes of a regular file. `DamagedFile` for anything else in its place: a pipe would block, and a device may not end."""
    try:
        return regular_file.read(path, MOST_BYTES)
    except MemoryError as error:
        raise CheckpointError(f"cannot read {path}: there is not enough memory for it") from error
    except OSError as error:
        if is_other_kind(path):  # a folder cannot be opened like a file, and neither can a socket
            raise DamagedFile(f"{path} is no regular file") from error
        if error.errno == errno.EFBIG:
            raise DamagedFile(f"{path} is damaged: it is larger than any of ours") from error
        raise CheckpointError(f"cannot read {path}: {_reason(error)}") from error


def is_other_kind(path: Path) -> bool:
    """Whether something lies at `path` that is no regular file, nor a link to one."""
    return os.path.lexists(path) and not path.is_file()


def digest(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """SHA-256, in hex, over names, types, shapes and bytes of all tensors, and over all facts."""
    sha = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for name in sorted(tensors):
        t = tensors[name]
        sha.update(f"\0{name} {t.dtype} {tuple(t.shape)}\0".encode())
        if t.numel():
            sha.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()).rpartition("I/O error: ")[2] or type(error).__name__


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut (a folder cannot be opened on Windows, where a rename needs no help)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
