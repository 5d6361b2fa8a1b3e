"""A file of named tensors and facts (strings by name), written atomically and verified when read.

The format is safetensors. The metadata contains a SHA-256 of all tensors and facts, which detects any damage. Nothing
is unpickled.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from lengthwise import cache_folder


class CheckpointError(ValueError):
    """A checkpoint or a weights file cannot be written, read or used. The message is one line that says what to do."""


class DamagedFile(CheckpointError):
    """The file's content is not what was written."""


class CheckpointWarning(UserWarning):
    """Something about a checkpoint that the user should know; training continues."""


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write a file atomically (see `cache_folder.write`). Raise `CheckpointError` if that fails."""
    cpu_tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    metadata = {**facts, "sha256": digest(cpu_tensors, facts)}
    try:
        cache_folder.write(path, save(cpu_tensors, metadata))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot write {path}: {_reason(error)}; make room or choose another folder, then run it again: "
            "it continues from what was saved before"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors (on the CPU, in memory of this process) and the facts.

    Raises `DamagedFile` if the content is not what was written, and `CheckpointError` if the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {_reason(error)}") from error
    try:
        end = 8 + int.from_bytes(content[:8], "little")
        facts = dict(json.loads(content[8:end])["__metadata__"])
        expected = facts.pop("sha256")
        tensors = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged: it is not a complete safetensors file written by Lengthwise") from error
    if digest(tensors, facts) != expected:
        raise DamagedFile(f"{path} is damaged: its content does not match its checksum")
    return tensors, facts


def digest(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """Return the SHA-256, in hex, of the names, dtypes, shapes and bytes of all tensors, and of all facts."""
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
