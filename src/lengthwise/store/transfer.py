"""Rows as they are in one moment, and the rows of a study for another store: what `Store` reads for a bundle, and
how it adds the rows of one.

A row is a dict of cells as they are stored: JSON is text, and a number that is not known is None. What concerns one
store alone is left out: the worker that holds a run, and its signs of life.
"""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

from sqlalchemy import Connection, Table, and_, delete, insert, select, update

from lengthwise.store import reading, schema
from lengthwise.store.claims import CLAIM_OVER
from lengthwise.store.databases.base import Database
from lengthwise.store.errors import StoreError
from lengthwise.store.rows import plain_text
from lengthwise.store.workers import is_dead
from lengthwise.store.writing import batches, insert_rows
from lengthwise.values import TRAINING

Cells = dict[str, Any]
Tables = Mapping[str, Iterable[Cells]]

TABLES = {
    table.name: table  # in the order of their references
    for table in (schema.studies, schema.runs, schema.study_runs, schema.requested_questions, schema.answers)
}
OF_ONE_STORE = ("worker", "heartbeat", "deaths")
SETTINGS = ("config", "metric", "better", "seed", "train_length")  # of a run, which its key stands for


def names_of(table: Table) -> list[str]:
    """Return the names of the columns of a table that a bundle has."""
    return [name for name in table.c.keys() if table is not schema.runs or name not in OF_ONE_STORE]  # noqa: SIM118


