"""Finding and reading the published files of GLUE and SuperGLUE: parquet of the hub, and JSON lines."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lengthwise.corpora.sources.rows import json_row, numbered_lines, parquet_rows
from lengthwise.values import ConfigError

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")


def find(path: str, folders: Sequence[str], stems: Sequence[str]) -> list[Path]:
    """Return the files of one split of a data set. `folders`: the names of its folder. `stems`: those of the split.

    They are STEM.jsonl, STEM.parquet, STEM-00000-of-00001.parquet or STEM/0000.parquet in a folder. Raise `ConfigError`
    if there are none, or not all of several parquet files.
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
                    return files
    raise ConfigError(
        f"{path} has no file of {folders[0]} for {stems[0]}; expected {folders[0]}/{stems[0]}.jsonl or "
        f"{folders[0]}/{stems[0]}-*.parquet (unzip an archive first)"
    )


def _require_all_shards(files: list[Path]) -> None:
    shards = [match for file in files if (match := SHARD.search(file.name))]
    if shards and len(shards) != int(shards[0][2]):
        raise ConfigError(
            f"{files[0].parent} has {len(shards)} of {int(shards[0][2])} parquet files of a split; copy all of them"
        )


def rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its place for messages. Raise `ConfigError` for an unreadable file."""
    if path.suffix == ".parquet":
        for number, row in parquet_rows(path):
            if row is None:
                raise ConfigError(f"{path}, row {number}: it is not UTF-8 text; write the file again as UTF-8")
            yield f"{path}, row {number}", row
        return
    with open(path, "rb") as file:
        for number, _, line in numbered_lines(file, str(path)):
            if line.isspace():
                continue
            where = f"{path}, line {number}"
            try:
                row = json_row(line)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None
            yield where, row
