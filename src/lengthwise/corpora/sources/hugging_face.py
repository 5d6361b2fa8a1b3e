"""Datasets of Hugging Face, from the hub or from a folder, read as streams."""

import atexit
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.corpora.catalog import CATALOG
from lengthwise.corpora.sources.base import Part, Piece, Record, Source, SourceOptions, part_bytes, record_of
from lengthwise.corpora.sources.listing import list_files
from lengthwise.values import ConfigError, missing_package, near_miss

PREFIX = "hf:"
TIMEOUT = 5.0  # seconds until the hub counts as unreachable; `datasets` itself would try again for half a minute

THREADS_END = (
    0.5  # seconds; a process that ends while threads of pyarrow still read is aborted (apache/arrow issue 45214)
)


class HuggingFaceSource(Source):
    """`hf:NAME` or `hf:NAME:CONFIGURATION`, a dataset of the hub; `hf:FOLDER[:CONFIGURATION]`, a copy of one; or
    `hf:FOLDER`, what `save_to_disk` wrote.

    A dataset of the hub is fixed at its newest commit when the source is opened. Only this kind of source uses the
    network. Each shard of the stream, which is a file of the dataset, is a part. `datasets` no longer runs code of a
    dataset.
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
                yield from (record_of(row, f"{self.name}, shard {index}, row {n}", self.options) for n, row in rows)

    def state(self, part: Part) -> list[Any]:
        place = [self.dataset, self.configuration, self.revision]
        return [place, vars(self.options), [[piece.start, piece.stop] for piece in part]]

    def _rows(self, stream: Any) -> Iterator[dict[str, Any]]:
        try:
            yield from stream
        except Exception as error:  # of any of the libraries below `datasets`
            raise self._error(error) from error

    def _open(self) -> Any:
        """Return the stream of the columns that are needed. A worker process opens it once."""
        if self._stream is None:
            try:
                import datasets
            except ImportError as error:
                raise missing_package(self.name, "datasets", "data", error) from error
            try:
                stream = self._load(datasets)
            except ConfigError:
                raise
            except Exception as error:
                raise self._error(error) from error
            if names := stream.column_names:
                fields = [name for name in (self.options.field, self.options.origin) if name]
                columns = [name if name in names else name.partition(".")[0] for name in fields]
                for field, column in zip(fields, columns, strict=True):
                    if column not in names:
                        raise ConfigError(
                            f"{self.name} has no field {field!r}{near_miss(field, names)}; its fields are: "
                            f"{', '.join(names)}"
                        )
                stream = stream.select_columns(list(dict.fromkeys(columns)))
            self._stream = stream
            atexit.register(time.sleep, THREADS_END)
        return self._stream

    def _load(self, datasets: Any) -> Any:
        if not self.folder:
            return datasets.load_dataset(
                self.dataset,
                self.configuration or None,
                split=self.options.split,
                streaming=True,
                revision=self.revision,
            )
        if not any((self.folder / name).exists() for name in ("state.json", "dataset_dict.json")):
            return datasets.load_dataset(
                str(self.folder), self.configuration or None, split=self.options.split, streaming=True
            )
        saved = datasets.load_from_disk(str(self.folder))
        if isinstance(saved, dict):
            split = self.options.split
            if split not in saved:
                raise ConfigError(f"{self.name} has no split {split!r}; available: {', '.join(saved)}")
            saved = saved[split]
        size = saved.data.nbytes
        return saved.to_iterable_dataset(num_shards=max(1, min(len(saved), size // part_bytes(size) + 1)))

    def _newest_commit(self) -> str:
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise missing_package(self.name, "huggingface_hub", "data", error) from error
        try:
            return str(HfApi().dataset_info(self.dataset, timeout=TIMEOUT).sha)
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> ConfigError:
        text = " ".join(str(error).split())[:300]
        advice = "" if self.folder else f", or download it: {_download(self.dataset)}"
        return ConfigError(
            f"the dataset {self.name} cannot be read: {type(error).__name__}: {text}; check its name, configuration "
            f"and split{advice}"
        )


def _download(dataset: str) -> str:
    folder = dataset.rpartition("/")[2] or "FOLDER"
    command, source = f"hf download --repo-type dataset {dataset} --local-dir {folder}", f"hf:{folder}"
    for published in CATALOG.values():
        if published.dataset == dataset:
            command, source = published.download(folder), f"{folder}{published.options}"
    return f"`{command}` on a machine with a network, then `lengthwise tokenize {source}`"
