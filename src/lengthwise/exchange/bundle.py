"""Bundles: a study as one file, which can be added to other results.

A bundle is a zip file with an SQLite database that has only this study (`results.db`), the weights of its runs
(`weights/KEY.safetensors`) and a list of SHA-256 sums, which `sha256sum -c SHA256SUMS` checks too. Only files with
these names are read, and none of them is ever executed.

    with open_results("lengthwise-results", create=False) as store:
        export_bundle(store, "quickstart", Path("quickstart.zip"))
    with opened_bundle(Path("quickstart.zip")) as bundle, open_results("other-results") as store:
        bundle.add_to(store)
"""

import hashlib
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lengthwise import cache_folder
from lengthwise.store import Store, StoreError, open_store
from lengthwise.values import WEIGHTS, ConfigError

DATABASE, SUMS = "results.db", "SHA256SUMS"
_WEIGHTS = re.compile(r"weights/([0-9a-f]{16})\.safetensors")
# What `zipfile` raises for damaged files.
_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)


def export_bundle(store: Store, study: str, path: Path, *, weights: bool = True) -> dict[str, int]:
    """Write a study, with the weights of its runs or without. Return the numbers of weights files and of rows by table.

    The file appears complete, or not at all. Raises `StoreError` for an unknown study.
    """
    with tempfile.TemporaryDirectory(prefix="lengthwise-") as folder:
        database = Path(folder, DATABASE)
        with store.study_cells(study) as tables, open_store(database) as copy:
            counts = copy.add_study_cells(tables)
            keys = sorted(store.files.trained([run.key for run in copy.runs()])) if weights else []
        with cache_folder.writing(path) as draft, zipfile.ZipFile(draft, "w") as bundle:
            sums = [_add(bundle, DATABASE, database, zipfile.ZIP_DEFLATED)]
            for key in keys:
                store.files.fetch(key)
                file = store.files.run_folder(key) / WEIGHTS
                sums.append(_add(bundle, f"weights/{key}.safetensors", file, zipfile.ZIP_STORED))
            bundle.writestr(SUMS, "".join(sums))
    return counts | {"weights": len(keys)}


def _add(bundle: zipfile.ZipFile, name: str, file: Path, compression: int) -> str:
    """Add a file, and return its line of `SHA256SUMS`."""
    bundle.write(file, name, compression)
    with open(file, "rb") as content:
        return f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {name}\n"


@dataclass(frozen=True)
class Bundle:
    """An open bundle whose names and sums were checked. `weights`: the names of weights files by run key."""

    path: Path
    study: str
    weights: dict[str, str]
    _file: zipfile.ZipFile
    _rows: Store

    def add_to(self, store: Store) -> dict[str, int]:
        """Add everything that a store and its results folder lack, or nothing after an error. Return the number of new
        rows by table, and of new weights files. Raises `StoreError` as `Store.add_study_cells` does.
        """
        added: list[Path] = []
        try:
            for key, name in self.weights.items():
                store.files.fetch(key)
                target = store.files.run_folder(key) / WEIGHTS
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with self._file.open(name) as source, cache_folder.writing(target) as draft:
                        shutil.copyfileobj(source, draft)
                    added.append(target)
            with self._rows.study_cells(self.study) as tables:
                counts = store.add_study_cells(tables)
        except BaseException as error:
            for target in added:
                target.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _error(self.path, f"{error.filename}: {error.strerror}") from error
            raise
        for key in self.weights:
            store.files.send(key)
        return counts | {"weights": len(added)}


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """Open a bundle and check its names and sums. Raises `ConfigError`, which says in one line what is wrong."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(zipfile.ZipFile(path))
            weights = _weights(path, file)
            _check_sums(path, file)
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="lengthwise-"))
            rows = opened.enter_context(open_store(file.extract(DATABASE, folder), create=False))
            studies = [study.name for study in rows.studies()]
        except StoreError as error:
            raise _error(path, str(error).replace(f"{folder}/", "its ")) from error
        except ConfigError:
            raise
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise _error(path, f"it cannot be read ({error.strerror})") from error
        except _DAMAGED as error:
            reason = ascii(str(error))[1:-1]
            raise _error(path, f"it is not a bundle, or it is damaged ({reason or 'it ends too early'})") from error
        if len(studies) != 1:
            raise _error(path, f"it has {len(studies)} studies instead of one")
        yield Bundle(path, studies[0], weights, file, rows)


def _weights(path: Path, file: zipfile.ZipFile) -> dict[str, str]:
    """Return the names of weights files by run key. Raises `ConfigError` for names that no bundle has."""
    names = file.namelist()
    weights = {match[1]: match[0] for name in names if (match := _WEIGHTS.fullmatch(name))}
    if unknown := sorted(set(names) - {DATABASE, SUMS, *weights.values()}):
        raise _error(path, f"it contains {unknown[0][:60]!a}, which no bundle has")
    if missing := sorted({DATABASE, SUMS} - set(names)):
        raise _error(path, f"it has no {missing[0]}, so it is not a bundle of `lengthwise export bundle`")
    return weights


def _check_sums(path: Path, file: zipfile.ZipFile) -> None:
    """Raise `ConfigError` unless the files of a bundle are those that were written."""
    lines = [line.split("  ", 1) for line in file.read(SUMS).decode().splitlines()]
    sums = {name: digest for digest, name in lines}
    for name in sorted({*file.namelist(), *sums} - {SUMS}):
        if name not in sums or name not in file.namelist():
            raise _error(path, f"{name!a} is missing in it, or in its {SUMS}")
        with file.open(name) as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != sums[name]:  # type: ignore[arg-type]
                raise _error(path, f"{name} was damaged or modified: its sum is not that of {SUMS}")


def _error(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} cannot be imported: {reason}; nothing was imported")
