"""A results folder at an address such as s3://bucket/folder, which fsspec reads and writes.

Training, evaluation and probes use a working folder on this machine, in the cache folder of its user. `fetch` brings the files of a
run into it, and `send` copies new files to the address. Beside the files of a run, a record says which version of each file is in
both places. It decides what counts if they differ:

- The files at the address are as this machine has left them. Then new files in the working folder, which could not be sent
  before, are the continuation.
- They are not. Then another machine has continued or deleted the run, and the working folder is made equal to them.

A file is uploaded before older ones are deleted, so an interruption at any moment leaves a checkpoint that can be used. The file
systems of object stores show a file only when it is complete; others may show a part of it, which training recognizes as damaged.
Only files with the names of checkpoints and weights are ever copied from an address.
"""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
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

ERROR = "error.txt"
RECORD = ".sent.json"  # in the folder of a run: {name: [version at the address, size here, time of change here]}
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
LOCK_SECONDS = 3600.0
CHECKPOINTS_KEPT = 2
# What shows that a file has changed, in the descriptions of fsspec's file systems. The first one that a file has is used.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "updated", "created")

Record = dict[str, tuple[str, int, int]]


class RemoteFolder(ResultsFolder):
    """The files of a results folder at an address. Methods raise `StoreUnreachable` if the same call may succeed later."""

    is_remote = True

    def __init__(self, address: str):
        protocol, _, folder = address.partition("://")
        self.protocol = protocol.lower()
        self._address = f"{self.protocol}://{folder.rstrip('/')}"

    @property
    def address(self) -> str:
        return self._address

    def __str__(self) -> str:
        return self._address

    @cached_property
    def path(self) -> Path:  # type: ignore[override]
        """Return the working folder, which is created."""
        name = f"results-{hashlib.sha256(self.address.encode()).hexdigest()[:16]}"
        try:
            cache = cache_folder.folder(create=True)
            for part in (cache / name, cache / name / "locks"):
                part.mkdir(mode=0o700, exist_ok=True)
        except (CacheError, OSError) as error:
            raise StoreError(
                f"files of {self} need a working folder, but {error}; set LENGTHWISE_CACHE to a folder that you can write to"
            ) from error
        return cache / name

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path of the results folder in it."""
        from fsspec import get_filesystem_class, url_to_fs

        try:
            get_filesystem_class(self.protocol)
        except ValueError:
            raise StoreError(
                f"the results folder has an unknown protocol, {self.protocol[:20]}://; write an address of a storage system that "
                "fsspec knows, such as s3://bucket/folder or gs://bucket/folder"
            ) from None
        except ImportError as error:
            extra = EXTRAS.get(self.protocol)
            fix = install_extra(extra) if extra else str(error)
            raise StoreError(f"{self.protocol}:// needs another package; {fix}") from error
        try:
            system, root = url_to_fs(self.address, use_listings_cache=False)
        except (TypeError, ValueError) as error:  # the file system needs arguments
            raise self._unsuitable(_first_line(error)) from error
        except Exception as error:
            raise self._explained(error) from error
        if self.address.endswith("://") or not root.strip("/"):
            raise self._unsuitable("it has no bucket or folder")
        if self.protocol == "memory":
            raise self._unsuitable("each process has its own memory")
        if _is_disk(system) and not self.address.startswith(f"{self.protocol}:///"):  # relative, or with ~
            raise self._unsuitable("the path of a folder on a disk must begin with a slash")
        return system, root.rstrip("/")

    def _unsuitable(self, why: str) -> StoreError:
        return StoreError(
            f"{self} cannot be a results folder ({why}); write for example s3://bucket/folder or file:///folder"
        )

    def identifier(self, create: bool) -> str | None:
        system, root = self._system
        path = f"{root}/{ID_FILE}"
        with self._errors():
            for last in (not create, True):
                try:
                    with system.open(path, "rb") as file:
                        return str(file.read(64).decode("ascii", "replace").strip())
                except FileNotFoundError:
                    if last:
                        return None
                    self._create(path)
        raise AssertionError

    def _create(self, path: str) -> None:
        """Write a new identifier."""
        system, root = self._system
        if _is_disk(system):
            system.makedirs(root, exist_ok=True)
        try:
            system.pipe_file(path, secrets.token_hex(16).encode())
        except FileNotFoundError as error:
            raise StoreError(
                f"{self} is in no bucket or folder that exists; create it, or correct the address"
            ) from error

    def trained(self, keys: Collection[str]) -> set[str]:
        found: set[str] = set()
        with self._errors(), suppress(FileNotFoundError):
            if len(keys) == 1:
                found = {key for key in keys if self._system[0].exists(self._path(key, WEIGHTS))}
            elif keys:  # one request for a thousand files
                paths = [path.split("/")[-2:] for path in self._system[0].find(f"{self._system[1]}/runs")]
                found = {path[0] for path in paths if path[-1] == WEIGHTS} & set(keys)
        if keys and not found:
            self._require_identifier()
        return found

    def fetch(self, key: str) -> None:
        folder = self.run_folder(key)
        with self._locked(key):
            there, record = self._list(key), _read_record(folder)
            versions = {name: version for name, version in there.items() if name != ERROR}
            changed = versions != {name: version for name, (version, *_) in record.items() if name != ERROR}
            checkpoints = sorted(filter(CHECKPOINT.fullmatch, versions), key=_step)
            with _local_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                for name in [*checkpoints[-CHECKPOINTS_KEPT:], *({WEIGHTS} & set(versions))]:
                    here = _files(folder).get(name)
                    if here is None or (changed and record.get(name) != (versions[name], *here)):
                        self._download(key, name, versions[name])
                        record[name] = (versions[name], *_files(folder)[name])
                        _write_record(folder, record)
                if changed:
                    for name in _files(folder).keys() - there.keys():
                        (folder / name).unlink(missing_ok=True)
                    _write_record(folder, {name: (there[name], *record.get(name, ("", 0, 0))[1:]) for name in there})

    def send(self, key: str) -> None:
        folder = self.run_folder(key)
        with _local_errors(folder):
            here = _files(folder)
            record = _read_record(folder)
            if not _unsent(here, record) and not _obsolete(record, here):
                return
            with self._locked(key):
                record = _read_record(folder)
                unsent = [name for name in _unsent(here, record) if self._upload(key, name)]
                there = self._list(key)
                for name in unsent:
                    if there.get(name, "").split()[:1] != [str(here[name][0])]:
                        raise StoreUnreachable(f"{self}/runs/{key}/{name} was not written completely; run this again")
                    record[name] = (there[name], *here[name])
                _write_record(folder, record)
                for name in _obsolete(there, here):
                    self._delete_file(key, name)
                    record.pop(name, None)
                _write_record(folder, record)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._locked(key):
            with self._errors(), suppress(FileNotFoundError):
                self._system[0].rm(path, recursive=True)
            super().delete(key)

    def _path(self, key: str, *name: str) -> str:
        return "/".join([self._system[1], "runs", require_key(key, "the key"), *name])

    def _list(self, key: str) -> dict[str, str]:
        """Return the versions of a run's files at the address, by name. Each begins with the size."""
        system, _ = self._system
        try:
            with self._errors():
                system.invalidate_cache()
                found = system.ls(self._path(key), detail=True)
        except FileNotFoundError:
            self._require_identifier()
            return {}
        files = {entry["name"].rpartition("/")[2]: entry for entry in found if entry["type"] == "file"}
        return {name: _version(entry) for name, entry in files.items() if _is_name(name)}

    def _require_identifier(self) -> None:
        """Raise `StoreError` if the whole results folder is missing, so that this is not taken for runs without files."""
        if self.identifier(create=False) is None:
            raise StoreError(
                f"{self}/{ID_FILE} is missing, so this is not the results folder, or it was deleted; restore it"
            )

    def _download(self, key: str, name: str, version: str) -> None:
        folder = self.run_folder(key)
        draft = folder / f".{name}.fetched"
        draft.unlink(missing_ok=True)
        try:
            with self._errors():
                self._system[0].get_file(self._path(key, name), str(draft))
            if draft.stat().st_size != int(version.split()[0]):
                raise StoreUnreachable(f"{self}/runs/{key}/{name} changed while it was copied; run this again")
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, folder / name)
        except FileNotFoundError as error:
            raise StoreUnreachable(
                f"{self}/runs/{key}/{name} was deleted while it was copied; run this again"
            ) from error
        finally:
            draft.unlink(missing_ok=True)

    def _upload(self, key: str, name: str) -> bool:
        """Return False if training has deleted the file in the meantime."""
        system, _ = self._system
        file, path = self.run_folder(key) / name, self._path(key, name)
        target = self._path(key, f".{name}.tmp") if _is_disk(system) else path
        try:
            with self._errors():
                try:
                    system.put_file(str(file), target)
                except FileNotFoundError:
                    if not file.exists():
                        return False
                    self._require_identifier()
                    system.makedirs(self._path(key), exist_ok=True)
                    system.put_file(str(file), target)
                if target != path:
                    system.mv(target, path)
        except FileNotFoundError:
            if file.exists():
                raise
            return False
        return True

    def _delete_file(self, key: str, name: str) -> None:
        with self._errors(), suppress(FileNotFoundError):
            self._system[0].rm_file(self._path(key, name))

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Let only one process of this machine copy or delete the files of a run at a time."""
        what = f"copying the files of run {key[:8]}"
        with cache_folder.locked(self.path / "locks" / key, LOCK_SECONDS, what=what) as is_locked:
            if not is_locked:
                raise StoreUnreachable(f"another process on this machine is still {what}; stop it, or try again later")
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the exceptions of a file system, which can be of any type, except for `FileNotFoundError`."""
        try:
            yield
        except (StoreError, FileNotFoundError):
            raise
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> StoreError:
        kind, text = type(error).__name__, _first_line(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return StoreError(f"files of {self} cannot be copied ({text}); make space, or choose another place")
        if isinstance(error, OSError) and error.errno in (
            errno.ENOTDIR,
            errno.EISDIR,
            errno.EEXIST,
            errno.ENAMETOOLONG,
        ):
            return StoreError(
                f"{self} cannot have the files of runs ({text}); correct the address, or remove what is in the way"
            )
        if isinstance(error, NotImplementedError):
            return StoreError(f"{self.protocol}:// cannot be written; give an address such as s3://bucket/folder")
        if isinstance(error, PermissionError) or "Credential" in kind or "Auth" in kind or "Refresh" in kind:
            fix = "make credentials known to this machine as the storage service describes, for example with environment variables"
            if getattr(error, "filename", None) is not None:  # of a folder on a disk
                fix = "change its permissions, or choose another place"
            return StoreError(f"{self} refuses access ({text}); {fix}")
        return StoreUnreachable(f"{self} cannot be reached ({text}); check the address and the network")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0] if lines else type(error).__name__)[:200]


