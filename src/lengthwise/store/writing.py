"""Statements for both databases. Each runs inside a transaction that is already open."""

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Connection, insert


def batches(items: list[Any], size: int = 500) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def insert_rows(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def upsert(
    connection: Connection, insertion: Any, rows: list[dict[str, Any]], keep: Collection[str] | None = None
) -> None:
    """Insert rows. Where the key exists, update the other columns except `keep`; with `keep=None`, leave the row unchanged."""
    if not rows:
        return
    key = insertion.table.primary_key.columns.keys()
    if keep is None:
        insertion = insertion.on_conflict_do_nothing(index_elements=key)
    else:
        changes = {name: insertion.excluded[name] for name in rows[0] if name not in key and name not in keep}
        insertion = insertion.on_conflict_do_update(index_elements=key, set_=changes)
    connection.execute(insertion, rows)
