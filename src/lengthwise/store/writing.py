"""Statements for both databases. Each runs inside a transaction that is already open."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, insert

T = TypeVar("T")


def batches(items: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def insert_rows(connection: Connection, table: Any, rows: Iterable[dict[str, Any]]) -> int:
    """Insert rows, and return their number."""
    count = 0
    for batch in batches(rows):
        connection.execute(insert(table), batch)
        count += len(batch)
    return count


def upsert(
    connection: Connection, insertion: Any, rows: list[dict[str, Any]], keep: Collection[str] | None = None
) -> None:
    """Insert rows. Where the key exists, update the columns except `keep`; with None, leave the row unchanged."""
    if not rows:
        return
    key = insertion.table.primary_key.columns.keys()
    if keep is None:
        insertion = insertion.on_conflict_do_nothing(index_elements=key)
    else:
        changes = {name: insertion.excluded[name] for name in rows[0] if name not in key and name not in keep}
        insertion = insertion.on_conflict_do_update(index_elements=key, set_=changes)
    connection.execute(insertion, rows)
