"""Finding and reading the published files of GLUE and SuperGLUE: parquet of the hub, and JSON lines."""

import hashlib
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lengthwise.corpora.sources.rows import json_row, numbered_lines, parquet_rows
from lengthwise.downstream.records import Location, find_file, opened_archive
from lengthwise.values import ConfigError

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")


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
    if location.path.suffix == ".parquet":
        for number, row in parquet_rows(location.path):
            if row is None:
                raise ConfigError(f"{location.name}, row {number}: it is not UTF-8 text; write the file again as UTF-8")
            yield f"{location.name}, row {number}", row
        return
    with location.open() as file:
        for number, _, line in numbered_lines(file, location.name):
            if line.isspace():
                continue
            where = f"{location.name}, line {number}"
            try:
                row = json_row(line)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
            yield where, row


def sha256(location: Location) -> str:
    """Return the hash of the bytes of a file."""
    with location.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
