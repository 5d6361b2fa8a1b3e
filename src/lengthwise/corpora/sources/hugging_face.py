"""Datasets of Hugging Face, from the hub or from a folder, read as streams."""

import hashlib
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.corpora.catalog import CATALOG
from lengthwise.corpora.sources.base import (
    Part,
    Piece,
    Record,
    Source,
    SourceOptions,
    missing_package,
    part_bytes,
    record,
)
from lengthwise.corpora.sources.listing import list_files
from lengthwise.values import ConfigError, near_miss

PREFIX = "hf:"
ENDPOINT = "https://huggingface.co"
TIMEOUT = 5.0  # seconds until the hub counts as unreachable; `datasets` itself would try again for half a minute


class HuggingFaceSource(Source):
    """`hf:NAME` or `hf:NAME:CONFIGURATION`, a dataset of the hub; `hf:FOLDER[:CONFIGURATION]`, a copy of one; or `hf:FOLDER`, what
    `save_to_disk` wrote.

    A dataset of the hub is fixed at its newest commit when the source is opened. Only this kind of source uses the network. Each
    shard of the stream, which is a file of the dataset, is a part.
    """

    form = "hf:NAME[:CONFIGURATION]"

    def __init__(self, text: str, options: SourceOptions):
        self.options, self.name = options, text
        location = text.removeprefix(PREFIX)
        self.dataset, _, self.configuration = location.partition(":")
        if Path(location).expanduser().is_dir():  # also if its name contains a colon
            self.dataset, self.configuration = location, ""
        folder = Path(self.dataset).expanduser()
        self.folder = folder if self.dataset and folder.is_dir() else None
        if not self.dataset.strip():
            raise ConfigError(f"{text!r} names no dataset; write hf:NAME, hf:NAME:CONFIGURATION or hf:FOLDER")
        if self.folder:
            self.name = f"{PREFIX}{self.folder.name}"
            names, signatures = list_files(self.folder, "**/*")
            files = [[name, *s[:2]] for name, s in zip(names, signatures, strict=True)]
            self.revision = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        else:
            _require_hub(self.dataset)
            self.revision = self._newest_commit()
        self._stream: Any = None

    @classmethod
    def knows(cls, text: str) -> bool:
        return text.startswith(PREFIX)

    @classmethod
    def open(cls, text: str, options: SourceOptions) -> "HuggingFaceSource":
        return cls(text, options)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_stream": None}

    def parts(self) -> list[Part]:
        count = self._open().num_shards
        return [(Piece("", n, n + 1),) for n in range(count)]

    def read(self, part: Part) -> Iterator[Record]:
        stream = self._open()
        for piece in part:
            for index in range(piece.start, piece.stop):
                rows = enumerate(self._rows(stream.shard(stream.num_shards, index)), 1)
                yield from (record(row, f"{self.name}, shard {index}, row {n}", self.options) for n, row in rows)

    def state(self, part: Part) -> list[Any]:
        place = [self.dataset, self.configuration, self.revision]
        return [place, vars(self.options), [[piece.start, piece.stop] for piece in part]]

    def _rows(self, stream: Any) -> Iterator[dict[str, Any]]:
        try:
            yield from stream
        except Exception as error:  # of any of the libraries below `datasets`
            raise self._error(error) from error

    def _open(self) -> Any:
        if self._stream is not None:
            return self._stream
        try:
            import datasets
        except ImportError as error:
            raise missing_package(self.name, "datasets", error) from error
        try:
            if self.folder and any((self.folder / name).exists() for name in ("state.json", "dataset_dict.json")):
                stream = self._saved(datasets.load_from_disk(str(self.folder)))
            else:
                place = str(self.folder) if self.folder else self.dataset
                revision = None if self.folder else self.revision
                configuration = self.configuration or None
                stream = datasets.load_dataset(
                    place, configuration, split=self.options.split, streaming=True, revision=revision
                )
        except ConfigError:
            raise
        except Exception as error:
            raise self._error(error) from error
        needed = {n.partition(".")[0] for n in (self.options.field, self.options.origin) if n}
        if stream.column_names and not {self.options.field, self.options.origin} - {""} <= set(stream.column_names):
            if missing := needed - set(stream.column_names):
                name = min(missing)
                raise ConfigError(
                    f"{self.name} has no field {name!r}{near_miss(name, stream.column_names)}; its fields are: "
                    f"{', '.join(stream.column_names)}"
                )
        elif stream.column_names:
            stream = stream.select_columns([n for n in (self.options.field, self.options.origin) if n])
        self._stream = stream
        return stream

    def _saved(self, saved: Any) -> Any:
        """Return the stream of what `save_to_disk` wrote: one split, or all splits of a dataset."""
        if isinstance(saved, dict):
            split = self.options.split
            if split not in saved:
                raise ConfigError(f"{self.name} has no split {split!r}; available: {', '.join(saved)}")
            saved = saved[split]
        shards = max(1, min(len(saved), saved.data.nbytes // part_bytes(saved.data.nbytes) + 1))
        return saved.to_iterable_dataset(num_shards=shards)

    def _newest_commit(self) -> str:
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise missing_package(self.name, "huggingface_hub", error) from error
        try:
            return str(HfApi().dataset_info(self.dataset, timeout=30).sha)
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> ConfigError:
        text = " ".join(str(error).split())[:300]
        advice = "" if self.folder else f", or download it: {_download(self.dataset)}"
        return ConfigError(
            f"the dataset {self.name} cannot be read: {type(error).__name__}: {text}; check its name, configuration and "
            f"split{advice}"
        )


def _download(dataset: str) -> str:
    folder = dataset.rpartition("/")[2] or "FOLDER"
    command, source = f"hf download --repo-type dataset {dataset} --local-dir {folder}", f"hf:{folder}"
    for published in CATALOG.values():
        if published.dataset == dataset:
            command, source = published.download(folder), f"{folder}{published.options}"
    return f"`{command}` on a machine with a network, then `lengthwise tokenize {source}`"


def _require_hub(dataset: str) -> None:
    """Raise `ConfigError` at once if the hub may not or cannot be reached."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        reason = "HF_HUB_OFFLINE is set"
    else:
        endpoint = os.environ.get("HF_ENDPOINT") or ENDPOINT
        reason = _unreachable(endpoint)
    if reason:
        raise ConfigError(
            f"the dataset {dataset} is on the Hugging Face hub, which cannot be reached ({reason}); download it: "
            f"{_download(dataset)}"
        )


def _unreachable(endpoint: str) -> str:
    """Return why the address does not answer, or an empty text. A thread limits the time, as looking up a name has no limit."""
    reasons = [f"no answer from {endpoint} in {TIMEOUT:.0f} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=TIMEOUT).close()
            reasons.append("")
        except urllib.error.HTTPError:  # an answer
            reasons.append("")
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", error)
            reasons.append(str(getattr(cause, "strerror", None) or cause))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return reasons[-1]
