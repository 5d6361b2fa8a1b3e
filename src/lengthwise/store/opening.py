"""Open a results database."""

from pathlib import Path

from lengthwise.store.databases import open_database
from lengthwise.store.results import Store
from lengthwise.values import require_no_address


def open_store(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where`: a results folder (its `results.db`), a database file, or a URL.

    With `create`, missing folders and tables are created, and the database must be writable. Without it, the database must exist;
    if it is not writable, it is opened for reading only (`Store.readonly`). `timeout`: seconds to wait for another program's lock.
    Raises `StoreError`.
    """
    return Store(open_database(where, create, timeout))


def open_results(where: str | Path, create: bool = True, *, timeout: float = 60.0) -> Store:
    """Open the results at `where` like `open_store`, but only on this machine, so that `Store.folder` exists.

    Commands and executions use this function, because they need the folder with the trained models. Raises `ConfigError` for a URL.
    """
    require_no_address("the results folder", where)
    return open_store(where, create, timeout=timeout)
