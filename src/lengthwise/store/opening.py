"""`open_store` and `open_results`."""

from pathlib import Path

from lengthwise.store.databases import open_database
from lengthwise.store.results import Store
from lengthwise.values import require_address, require_no_address


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database must exist;
    if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for another program's lock.
    Raises `StoreError`.
    """
    return Store(open_database(where, create, timeout))


def open_results(where: str | Path, create: bool = True, *, store: str | None = None, timeout: float = 60.0) -> Store:
    """Open the results whose files are in the folder `where`, so that `Store.folder` exists.

    The database is at the address `store`, such as postgresql://user@host/name, or else in the folder. Raises `ConfigError` if
    `where` is an address or `store` is none, and `StoreError` as `open_store` does.
    """
    require_no_address("the results folder", where)
    if store is None:
        return open_store(where, create, timeout=timeout)
    require_address("store", store)
    opened = Store(open_database(store, create, timeout), Path(where).expanduser().absolute(), store)
    if create:
        try:
            opened.require_shared_folder()
        except BaseException:
            opened.close()
            raise
    return opened
