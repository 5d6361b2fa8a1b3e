"""Shards: files of tokens, which are written from finished parts and read where a batch needs them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.manifest import Manifest, shard_file
from lengthwise.corpora.parts import Job
from lengthwise.corpora.planning import ShardPlan
from lengthwise.corpora.writing import atomic_file, write_file
from lengthwise.values import ConfigError

SHARD_BYTES = 1 << 29
COPIED = 1 << 22  # tokens that are copied at once


def write_shard(job: Job, keys: Sequence[str], shard: ShardPlan, folder: Path) -> tuple[str, NDArray[np.int64]]:
    """Write the tokens of a shard. Return its SHA-256 and how often each token occurs in it."""
    dtype = job.tokenizer.dtype
    counts = np.zeros(job.tokenizer.target_size, np.int64)
    with atomic_file(folder / shard.file) as file:
        for part, start, count in shard.runs.tolist():
            with open(job.folder / f"{keys[part]}.part", "rb") as source:
                source.seek(start * dtype.itemsize)
                for first in range(0, count, COPIED):
                    tokens = np.fromfile(source, dtype, min(count - first, COPIED))
                    counts += np.bincount(tokens, minlength=len(counts))
                    file.write(tokens.tobytes())
    return file.sha256, counts


def finish_shard(job: Job, keys: Sequence[str], shard: ShardPlan, folder: Path) -> None:
    """Write a shard, its counts and a note of its hash, unless an interrupted run has written exactly this shard."""
    note = note_of(folder, shard)
    key = shard_key(keys, shard)
    if (folder / shard.file).exists() and note.exists() and json.loads(note.read_bytes())["key"] == key:
        return
    sha256, counts = write_shard(job, keys, shard, folder)
    write_file(note.with_suffix(".counts"), counts.astype("<i8").tobytes())
    write_file(note, json.dumps({"key": key, "sha256": sha256}).encode())


def note_of(folder: Path, shard: ShardPlan) -> Path:
    return folder.parent / "notes" / f"{shard.file}.json"


def shard_key(keys: Sequence[str], shard: ShardPlan) -> str:
    """Return a hash of where the tokens of a shard come from."""
    used = [keys[part] for part in np.unique(shard.runs[:, 0]).tolist()]
    return hashlib.sha256(json.dumps(used).encode() + shard.runs.tobytes()).hexdigest()


class TokenReader:
    """Reads windows of the tokens of one split, which are numbered from its first document to its last.

    Only the windows are read, so memory does not grow with the corpus.
    """

    def __init__(self, folder: Path, manifest: Manifest, split: str):
        shards = manifest.split(split).shards
        self._files = [folder / shard_file(split, n) for n in range(len(shards))]
        self._starts = np.cumsum([0, *(shard.tokens for shard in shards)])
        self._dtype, self._target_size = np.dtype(manifest.dtype), manifest.target_size

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return the windows that begin at `starts` [b], int64 [b, length]. Each lies within one document.

        Raise `ConfigError` if a shard is missing or contains numbers that are no tokens.
        """
        windows = np.empty((len(starts), length), np.int64)
        shards = np.searchsorted(self._starts, starts, "right") - 1
        offsets = (starts - self._starts[shards]) * self._dtype.itemsize
        for shard in np.unique(shards).tolist():
            path, rows = self._files[shard], np.flatnonzero(shards == shard)
            try:
                with open(path, "rb") as file:
                    for row in rows:
                        file.seek(offsets[row])
                        windows[row] = np.frombuffer(file.read(length * self._dtype.itemsize), self._dtype)
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read the shard {path}: {error}; restore it, or tokenize again") from error
            if windows[rows].max(initial=0) >= self._target_size:
                raise ConfigError(
                    f"{path} is damaged: it contains a number that is no token; restore it, or tokenize again"
                )
        return windows