class Transfers:
    """The part of `Store` that reads one moment, and reads and adds all rows of a study."""

    name: str
    _database: Database
    _transaction: Callable[..., AbstractContextManager[Connection]]
    _now: Callable[[Connection], float]

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Yield this store as it is now, for reading in one thread. All its queries are one transaction."""
        with self._transaction(writes=False) as connection:

            def joined(*, writes: bool) -> AbstractContextManager[Connection]:
                assert not writes, "a snapshot can only be read"
                return nullcontext(connection)

            frozen = copy.copy(self)
            frozen._transaction = joined
            yield frozen

    @contextmanager
    def study_cells(self, study: str) -> Iterator[dict[str, Iterator[Cells]]]:
        """Yield the rows of a study by table, as they are in one moment.

        They are those of its runs, of the runs that these started from, and of the runs that they are compared with.
        """
        study = plain_text(study)
        with self._transaction(writes=False) as connection:
            reading.require_study(connection, study)
            listed = list(
                connection.scalars(
                    select(schema.study_runs.c.key)
                    .where(schema.study_runs.c.study == study)
                    .order_by(schema.study_runs.c.position)
                )
            )
            others = _others(connection, listed)
            of_study = {"studies": schema.studies.c.name, "study_runs": schema.study_runs.c.study}
            of_study["asked"] = schema.requested_questions.c.study
            rows_by_table = {}
            for name, table in TABLES.items():
                columns = [table.c[column] for column in names_of(table)]
                if name in of_study:
                    queries = [select(*columns).where(of_study[name] == study)]
                else:
                    keys = listed + others if name == "runs" else listed
                    queries = [select(*columns).where(table.c.key.in_(batch)) for batch in batches(keys)]
                queries = [query.order_by(*table.primary_key.columns) for query in queries]
                rows_by_table[name] = _cells(connection, table, queries)
            yield rows_by_table

    def add_study_cells(self, tables: Tables) -> dict[str, int]:
        """Add the rows of a study by table, which were checked before, in one transaction. Return the number of new
        rows by table.

        What the store has stays: finished runs, and answers. Runs that are not finished here get
        the training of the other store. The study's list of runs becomes that of the other store if that was changed
        later.

        Raises `StoreError`, and changes nothing, if the store has another study of this name, other settings or
        results for the same key, or a worker that trains one of the runs.
        """
        with self._transaction(writes=True) as connection:
            self._database.lock_creation(connection)  # two imports of one study, one after the other
            (study,) = tables["studies"]
            replaced = _add_study(connection, study, self.name)
            added = {"studies": int(replaced)}
            added["runs"] = _add_runs(connection, tables["runs"], self._now(connection), self.name)
            for name in ("study_runs", "asked"):
                added[name] = insert_rows(connection, TABLES[name], tables[name] if replaced else ())
            added["answers"] = _add_answers(connection, tables["answers"], self.name)
            return added


def _cells(connection: Connection, table: Table, queries: Iterable[Any]) -> Iterator[Cells]:
    for query in queries:
        yield from (dict(row._mapping) for row in connection.execute(query))


def _others(connection: Connection, listed: list[str]) -> list[str]:
    """Return the keys of runs that a study does not list, but that its runs started from or are compared with."""
    known, keys, further = set(listed), list[str](), set(listed)
    parents = dict(connection.execute(select(schema.runs.c.key, schema.runs.c.parent)).all())
    answers = reading.answers(connection, listed)
    further |= {str(row.question["against"]) for row in answers if row.question.get("against")}
    while further:
        keys += sorted(key for key in further - known if key in parents)
        known |= further
        further = {parents[key] for key in further if parents.get(key)} - known
    return keys


# ---- adding rows --------------------------------------------------------------------------------------------------


def _add_study(connection: Connection, study: Cells, name: str) -> bool:
    """Add the study, or replace an older state. Return whether its lists of runs and questions are missing."""
    table, is_it = schema.studies, schema.studies.c.name == study["name"]
    known = connection.execute(select(table).where(is_it).with_for_update()).one_or_none()
    if known is not None and known.created != study["created"]:
        raise StoreError(
            f"{name} has another study {study['name']!r}, which was created at another time; import the bundle into a "
            "new results folder (--results), or drop that study first"
        )
    if known is not None and known.updated >= study["updated"]:
        return False
    if known is None:
        connection.execute(insert(table), [study])
    else:
        connection.execute(update(table).where(is_it).values(study))
        for list_table in (schema.study_runs, schema.requested_questions):
            connection.execute(delete(list_table).where(list_table.c.study == study["name"]))
    return True


def _add_runs(connection: Connection, rows: Iterable[Cells], now: float, name: str) -> int:
    """Add runs, and the training of those that are not finished here. Return how many are new."""
    table, added = schema.runs, 0
    for batch in batches(rows):
        query = select(table).where(table.c.key.in_([row["key"] for row in batch])).with_for_update()
        known = {row.key: row for row in connection.execute(query)}
        for row in batch:
            old = known.get(row["key"])
            if old is not None:
                _require_same(row, old._mapping, SETTINGS, f"run {row['key']}", "settings", name)
                if old.finished is not None or row["finished"] is None:
                    continue
                if old.worker is not None and not is_dead(old.worker, now - (old.heartbeat or 0.0)):
                    raise StoreError(
                        f"a worker is training run {row['key']} of {name} now, and the bundle has it finished; wait "
                        "until the worker has finished, or stop it, and import the bundle again"
                    )
                values = {column: row[column] for column in ("step", "steps", "started", "finished", "error", "facts")}
                connection.execute(update(table).where(table.c.key == row["key"]).values(CLAIM_OVER | values))
        new = [row | CLAIM_OVER | {"deaths": 0} for row in batch if row["key"] not in known]
        added += insert_rows(connection, table, new)
    return added


def _add_answers(connection: Connection, rows: Iterable[Cells], name: str) -> int:
    """Add answers to questions that have none yet. Raise `StoreError` if one has other results."""
    table, added = schema.answers, 0
    names = table.primary_key.columns.keys()
    for batch in batches(rows):
        keys, questions = ({row[column] for row in batch} for column in ("key", "question"))
        query = select(table).where(and_(table.c.key.in_(keys), table.c.question.in_(questions)))
        known = {tuple(row._mapping[column] for column in names): row for row in connection.execute(query)}
        new = []
        for row in batch:
            if (old := known.get(tuple(row[column] for column in names))) is None:
                new.append(row)
            elif row["measurement"] != TRAINING and row["rows"] != old.rows:
                what = f"run {row['key']}, {row['measurement']}, question {row['question']}"
                theirs, ours = json.loads(row["rows"]), json.loads(old.rows)
                absent = dict.fromkeys([*ours, *theirs])
                _require_same(absent | theirs, absent | ours, absent, what, "results", name)
        added += insert_rows(connection, table, new)
    return added


def _require_same(new: Cells, old: Any, columns: Iterable[str], what: str, kind: str, name: str) -> None:
    for column in columns:
        if new[column] != old[column]:
            values = f"{column} is {old[column]} here and {new[column]} in the bundle"
            text = values if len(values) < 200 else f"{column} differs"
            raise StoreError(
                f"{what}: {name} has other {kind} for it ({text}); nothing was imported; import the bundle into a new "
                "results folder (--results)"
            )
