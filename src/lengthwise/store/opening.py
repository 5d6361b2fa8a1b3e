"""`open_store`, `open_results`, `open_folder` and `upgrade_results`."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lengthwise.store.databases import connect, open_database
from lengthwise.store.databases.base import Database
from lengthwise.store.errors import OldTables, StoreError
from lengthwise.store.folders import ResultsFolder, results_option, store_option
from lengthwise.store.remote_files import RemoteFolder
from lengthwise.store.results import Store
from lengthwise.store.upgrading import upgrade
from lengthwise.values import is_remote, is_url, require_address, require_results


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database must exist;
    if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for another program's lock.
    Raises `StoreError`.
    """
    return Store(_open(where, create, timeout))


def open_results(where: str | Path, create: bool = True, *, store: str | None = None, timeout: float = 60.0) -> Store:
    """Open the results whose files are in the folder `where`, so that `Store.files` exists.

    The database is at the address `store`, such as postgresql://user@host/name, or else in the folder. With `store`, the folder
    may be at an address too, such as s3://bucket/folder. Raises `ConfigError` if `where` or `store` cannot be used, and
    `StoreError` as `open_store` does.
    """
    address = _address(where, store)
    if store is None:
        return open_store(address, create, timeout=timeout)
    files = open_folder(where)
    if create:
        files.identifier(create=False)  # if an address cannot be reached, no tables are created
    opened = Store(_open(address, create, timeout), files, store)
    if create:
        try:
            opened.require_shared_folder()
        except BaseException:
            opened.close()
            raise
    return opened


def open_folder(where: str | Path) -> ResultsFolder:
    """Return the results folder on this machine, or at an address such as s3://bucket/folder. Nothing is read or created yet."""
    require_results("the results folder", where, True)
    return RemoteFolder(where) if is_remote(where) else ResultsFolder(Path(where).expanduser().absolute())


@dataclass(frozen=True)
class Upgrade:
    """What `upgrade_results` did. `name`: how messages call the database. `before`, `after`: revisions of the tables."""

    name: str
    before: int
    after: int


def upgrade_results(where: str | Path, *, store: str | None = None, timeout: float = 60.0) -> Upgrade:
    """Upgrade the tables of a database to the newest revision, or leave everything as it is.

    The arguments are those of `open_results`. Raises `StoreError` if a living worker holds a run or a step fails.
    """
    with closing(connect(_address(where, store), False, timeout)) as database:
        before, after = upgrade(database)
        return Upgrade(database.name, before, after)


def _address(where: str | Path, store: str | None) -> str | Path:
    """Return where the database is."""
    require_results("the results folder", where, store is not None)
    if store is None:
        return where
    require_address("store", store)
    return store


def _open(where: str | Path, create: bool, timeout: float) -> Database:
    try:
        return open_database(where, create, timeout)
    except OldTables as error:
        option = store_option(str(where)) if is_url(where) else results_option(where)
        raise StoreError(f"{error}; stop all workers and run `lengthwise upgrade{option}`") from None
