"""Finding and reading the published files of GLUE and SuperGLUE: parquet of the hub, and JSON lines."""

import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from lengthwise.corpora.sources.base import missing_package
from lengthwise.corpora.sources.listing import reason
from lengthwise.downstream.records import MAX_LINE, Location, find_file, opened_archive, parsed, unpack
from lengthwise.values import ConfigError

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")
ROWS = 1024  # of a parquet file that are decoded at once


def find(path: str, folders: Sequence[str], stems: Sequence[str]) -> list[Location]:
    """Return the files of one split of a data set. `folders`: the names of its folder. `stems`: those of the split.

    They are STEM.jsonl, STEM.parquet, STEM-00000-of-00001.parquet or STEM/0000.parquet in a folder, or STEM.jsonl in a zip archive
    with the folder's name. Raise `ConfigError` if there are none, or not all of several parquet files.
    """
    root = Path(path)
    if not root.is_dir():
        raise ConfigError(f"there is no folder {path}; name the one with the folders of GLUE and SuperGLUE")
    for folder in folders:
        for stem in stems:
            for pattern in (f"{stem}.jsonl", f"{stem}.parquet", f"{stem}-*-of-*.parquet", f"{stem}/*.parquet"):
                files = sorted(file for file in (root / folder).glob(pattern) if file.is_file())
                if files:
                    _require_all_shards(files)
                    return [Location(file) for file in files]
    for folder in folders:
        archive = root / f"{folder}.zip"
        if archive.is_file() and zipfile.is_zipfile(archive):
            with opened_archive(archive) as content:
                names = set(content.namelist())
            stem = next((s for s in stems if {f"{s}.jsonl", f"{folder}/{s}.jsonl"} & names), stems[0])
            return [find_file(str(archive), [folder], f"{stem}.jsonl")]
    raise ConfigError(
        f"{path} has no file of {folders[0]} for {stems[0]}; expected {folders[0]}/{stems[0]}.jsonl, "
        f"{folders[0]}/{stems[0]}-*.parquet or {folders[-1]}.zip"
    )


def _require_all_shards(files: list[Path]) -> None:
    shards = [match for file in files if (match := SHARD.search(file.name))]
    if shards and len(shards) != int(shards[0][2]):
        raise ConfigError(
            f"{files[0].parent} has {len(shards)} of {int(shards[0][2])} parquet files of a split; copy all of them"
        )


def rows(location: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its place for messages. Raise `ConfigError` for a file that cannot be read."""
    try:
        if location.path.suffix == ".parquet":
            yield from _parquet_rows(location.path)
        elif location.member:
            yield from _json_rows(location, io.BytesIO(unpack(location)))
        else:
            with open(location.path, "rb", buffering=1 << 20) as file:
                yield from _json_rows(location, file)
    except OSError as error:
        raise ConfigError(f"cannot read {location.name}: {reason(error)}; copy it again") from error


def sha256(location: Location) -> str:
    """Return the hash of the bytes of a file."""
    if location.member:
        return hashlib.sha256(unpack(location)).hexdigest()
    try:
        with open(location.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read {location.name}: {reason(error)}") from error


def _json_rows(location: Location, file: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        where = f"{location.name}, line {number}"
        if len(line) > MAX_LINE:
            raise ConfigError(f"{where}: a line must have at most {MAX_LINE:,} bytes")
        if not line.strip():
            continue
        try:
            row = parsed(line)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        yield where, row


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_package(str(path), "pyarrow", error) from error
    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}, rows after {number}: a text is not UTF-8 ({error}); write the file again as UTF-8"
        ) from error
    except (ArrowException, OSError) as error:
        raise ConfigError(
            f"{path} is not a readable parquet file: {' '.join(str(error).split())[:200]}; copy it again"
        ) from error
