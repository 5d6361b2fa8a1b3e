"""A results folder at an address such as s3://bucket/folder, which fsspec reads and writes."""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from lengthwise import cache_folder
from lengthwise.cache_folder import CacheError
from lengthwise.store.cells import require_key
from lengthwise.store.errors import StoreError, StoreUnreachable
from lengthwise.store.folders import ID_FILE, ResultsFolder
from lengthwise.values import CHECKPOINT, WEIGHTS, install_extra, without_secrets

RECORD = ".sent.json"
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
LASTING = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class RemoteFolder(ResultsFolder):
    """The files of a results folder at an address, and a working folder for them in the cache folder of this machine.

    Beside the files of a run, a record says which version of each file is in both places. If the files at the address
    are as this machine has left them, new files in the working folder, which could not be sent before, are the
    continuation. Otherwise another machine has continued or deleted the run, and `fetch` makes the working folder equal
    to the address.

    Methods raise `StoreUnreachable` if the same call may succeed later.
    """

    is_remote = True

    def __init__(self, address: str):
        self.protocol, _, folder = address.partition("://")
        self._address = f"{self.protocol}://{folder.rstrip('/')}"

    @property
    def address(self) -> str:
        return self._address

    def __str__(self) -> str:
        return self._address

    @cached_property
    def path(self) -> Path:  # type: ignore[override]
        """Return the working folder, which is created."""
        try:
            cache = cache_folder.folder(create=True)
            folder = cache / f"results-{hashlib.sha256(self._address.encode()).hexdigest()[:16]}"
            folder.mkdir(mode=0o700, exist_ok=True)
        except (CacheError, OSError) as error:
            raise StoreError(
                f"files of {self} need a working folder, but {error}; set LENGTHWISE_CACHE to a folder that you can "
                "write to"
            ) from error
        return folder

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path of the results folder in it."""
        from fsspec import url_to_fs

        options = {"auto_mkdir": True} if self.protocol == "file" else {}
        try:
            if self._address.endswith("://"):
                raise ValueError("it has no bucket or folder")
            system, root = url_to_fs(self._address, use_listings_cache=False, **options)
        except ImportError as error:
            extra = EXTRAS.get(self.protocol)
            fix = install_extra(extra) if extra else _first_line(error)
            raise StoreError(f"{self.protocol}:// needs another package; {fix}") from error
        except Exception as error:
            raise StoreError(
                f"{self} cannot be a results folder ({_first_line(error)}); write an address such as s3://bucket/folder"
            ) from error
        return system, root

    def identifier(self, create: bool) -> str | None:
        system, root = self._system
        file = f"{root}/{ID_FILE}"
        with self._errors():
            try:
                return str(system.cat_file(file).decode("ascii", "replace").strip())
            except FileNotFoundError:
                if not create:
                    return None
            identifier = secrets.token_hex(16)
            system.pipe_file(file, identifier.encode())
            return identifier

    def trained(self, keys: Collection[str]) -> set[str]:
        system, root = self._system
        with self._errors():
            stored_keys = {file.split("/")[-2] for file in system.glob(f"{root}/runs/*/{WEIGHTS}")} & set(keys)
        if keys and not stored_keys:
            self._require_identifier()
        return stored_keys

    def fetch(self, key: str) -> None:
        folder, path = self.run_folder(key), self._path(key)
        there, here, record = self._versions(key), _times(folder), _read_record(folder)
        unchanged = there == {name: version for name, (version, _) in record.items()}
        with self._errors():
            folder.mkdir(parents=True, exist_ok=True)
            for name, version in there.items():
                if unchanged and name in here:
                    continue
                draft = folder / f".lengthwise-{os.getpid()}"
                with suppress(FileNotFoundError):  # another machine has replaced it by a newer one
                    self._system[0].get_file(f"{path}/{name}", str(draft))
                    os.replace(draft, folder / name)
                    record[name] = (version, _times(folder)[name])
            if not unchanged:
                for name in here.keys() - there.keys():
                    (folder / name).unlink(missing_ok=True)
            _write_record(folder, {name: record[name] for name in there if name in record})

    def send(self, key: str) -> None:
        """Upload new files, and then delete those that they replace, so that some checkpoint is always there."""
        folder, path = self.run_folder(key), self._path(key)
        here, record = _times(folder), _read_record(folder)
        with self._errors():
            for name in sorted(here):  # the weights last
                if name in record and record[name][1] == here[name]:
                    continue
                try:
                    self._system[0].put_file(str(folder / name), f"{path}/{name}")
                except FileNotFoundError:
                    if (folder / name).exists():
                        raise
                    continue  # training has deleted it in the meantime
                record[name] = (self._system[0].ukey(f"{path}/{name}"), here[name])
                _write_record(folder, record)
            newest = max((_step(name) for name in here.keys() & record.keys()), default=-1.0)
            for name in [name for name in record if name not in here and _step(name) < newest]:
                with suppress(FileNotFoundError):
                    self._system[0].rm_file(f"{path}/{name}")
                del record[name]
                _write_record(folder, record)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors(), suppress(FileNotFoundError):
            self._system[0].rm(path, recursive=True)
        super().delete(key)

    def _path(self, key: str) -> str:
        return f"{self._system[1]}/runs/{require_key(key)}"

    def _versions(self, key: str) -> dict[str, str]:
        """Return the files of a run at the address, each with a text that changes when the file does."""
        system, path = self._system[0], self._path(key)
        versions: dict[str, str] = {}
        with self._errors(), suppress(FileNotFoundError):
            names = [file.rpartition("/")[2] for file in system.ls(path, detail=False)]
            versions = {name: system.ukey(f"{path}/{name}") for name in names if _is_file_of_run(name)}
        if not versions:
            self._require_identifier()
        return versions

    def _require_identifier(self) -> None:
        """Raise `StoreError` if the whole folder is missing, so that this is not taken for runs without files."""
        if self.identifier(create=False) is None:
            raise StoreError(
                f"{self}/{ID_FILE} is missing, so this is not the results folder, or it was deleted; restore it"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the exceptions of a file system, which can be of any type."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            kind, text = type(error).__name__, _first_line(error)
            if isinstance(error, PermissionError) or "Credential" in kind or "Auth" in kind or "Refresh" in kind:
                fix = "give this machine the credentials of the storage service, or change the permissions"
                raise StoreError(f"{self} refuses access ({text}); {fix}") from error
            if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in LASTING):
                fix = "correct the address, create its bucket or folder, or make space"
                raise StoreError(f"{self} cannot hold the files of runs ({text}); {fix}") from error
            raise StoreUnreachable(f"{self} cannot be reached ({text}); check the address and the network") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0] if lines else type(error).__name__)


def _is_file_of_run(name: str) -> bool:
    return name in (WEIGHTS, "error.txt") or CHECKPOINT.fullmatch(name) is not None


def _step(name: str) -> float:
    """Return the step of a checkpoint, infinity for the weights, which are newer, and -1 for other files."""
    match = CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else math.inf if name == WEIGHTS else -1


def _times(folder: Path) -> dict[str, int]:
    """Return the time of the last change of each file of a run on this machine."""
    times = {}
    for file in folder.glob("*"):
        if _is_file_of_run(file.name):
            with suppress(FileNotFoundError):  # training has just deleted it
                times[file.name] = file.stat().st_mtime_ns
    return times


def _read_record(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the version at the address and the time of change here of each file that is in both places.

    A missing or damaged record is empty, and then the files at the address count.
    """
    try:
        data = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {name: (version, time) for name, (version, time) in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write_record(folder: Path, record: dict[str, tuple[str, int]]) -> None:
    cache_folder.write(folder / RECORD, json.dumps(record).encode())
