"""Write a study as a bundle. The same rows give the same bytes."""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lengthwise
from lengthwise import cache_folder
from lengthwise.exchange.bundles.layout import FILES, LAYOUT, MANIFEST, cells_to_json

if TYPE_CHECKING:
    from lengthwise.store import Store

BUFFERED = 1 << 20  # bytes that are compressed together
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def write_bundle(store: "Store", study: str, path: Path) -> dict[str, int]:
    """Write a study and return the number of rows by table. The file appears complete, or not at all.

    Raises `StoreError` for an unknown study.
    """
    files: dict[str, dict[str, Any]] = {}
    with (
        store.study_cells(study) as tables,
        cache_folder.writing(path) as draft,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        for name, table in FILES.items():
            digest, size, rows = hashlib.sha256(), 0, 0
            with bundle.open(_entry(name), "w", force_zip64=True) as file:
                for part, count in _parts(tables[table]):
                    digest.update(part)
                    size, rows = size + len(part), rows + count
                    file.write(part)
            files[name] = {"rows": rows, "size": size, "sha256": digest.hexdigest()}
        manifest = {"bundle": LAYOUT, "lengthwise": lengthwise.__version__, "study": study, "files": files}
        bundle.writestr(_entry(MANIFEST), json.dumps(manifest, indent=1, sort_keys=True))
    return {table: files[name]["rows"] for name, table in FILES.items()}


def _parts(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of many rows together, and their number."""
    lines, size = list[str](), 0
    for row in rows:
        line = _JSON(cells_to_json(row))
        lines.append(line)
        size += len(line)
        if size > BUFFERED:
            yield ("\n".join(lines) + "\n").encode(), len(lines)
            lines, size = [], 0
    if lines:
        yield ("\n".join(lines) + "\n").encode(), len(lines)


def _entry(name: str) -> zipfile.ZipInfo:
    """Return the entry of a file, with a date that is always the same."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
