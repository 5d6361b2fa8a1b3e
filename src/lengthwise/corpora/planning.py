"""Which documents a corpus contains, in which split, and in which shard. Computed from the indices of all parts.

Memory: about 40 bytes for each document of the source. Everything else is read part by part.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.manifest import LENGTH_TYPE, SPLITS, shard_file
from lengthwise.corpora.parts import Job
from lengthwise.values import ConfigError

Index = np.ndarray[Any, Any]
Mask = NDArray[np.bool_]
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
    """A split: the lengths of its documents in tokens, the sum of their sizes, and the hash of their texts."""

    lengths: NDArray[np.unsignedinteger]
    bytes: int
    documents_sha256: str
    shards: tuple[ShardPlan, ...]


@dataclass(frozen=True)
class Plan:
    splits: dict[str, SplitPlan]
    left_out: dict[str, int]


def plan(job: Job, keys: Sequence[str], validation: float, shard_bytes: int) -> Plan:
    """Return the plan for the parts with these keys. Raise `ConfigError` if there are too few documents for two splits.

    Of equal documents, the first one stays; documents are equal if the first 64 bits of their SHA-256 are. (Among a
    hundred million different documents, the chance that any two agree is 0.03 %.) A document is held out if the hash of
    its origin, as a share of all hashes, is below `validation`. If this holds out nothing, or everything, one origin is
    moved, so that both splits have a document.
    """
    left_out = sum((job.left_out(key) for key in keys), Counter[str]())
    selected = _first_of_equals([_prefixes(job.index(key)) for key in keys])
    left_out["duplicate"] += sum(len(mask) - int(mask.sum()) for mask in selected)
    for key, mask in zip(keys, selected, strict=True):
        empty = mask & (job.index(key)["tokens"] == 0)
        left_out["empty"] += int(empty.sum())
        mask &= ~empty
    if not any(mask.any() for mask in selected):
        raise ConfigError(f"{job.source.name} has no document with text ({_counts(left_out)}); {ADVICE}")
    origins = [job.index(key)["origin"][mask] for key, mask in zip(keys, selected, strict=True)]
    lowest, highest = (int(choose(choose(part) for part in origins if len(part))) for choose in (min, max))
    if lowest == highest:
        raise ConfigError(
            f"{job.source.name} has one document, or all its documents have one origin, but training and validation "
            f"need one each; {ADVICE}"
        )
    is_held_out = held_out_rule(lowest, highest, limit_of(validation))
    builders = [_SplitBuilder(name, shard_bytes // job.tokenizer.dtype.itemsize) for name in SPLITS]
    for part, (key, mask) in enumerate(zip(keys, selected, strict=True)):
        index = job.index(key)
        offsets = (np.cumsum(index["tokens"]) - index["tokens"]).astype(np.int64)
        held_out = is_held_out(index["origin"])
        for builder, rows in zip(builders, (mask & ~held_out, mask & held_out), strict=True):
            builder.add(part, index[rows], offsets[rows])
    splits = {builder.name: builder.finish() for builder in builders}
    return Plan(splits, {reason: count for reason, count in sorted(left_out.items()) if count})


def _prefixes(index: Index) -> NDArray[np.uint64]:
    """Return the first 64 bits of the documents' hashes, without a reference to the index."""
    return np.ascontiguousarray(index["digest"]).view("<u8")[::2].copy()


def _first_of_equals(parts: list[NDArray[np.uint64]]) -> list[Mask]:
    """Return for each part, prefixes of hashes, a mask of the documents that are not equal to an earlier one."""
    sizes = [len(part) for part in parts]
    prefixes = np.concatenate(parts)
    parts.clear()
    order = np.argsort(prefixes, kind="stable")  # so equal documents keep their order
    first = np.ones(len(prefixes), bool)
    first[order[1:]] = prefixes[order[1:]] != prefixes[order[:-1]]
    return np.split(first, np.cumsum(sizes)[:-1])


def limit_of(validation: float) -> int:
    """Return the hash of an origin below which its documents are held out."""
    return min(int(validation * 2**64), 2**64 - 1)


def held_out_rule(lowest: int, highest: int, limit: int) -> Callable[[Any], Any]:
    """Return the rule that decides from the hash of an origin, or an array of hashes, whether it is held out.

    If all hashes are on one side of the limit, the rule moves the one that is next to it.
    """
    if lowest >= limit:
        return lambda origin: origin == lowest
    if highest < limit:
        return lambda origin: origin != highest
    return lambda origin: origin < limit


class _SplitBuilder:
    """Divides the documents of a split into shards of at most `limit` tokens, or of one longer document."""

    def __init__(self, name: str, limit: int):
        self.name, self._limit = name, limit
        self._lengths: list[NDArray[np.unsignedinteger]] = []
        self._hash, self._bytes = hashlib.sha256(), 0
        self._shards: list[ShardPlan] = []
        self._begin()

    def _begin(self) -> None:
        self._runs: list[NDArray[np.int64]] = []
        self._documents = self._tokens = 0

    def add(self, part: int, index: Index, offsets: NDArray[np.int64]) -> None:
        """Add documents of a part, which begin at these tokens of the part."""
        lengths = index["tokens"].astype(np.int64)
        self._lengths.append(lengths.astype(LENGTH_TYPE))
        self._hash.update(np.ascontiguousarray(index["digest"]).tobytes())
        self._bytes += int(index["bytes"].sum())
        ends, first = np.cumsum(lengths), 0
        while first < len(lengths):
            room = self._limit - self._tokens
            last = int(np.searchsorted(ends, int(ends[first] - lengths[first]) + room, "right"))
            if last <= first and self._tokens:
                self._close()
                continue
            rows = slice(first, max(last, first + 1))
            self._runs.append(_runs(part, offsets[rows], lengths[rows]))
            self._documents += len(lengths[rows])
            self._tokens += int(lengths[rows].sum())
            first = rows.stop

    def _close(self) -> None:
        file = shard_file(self.name, len(self._shards))
        self._shards.append(ShardPlan(file, self._documents, self._tokens, np.concatenate(self._runs)))
        self._begin()

    def finish(self) -> SplitPlan:
        if self._tokens:
            self._close()
        return SplitPlan(np.concatenate(self._lengths), self._bytes, self._hash.hexdigest(), tuple(self._shards))


def _runs(part: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join documents that follow each other in a part."""
    begins = np.ones(len(offsets), bool)
    begins[1:] = offsets[1:] != offsets[:-1] + lengths[:-1]
    first = np.flatnonzero(begins)
    return np.stack([np.full(len(first), part), offsets[first], np.add.reduceat(lengths, first)], 1)


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()) if count) or "it is empty"
