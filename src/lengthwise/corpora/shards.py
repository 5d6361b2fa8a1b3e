"""Shards: files of tokens, which are written from finished parts and read where a batch needs them."""

import contextlib
import hashlib
import json
import mmap
from collections import OrderedDict
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
MAX_MAPS = 128  # shards that are mapped at the same time, each with an open file
RELEASE_BYTES = (
    1 << 26
)  # of pages that stay in this process's memory; more are released, and stay in the system's cache
PAGES = 1 << 16  # bytes that the system maps around a page


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

    Shards are mapped into memory, and only the pages of a window are read. Pages are released regularly, so that the
    process does not grow with the corpus.
    """

    def __init__(self, folder: Path, manifest: Manifest, split: str):
        self._folder, self._split, self._manifest = folder, split, manifest
        self._dtype = np.dtype(manifest.dtype)
        sizes = [shard.tokens for shard in manifest.split(split).shards]
        self._starts = np.cumsum([0, *sizes])
        self._maps: OrderedDict[int, tuple[mmap.mmap, NDArray[np.unsignedinteger]]] = OrderedDict()
        self._touched = 0

    def read(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return the windows that begin at `starts` [b], int64 [b, length]. Each lies within one document.

        Raise `ConfigError` if a shard is missing or contains numbers that are no tokens.
        """
        windows = np.empty((len(starts), length), np.int64)
        shards = np.searchsorted(self._starts, starts, "right") - 1
        for row, start, shard in zip(windows, starts.tolist(), shards.tolist(), strict=True):
            first = start - int(self._starts[shard])
            row[:] = self._tokens(shard)[first : first + length]
        if windows.size and windows.max() >= self._manifest.target_size:
            row_of = int(np.argmax(windows.max(1) >= self._manifest.target_size))
            name = shard_file(self._split, int(shards[row_of]))
            raise ConfigError(
                f"{self._folder / name} is damaged: it contains a number that is no token; restore it, or tokenize "
                "again"
            )
        self._release(len(starts) * (length * self._dtype.itemsize + PAGES))
        return windows

    def _tokens(self, shard: int) -> NDArray[np.unsignedinteger]:
        if shard not in self._maps:
            path = self._folder / shard_file(self._split, shard)
            try:
                with open(path, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read the shard {path}: {error}; restore it, or tokenize again") from error
            self._maps[shard] = mapped, np.frombuffer(mapped, self._dtype)
            while len(self._maps) > MAX_MAPS:
                self._maps.popitem(last=False)
        self._maps.move_to_end(shard)
        return self._maps[shard][1]

    def _release(self, count: int) -> None:
        """Release the pages once enough of them may have been read."""
        self._touched += count
        if self._touched < RELEASE_BYTES or not hasattr(mmap, "MADV_DONTNEED"):
            return
        self._touched = 0
        for mapped, _ in self._maps.values():
            with contextlib.suppress(OSError):
                mapped.madvise(mmap.MADV_DONTNEED)
