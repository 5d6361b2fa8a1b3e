"""Delete runs and studies, inside a transaction that is already open."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from lengthwise.store import reading, schema
from lengthwise.store.cells import escaped
from lengthwise.store.errors import StoreError
from lengthwise.store.folders import ResultsFolder
from lengthwise.store.rows import RunRow
from lengthwise.store.writing import batches

TABLES_OF_RUNS = (schema.answers, schema.requested_questions, schema.study_runs, schema.runs)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """The runs and studies that were deleted, and those that stayed.

    `runs`, `studies`: deleted ones. `remaining`: runs of a deleted study that stayed, with the reasons. `stuck`: keys
    of runs that stayed because their files could not be deleted, with the reasons.
    """

    runs: tuple[RunRow, ...] = ()
    remaining: tuple[tuple[RunRow, str], ...] = ()
    stuck: tuple[tuple[str, str], ...] = ()
    studies: tuple[str, ...] = ()


def drop_runs(
    connection: Connection, keys: Sequence[str], finished: bool, now: float, name: str, files: ResultsFolder | None
) -> Dropped:
    dropped = []
    for key in dict.fromkeys(keys):
        locked = select(schema.runs.c.key).where(schema.runs.c.key == key).with_for_update()
        if connection.execute(locked).one_or_none() is None:
            raise StoreError(f"{name} has no run {escaped(key)}; nothing was deleted")
        run = reading.run(connection, key, now)
        named = f"run {key[:8]} ({run.label}, {run.task}, seed {run.seed})"
        if run.status == "running":
            raise StoreError(f"{named} is running; stop the command that runs it first; nothing was deleted")
        if run.finished is not None and not finished:
            raise StoreError(f"{named} is finished and its results would be lost; nothing was deleted")
        dropped.append(run)
    stuck = _delete_files(files, [run.key for run in dropped])
    dropped = [run for run in dropped if run.key not in stuck]
    deleted = [run.key for run in dropped]
    members = schema.study_runs
    in_batches = (select(members.c.study).where(members.c.key.in_(batch)) for batch in batches(deleted))
    listed = {study for query in in_batches for study in connection.scalars(query)}
    _delete(connection, deleted)
    remaining = set(connection.scalars(select(members.c.study)))
    studies = _delete_studies(connection, sorted(listed - remaining))
    return Dropped(runs=tuple(dropped), stuck=tuple(stuck.items()), studies=studies)


def drop_study(connection: Connection, study: str, finished: bool, now: float, files: ResultsFolder | None) -> Dropped:
    reading.require_study(connection, study)
    members = schema.study_runs
    in_study = members.c.study == study
    not_in_study = select(members.c.key, members.c.study).where(~in_study).order_by(members.c.study.desc())
    others = {row.key: row.study for row in connection.execute(not_in_study)}  # each with the first such study
    dropped, remaining, holding = [], [], False
    for run in reading.runs(connection, study, now):
        if (other := others.get(run.key)) is not None:
            remaining.append((run, f"study {other} lists it too"))
        elif run.status == "running":
            remaining.append((run, "it is running"))
            holding = True
        elif run.finished is not None and not finished:
            remaining.append((run, "it is finished; --finished deletes it too"))
            holding = True
        else:
            dropped.append(run)
    stuck = _delete_files(files, [run.key for run in dropped])
    dropped = [run for run in dropped if run.key not in stuck]
    _delete(connection, [run.key for run in dropped])
    deleted_studies = () if holding or stuck else _delete_studies(connection, [study])
    return Dropped(runs=tuple(dropped), remaining=tuple(remaining), stuck=tuple(stuck.items()), studies=deleted_studies)


def _delete_files(files: ResultsFolder | None, keys: Sequence[str]) -> dict[str, str]:
    """Delete the files of runs. Return the reason for each key whose files could not be deleted.

    Files are deleted before rows. If the process is interrupted in between, the run can be deleted again, and no
    folder remains without a row.
    """
    stuck = {}
    for key in keys:
        if files is None:
            continue
        try:
            files.delete(key)
        except StoreError as error:
            stuck[key] = str(error)
        except OSError as error:
            stuck[key] = f"its files cannot be deleted ({error.strerror or error}: {error.filename})"
    return stuck


def _delete(connection: Connection, keys: list[str]) -> None:
    for batch in batches(keys):
        for table in TABLES_OF_RUNS:
            connection.execute(delete(table).where(table.c.key.in_(batch)))


def _delete_studies(connection: Connection, names: Collection[str]) -> tuple[str, ...]:
    for name in names:
        for table, column in (
            (schema.requested_questions, "study"),
            (schema.study_runs, "study"),
            (schema.studies, "name"),
        ):
            connection.execute(delete(table).where(table.c[column] == name))
    return tuple(names)
