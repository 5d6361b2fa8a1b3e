"""`open_store`, `open_results` and `upgrade_results`."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lengthwise.store.databases import connect, open_database
from lengthwise.store.databases.base import Database
from lengthwise.store.errors import OldTables, StoreError
from lengthwise.store.folders import results_option, store_option
from lengthwise.store.results import Store
from lengthwise.store.upgrading import upgrade
from lengthwise.values import is_url, require_address, require_no_address


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database must exist;
    if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for another program's lock.
    Raises `StoreError`.
    """
    return Store(_open(where, create, timeout))


def open_results(where: str | Path, create: bool = True, *, store: str | None = None, timeout: float = 60.0) -> Store:
    """Open the results whose files are in the folder `where`, so that `Store.folder` exists.

    The database is at the address `store`, such as postgresql://user@host/name, or else in the folder. Raises `ConfigError` if
    `where` is an address or `store` is none, and `StoreError` as `open_store` does.
    """
    address = _address(where, store)
    if store is None:
        return open_store(address, create, timeout=timeout)
    opened = Store(_open(address, create, timeout), Path(where).expanduser().absolute(), store)
    if create:
        try:
            opened.require_shared_folder()
        except BaseException:
            opened.close()
            raise
    return opened


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
    require_no_address("the results folder", where)
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
