"""`open_store`, `open_results` and `open_folder`."""

from pathlib import Path

from lengthwise.store.databases import open_database
from lengthwise.store.folders import ResultsFolder
from lengthwise.store.remote_files import RemoteFolder
from lengthwise.store.results import Store
from lengthwise.values import is_remote, require_address, require_results


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database
    must exist; if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for
    another program's lock. Raises `StoreError`.
    """
    return Store(open_database(where, create, timeout))


def open_results(where: str | Path, create: bool = True, *, store: str | None = None, timeout: float = 60.0) -> Store:
    """Open the results whose files are in the folder `where`, so that `Store.files` exists.

    The database is at the address `store`, such as postgresql://user@host/name, or else in the folder. With `store`,
    the folder may be at an address too, such as s3://bucket/folder. Raises `ConfigError` if `where` or `store` cannot
    be used, and `StoreError` as `open_store` does.
    """
    require_results(where, store is not None)
    if store is None:
        return open_store(where, create, timeout=timeout)
    require_address(store)
    files = open_folder(where)
    if create:
        files.identifier(create=False)  # if an address cannot be reached, no tables are created
    opened = Store(open_database(store, create, timeout), files, store)
    if create:
        try:
            opened.require_shared_folder()
        except BaseException:
            opened.close()
            raise
    return opened


def open_folder(where: str | Path) -> ResultsFolder:
    """Return the results folder on this machine or at an address. Nothing is read or created yet."""
    require_results(where, True)
    return RemoteFolder(where) if is_remote(where) else ResultsFolder(Path(where).expanduser().absolute())
