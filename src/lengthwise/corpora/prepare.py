"""Preparing a corpus: tokenising the parts of a source in parallel, and writing shards.

Everything is written into the folder `OUTPUT.unfinished`. The folder `OUTPUT` appears at the end, complete. After a
kill, the same call continues with the parts and shards that are not finished. The result is the same whenever the call
was killed and however many workers it had.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise import cache_folder
from lengthwise.child_processes import end_with_parent, starting_processes
from lengthwise.corpora.documents import Document
from lengthwise.corpora.manifest import (
    COUNTS,
    NAME,
    SPLITS,
    Manifest,
    Shard,
    Split,
    lengths_file,
    read_manifest,
)
from lengthwise.corpora.parts import Job, origin_hash, valid_records
from lengthwise.corpora.planning import Plan, ShardPlan, held_out_rule, limit_of, plan
from lengthwise.corpora.shards import SHARD_BYTES, finish_shard, note_of
from lengthwise.corpora.sources import Part, Source
from lengthwise.corpora.tokenizers import FileTokenizer, Tokenizer, open_tokenizer, train, trained_size
from lengthwise.corpora.writing import sync_folder, write_file
from lengthwise.values import ConfigError

SUFFIX = ".unfinished"
TRAINING_BYTES = 1 << 26  # of text for a trained tokenizer
TRAINING_PARTS = 64  # that this text comes from, evenly spaced

Show = Callable[[str, float, float], None]


def _has_tokens(path: Path) -> bool:
    """Return whether a file of an unfinished preparation has tokens or belongs to a tokenizer."""
    is_content = path.suffix in (".part", ".tokens") or path.parent.name.startswith("tokenizer-")
    return is_content and path.is_file() and path.stat().st_size > 0


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What to prepare.

    `tokenizer`: a name that `open_tokenizer` takes, or `bpe:SIZE`. `validation`: the share of documents for validation.
    `skip_invalid`: leave out records that cannot be used. `workers`: processes; the result does not depend on them.
    """

    source: Source
    tokenizer: str
    output: Path
    validation: float = 0.01
    skip_invalid: bool = False
    workers: int = 1
    shard_bytes: int = SHARD_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.validation < 1:
            raise ConfigError(
                f"validation, a share of the documents, must be above 0 and below 1, got {self.validation}"
            )
        if self.workers < 1:
            raise ConfigError(f"workers must be at least 1 process, got {self.workers}")
        if trained_size(self.tokenizer) is None:
            open_tokenizer(self.tokenizer)

    def run(self, show: Show = lambda text, done, total: None) -> Manifest:
        """Prepare the corpus and return its manifest. Raise `ConfigError` for an output that is something else.

        If the output is the corpus that this call would prepare, it is not prepared again.
        """
        work = self.output.with_name(self.output.name + SUFFIX)
        self._require_free(self.output)
        if (folder := self.source.folder) and self.output.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"--output {self.output} lies in the source, so it would become a part of it; name a folder elsewhere"
            )
        try:
            work.mkdir(parents=True, exist_ok=True)
            with cache_folder.locked(work / "lock", 0.0, what="preparing this corpus") as is_locked:
                if not is_locked:
                    raise ConfigError(
                        f"another process is preparing {self.output}; wait for it, or choose another --output"
                    )
                try:
                    return self._run(work, show)
                except ConfigError:
                    if not any(_has_tokens(path) for path in work.rglob("*")):
                        shutil.rmtree(work)  # nothing is finished that a corrected call could use
                    raise
        except OSError as error:
            raise ConfigError(f"cannot write {error.filename or work}: {error.strerror or error}") from error

    def _require_free(self, output: Path) -> None:
        if output.exists() and not output.is_dir():
            raise ConfigError(f"--output {output} is a file; name a folder that does not exist yet")
        if output.is_dir() and any(output.iterdir()) and not (output / NAME).exists():
            raise ConfigError(f"--output {output} is a folder with other files; name a folder that does not exist yet")

    def _run(self, work: Path, show: Show) -> Manifest:
        for name in ("parts", "notes", "corpus"):
            (work / name).mkdir(exist_ok=True)
        parts = self.source.parts()
        if not parts:
            raise ConfigError(f"{self.source.name} has no documents; give a source with text")
        fingerprint = self._fingerprint(parts)
        if (self.output / NAME).exists():
            manifest = read_manifest(self.output)
            if manifest.source.get("fingerprint") != fingerprint:
                raise ConfigError(
                    f"--output {self.output} is a corpus of another source, tokenizer or option; name another folder"
                )
            shutil.rmtree(work)
            return manifest
        tokenizer = self._tokenizer(work, parts, show)
        job = Job(source=self.source, tokenizer=tokenizer, folder=work / "parts", leave_out_invalid=self.skip_invalid)
        keys = [job.key(part) for part in parts]
        pending = {key: part for key, part in zip(keys, parts, strict=True) if not job.is_finished(key)}
        with self._pool(job, len(pending)) as call_each:
            for done, _ in enumerate(call_each(_tokenize, pending.values()), len(parts) - len(pending) + 1):
                show("tokenizing", done, len(parts))
            planned = plan(job, keys, self.validation, self.shard_bytes)
            shards = [shard for name in SPLITS for shard in planned.splits[name].shards]
            for done, _ in enumerate(call_each(partial(_finish_shard, keys, work / "corpus"), shards), 1):
                show("writing", done, len(shards))
        manifest = self._write(planned, job, work, fingerprint)
        for file in (work / "corpus").iterdir():  # of an interrupted run before the source changed
            if file.name not in {*manifest.expected(), *manifest.files, NAME}:
                file.unlink()
        sync_folder(work / "corpus")
        os.replace(work / "corpus", self.output)
        sync_folder(self.output.parent)
        shutil.rmtree(work)
        return manifest

    def _fingerprint(self, parts: Sequence[Part]) -> str:
        """Return a hash of everything that determines the corpus."""
        is_trained = trained_size(self.tokenizer) is not None
        tokenizer = self.tokenizer if is_trained else open_tokenizer(self.tokenizer).sha256
        options = [self.validation, self.skip_invalid, self.shard_bytes]
        content = [tokenizer, options, [self.source.state(part) for part in parts]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _tokenizer(self, work: Path, parts: Sequence[Part], show: Show) -> Tokenizer:
        """Return the tokenizer. One that has to be trained is stored as soon as it is."""
        size = trained_size(self.tokenizer)
        if size is None:
            return open_tokenizer(self.tokenizer)
        content = [size, self.validation, self.skip_invalid, [self.source.state(part) for part in parts]]
        folder = work / f"tokenizer-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]}"
        if not (folder / "tokenizer.json").exists():
            show("training the tokenizer", 0, 1)
            folder.mkdir(exist_ok=True)
            trained = train(self._training_text(parts), size)
            for name, data in sorted(trained.files().items(), reverse=True):  # tokenizer.json last
                write_file(folder / name, data)
        files = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
        return FileTokenizer(self.tokenizer, *files.values())

    def _training_text(self, parts: Sequence[Part]) -> Iterator[bytes]:
        """Yield documents of the training split, from parts that are evenly spaced, up to `TRAINING_BYTES`."""
        is_held_out = self._held_out(parts)
        step = -(-len(parts) // TRAINING_PARTS)
        sample = parts[::step]
        limit = TRAINING_BYTES // len(sample)
        for part in sample:
            size = 0
            for record in valid_records(self.source, part, any_bytes=False, leave_out_invalid=self.skip_invalid):
                if isinstance(record, Document) and not is_held_out(origin_hash(record)):
                    size += len(record.data)
                    yield record.data
                if size >= limit:
                    break

    def _held_out(self, parts: Sequence[Part]) -> Callable[[int], bool]:
        """Return the rule of `planning`. Documents are read until there are some on both sides of the limit."""
        limit = limit_of(self.validation)
        lowest, highest, seen = 2**64, -1, set[bytes]()
        for part in parts:
            for record in valid_records(self.source, part, any_bytes=False, leave_out_invalid=self.skip_invalid):
                if not isinstance(record, Document) or not record.data:
                    continue
                digest = hashlib.blake2b(record.data, digest_size=16).digest()
                if digest not in seen:  # of equal documents only the first one is used
                    seen.add(digest)
                    origin = int(origin_hash(record))
                    lowest, highest = min(lowest, origin), max(highest, origin)
                if lowest < limit <= highest:
                    return held_out_rule(lowest, highest, limit)
        return held_out_rule(lowest, highest, limit)

    @contextmanager
    def _pool(self, job: Job, count: int) -> Iterator[Callable[..., Iterator[None]]]:
        """Yield a function like `map`, which makes calls in worker processes if there are several workers."""
        workers = min(self.workers, max(count, 1))
        if workers == 1:
            _set_job(job)
            yield map
            return
        before = set(active_children())
        with starting_processes():  # multiprocessing starts a process that tracks its resources
            pool = ProcessPoolExecutor(workers, get_context("spawn"), _initialize, (job,))
        try:
            with pool:

                def call_each(function: Callable[..., None], items: Iterable[Any]) -> Iterator[None]:
                    with starting_processes():
                        futures = [pool.submit(function, item) for item in items]
                    for future in as_completed(futures):
                        yield future.result()

                try:
                    yield call_each
                except KeyboardInterrupt:  # do not wait for parts that can be tokenized again
                    for child in set(active_children()) - before:
                        child.terminate()
                    raise
                except Exception:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        except BrokenProcessPool:
            raise ConfigError(
                "a worker process ended unexpectedly, perhaps for lack of memory; the same command continues, with "
                "fewer --workers if it happens again"
            ) from None

    def _write(self, planned: Plan, job: Job, work: Path, fingerprint: str) -> Manifest:
        """Write everything but the shards, the manifest last."""
        folder, tokenizer = work / "corpus", job.tokenizer
        splits = {}
        counts = np.zeros(tokenizer.target_size, np.int64)
        for name in SPLITS:
            split = planned.splits[name]
            shards = []
            for shard in split.shards:
                note = note_of(folder, shard)
                sha256 = json.loads(note.read_bytes())["sha256"]
                shards.append(Shard(documents=shard.documents, tokens=shard.tokens, sha256=sha256))
                if name == "train":
                    counts += np.fromfile(note.with_suffix(".counts"), "<i8")
            splits[name] = Split(
                documents=len(split.lengths),
                tokens=int(split.lengths.sum()),
                bytes=split.bytes,
                documents_sha256=split.documents_sha256,
                lengths_sha256=write_file(folder / lengths_file(name), split.lengths.tobytes()),
                shards=tuple(shards),
            )
        manifest = Manifest(
            tokenizer=tokenizer.name,
            tokenizer_sha256=tokenizer.sha256,
            unit=tokenizer.unit,
            dtype=tokenizer.dtype.str,
            vocab_size=tokenizer.vocab_size,
            target_size=tokenizer.target_size,
            bos=tokenizer.bos,
            eos=tokenizer.eos,
            validation=self.validation,
            train=splits["train"],
            validation_split=splits["validation"],
            counts_sha256=write_file(folder / COUNTS, counts.astype("<i8").tobytes()),
            files={name: write_file(folder / name, data) for name, data in tokenizer.files().items()},
            source={"name": self.source.name, "fingerprint": fingerprint},
            left_out=planned.left_out,
        )
        write_file(folder / NAME, manifest.to_bytes())
        return manifest


_job: Job | None = None  # whose parts and shards this process works on


def _set_job(job: Job) -> None:
    global _job
    _job = job


def _initialize(job: Job) -> None:
    """Prepare a worker process. Processes work in parallel, each with one thread."""
    end_with_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _set_job(job)


def _tokenize(part: Part) -> None:
    assert _job
    _job.tokenize(part)


def _finish_shard(keys: Sequence[str], folder: Path, shard: ShardPlan) -> None:
    assert _job
    finish_shard(_job, keys, shard, folder)
