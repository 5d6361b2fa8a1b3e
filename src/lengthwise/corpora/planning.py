"""Which documents a corpus contains, in which split, and in which shard. Computed from the indices of all parts.

Memory: about 100 bytes for each document of the source.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.manifest import SPLITS, shard_file
from lengthwise.corpora.parts import Job
from lengthwise.values import ConfigError

Index = np.ndarray[Any, Any]
ADVICE = "give more documents: several files, or a file with a document per line (.jsonl) or row (.parquet)"


@dataclass(frozen=True)
class ShardPlan:
    """A shard: `runs` [n, 3] are ranges of tokens, as (part, first token, number of tokens), one after another."""

    file: str
    documents: int
    tokens: int
    runs: NDArray[np.int64]


@dataclass(frozen=True)
class SplitPlan:
    """A split: the lengths of its documents in tokens, the sum of their sizes, the hash of their texts, and its shards."""

    lengths: NDArray[np.int64]
    bytes: int
    documents_sha256: str
    shards: tuple[ShardPlan, ...]


@dataclass(frozen=True)
class Plan:
    splits: dict[str, SplitPlan]
    left_out: dict[str, int]


def plan(job: Job, keys: Sequence[str], validation: float, shard_bytes: int) -> Plan:
    """Return the plan for the parts with these keys. Raise `ConfigError` if there are too few documents for two splits.

    Of equal documents, the first one stays. A document is held out if the hash of its origin, as a share of all hashes, is below
    `validation`. If this holds out nothing, or everything, one origin is moved, so that both splits have a document.
    """
    loaded = [job.load(key) for key in keys]
    left_out = sum((counts for _, counts in loaded), Counter[str]())
    index = np.concatenate([rows for rows, _ in loaded])
    part = np.repeat(np.arange(len(loaded)), [len(rows) for rows, _ in loaded])
    offset = np.concatenate([np.cumsum(rows["tokens"]) - rows["tokens"] for rows, _ in loaded]).astype(np.int64)
    del loaded
    selected = _first_of_equals(index)
    left_out["duplicate"] += len(index) - int(selected.sum())
    left_out["empty"] += int((selected & (index["tokens"] == 0)).sum())
    selected &= index["tokens"] > 0
    if not selected.any():
        raise ConfigError(f"{job.source.name} has no document with text ({_counts(left_out)}); {ADVICE}")
    held_out = _held_out(index["origin"], selected, validation)
    if not held_out.any() or not (selected & ~held_out).any():
        raise ConfigError(
            f"{job.source.name} has one document, or all its documents have one origin, but training and validation need one each; "
            f"{ADVICE}"
        )
    itemsize = job.tokenizer.dtype.itemsize
    splits = {}
    for name, rows in zip(SPLITS, (np.flatnonzero(selected & ~held_out), np.flatnonzero(held_out)), strict=True):
        chosen = index[rows]
        lengths = chosen["tokens"].astype(np.int64)
        digest = hashlib.sha256(np.ascontiguousarray(chosen["digest"]).tobytes()).hexdigest()
        shards = _shards(name, part[rows], offset[rows], lengths, shard_bytes // itemsize)
        splits[name] = SplitPlan(lengths, int(chosen["bytes"].sum()), digest, shards)
    return Plan(splits, {reason: count for reason, count in sorted(left_out.items()) if count})


def _first_of_equals(index: Index) -> NDArray[np.bool_]:
    """Return a mask of the documents that are not equal to an earlier one."""
    halves = np.ascontiguousarray(index["digest"]).view("<u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 0], halves[:, 1]))  # stable, so equal documents keep their order
    first = np.ones(len(index), bool)
    first[order[1:]] = (halves[order[1:]] != halves[order[:-1]]).any(1)
    return first


def _held_out(origin: NDArray[np.uint64], selected: NDArray[np.bool_], validation: float) -> NDArray[np.bool_]:
    held_out = selected & (origin < np.uint64(min(int(validation * 2**64), 2**64 - 1)))
    if not held_out.any():
        return selected & (origin == origin[selected].min())
    if not (selected & ~held_out).any():
        return held_out & (origin != origin[selected].max())
    return held_out


def _shards(
    split: str, part: NDArray[np.int64], offset: NDArray[np.int64], lengths: NDArray[np.int64], limit: int
) -> tuple[ShardPlan, ...]:
    """Divide the documents into shards of at most `limit` tokens, or of one longer document."""
    ends = np.cumsum(lengths)
    shards: list[ShardPlan] = []
    first = 0
    while first < len(lengths):
        before = int(ends[first] - lengths[first])
        last = max(int(np.searchsorted(ends, before + limit, "right")), first + 1)
        rows = slice(first, last)
        runs = _runs(part[rows], offset[rows], lengths[rows])
        shards.append(ShardPlan(shard_file(split, len(shards)), last - first, int(ends[last - 1]) - before, runs))
        first = last
    return tuple(shards)


def _runs(part: NDArray[np.int64], offset: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join documents that follow each other in a part."""
    begins = np.ones(len(part), bool)
    begins[1:] = (part[1:] != part[:-1]) | (offset[1:] != offset[:-1] + lengths[:-1])
    first = np.flatnonzero(begins)
    return np.stack([part[first], offset[first], np.add.reduceat(lengths, first)], 1)


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()) if count) or "it is empty"
