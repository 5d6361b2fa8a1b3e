"""Statements for both databases. Each runs inside a transaction that is already open."""

import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from lengthwise.store import columns, schema
from lengthwise.store.checks import escaped
from lengthwise.store.errors import StoreWarning


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


def repair(connection: Connection, keys: list[str], fresh: Mapping[str, Any]) -> None:
    """Replace unreadable rows of runs by `fresh`, and delete their unreadable scores, so that these questions are asked again.

    Issues a `StoreWarning` for each of them.
    """
    runs = schema.runs
    for batch in batches(keys):
        for row in connection.execute(select(runs).where(runs.c.key.in_(batch))).all():
            if not columns.is_readable(schema.runs, row):
                _warn(f"runs: the row {escaped(row.key)} could not be read, and the run starts from the beginning")
                connection.execute(update(runs).where(runs.c.key == row.key).values(fresh))
        remove_unreadable(connection, schema.scores, schema.scores.c.key.in_(batch))


def remove_unreadable(connection: Connection, table: Any, which: Any) -> None:
    """Delete the unreadable rows of a table whose rows have a question."""
    for row in connection.execute(select(table).where(which)).all():
        if not columns.is_readable(table, row):
            _warn(f"{table.name}: the row {escaped(row.key)} {escaped(row.question)} could not be read and was removed")
            connection.execute(delete(table).where(and_(table.c.key == row.key, table.c.question == row.question)))


def _warn(line: str) -> None:
    warnings.warn(StoreWarning(line), stacklevel=3)