def _is_disk(system: Any) -> bool:
    """Return whether a file system shows incomplete files, and has links that could lead elsewhere."""
    return bool(getattr(system, "local_file", False))


def _is_name(name: str) -> bool:
    return name in (WEIGHTS, ERROR) or CHECKPOINT.fullmatch(name) is not None


def _step(name: str) -> float:
    """Return the step of a checkpoint, infinity for the weights, which are newer than all checkpoints, and -1 for other files."""
    match = CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else math.inf if name == WEIGHTS else -1


def _unsent(here: Mapping[str, tuple[int, int]], record: Record) -> list[str]:
    """Return the names of files that have changed here since they were copied, the oldest checkpoint first."""
    return sorted((name for name in here if record.get(name, ("", 0, 0))[1:] != here[name]), key=_step)


def _obsolete(there: Collection[str], here: Collection[str]) -> list[str]:
    """Return the names of files at the address that training here has replaced by newer ones, which are there too."""
    newest = max((_step(name) for name in here if name in there), default=-1)
    return sorted(name for name in there if name not in here and (name == ERROR or _step(name) < newest))


def _version(entry: Mapping[str, Any]) -> str:
    version = next((f"{field}={entry[field]}" for field in _VERSIONS if entry.get(field) is not None), "unknown")
    return f"{int(entry['size'])} {version}"


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of the files of a run on this machine, by name."""
    found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if _is_name(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = (status.st_size, status.st_mtime_ns)
    return found


def _read_record(folder: Path) -> Record:
    """Return the record of a run; an empty one if it is damaged, after which the files at the address count."""
    try:
        data = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {name: (str(version), int(size), int(time)) for name, (version, size, time) in data.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _write_record(folder: Path, record: Record) -> None:
    cache_folder.write(folder / RECORD, json.dumps(record).encode())


@contextmanager
def _local_errors(folder: Path) -> Iterator[None]:
    """Convert errors of this machine's disk."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: {error.strerror or error}; the working folder must be writable"
        ) from error
