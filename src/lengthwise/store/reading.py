"""The queries of `Store`. Each runs inside a transaction that is already open."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from lengthwise.config import near_miss
from lengthwise.store import schema
from lengthwise.store.columns import decoded
from lengthwise.store.errors import StoreError
from lengthwise.store.rows import STATUSES, Activity, AnswerRow, RunRow, StudyRow, Texts, canonical
from lengthwise.store.workers import is_dead
from lengthwise.store.writing import batches
from lengthwise.values import SCORES

_answers, _requested = schema.answers.c, schema.requested_questions.c
ANSWERED = (  # whether a row of `requested_questions` has a score
    select(_answers.key)
    .where(_answers.key == _requested.key, _answers.measurement == SCORES, _answers.question == _requested.question)
    .exists()
)


def require_study(connection: Connection, study: str) -> None:
    known = connection.scalars(select(schema.studies.c.name)).all()
    if study not in known:
        available = f"available: {', '.join(sorted(known))}" if known else "there are no studies yet"
        raise StoreError(f"there is no study {study!r}{near_miss(study, known)}; {available}")


def _runs_of(study: str) -> Select[Any]:
    """Select the runs that a study lists, in its order."""
    runs, members = schema.runs, schema.study_runs
    listed = and_(members.c.key == runs.c.key, members.c.study == study)
    return select(runs).join(members, listed).order_by(members.c.position)


def _open_keys(study: str | None) -> Select[str]:
    """Select the keys of the runs with a question that has no score."""
    requested = schema.requested_questions
    keys = select(requested.c.key).where(~ANSWERED).distinct()
    return keys if study is None else keys.where(requested.c.study == study)


def unanswered(connection: Connection, key: str, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    table = schema.answers
    scores = select(table.c.question).where(table.c.key == key, table.c.measurement == SCORES)
    answered = set(connection.scalars(scores))
    return [question for question in questions if canonical(question, "questions") not in answered]


# ---- runs and studies -------------------------------------------------------------------------------------------


def _status(row: Mapping[str, Any], still_open: set[str], now: float) -> str:
    if row["worker"] is not None and not is_dead(row["worker"], now - row["heartbeat"]):
        return "running"
    if row["error"] is not None:
        return "failed"
    return "done" if row["finished"] is not None and row["key"] not in still_open else "pending"


def progress(connection: Connection, study: str, now: float) -> dict[str, int]:
    return _counts(activity(connection, study, now))


def _counts(runs: Iterable[Activity]) -> dict[str, int]:
    counts = Counter(run.status for run in runs)
    return {status: counts[status] for status in STATUSES}


def activity(connection: Connection, study: str, now: float) -> list[Activity]:
    require_study(connection, study)
    still_open = set(connection.scalars(_open_keys(study)))
    members = [field.name for field in fields(Activity) if field.name != "status"]
    wanted = _runs_of(study).with_only_columns(*(schema.runs.c[name] for name in (*members, "heartbeat")))
    rows = decoded(schema.runs, connection.execute(wanted))
    return [Activity(**{m: row[m] for m in members}, status=_status(row, still_open, now)) for row in rows]


def overview(connection: Connection, now: float) -> list[tuple[StudyRow, list[Activity]]]:
    table = schema.studies
    rows = connection.execute(select(table).order_by(table.c.created, table.c.name)).all()
    studies = [(row, activity(connection, row["name"], now)) for row in decoded(table, rows)]
    return [(StudyRow(**row, progress=_counts(runs)), runs) for row, runs in studies]


def fingerprint(connection: Connection, study: str) -> tuple[object, ...]:
    require_study(connection, study)
    runs, members = schema.runs, schema.study_runs
    keys = select(members.c.key).where(members.c.study == study)
    state = (
        func.count(),
        func.sum(runs.c.step),
        func.max(runs.c.finished),
        func.count(runs.c.error),
        func.count(runs.c.worker),
    )
    values: list[object] = [connection.scalar(select(schema.studies.c.updated).where(schema.studies.c.name == study))]
    values += connection.execute(select(*state).where(runs.c.key.in_(keys))).one()
    table = schema.answers
    values += connection.execute(select(func.count(), func.max(table.c.created)).where(table.c.key.in_(keys))).one()
    return tuple(values)


def members(connection: Connection) -> dict[str, list[str]]:
    """Return the keys of the runs that each study lists, in its order; studies oldest first."""
    studies, listed = schema.studies, schema.study_runs
    query = select(studies.c.name, listed.c.key).join(listed, listed.c.study == studies.c.name, isouter=True)
    keys_by_study: dict[str, list[str]] = {}
    for study, key in connection.execute(query.order_by(studies.c.created, studies.c.name, listed.c.position)):
        keys_by_study.setdefault(study, []).extend([key] if key is not None else [])
    return keys_by_study


def runs(connection: Connection, study: str | None, now: float) -> list[RunRow]:
    if study is None:
        query = select(schema.runs).order_by(schema.runs.c.created, schema.runs.c.key)
    else:
        require_study(connection, study)
        query = _runs_of(study)
    return _run_rows(connection, connection.execute(query).all(), study, None, now)


def runs_of(connection: Connection, keys: list[str], now: float) -> dict[str, RunRow]:
    rows_by_key: dict[str, RunRow] = {}
    for batch in batches(keys):
        rows = connection.execute(select(schema.runs).where(schema.runs.c.key.in_(batch))).all()
        rows_by_key |= {row.key: row for row in _run_rows(connection, rows, None, batch, now)}
    return {key: rows_by_key[key] for key in keys if key in rows_by_key}


def run(connection: Connection, key: str, now: float) -> RunRow:
    """Return a run, which is in the store."""
    table = schema.runs
    (row,) = connection.execute(select(table).where(table.c.key == key))
    return _run_rows(connection, [row], None, [key], now)[0]


def listed(connection: Connection, study: str, without: Collection[str], now: float) -> list[RunRow]:
    """Return the runs that a study lists, except for the keys `without`. The study need not exist."""
    rows = [row for row in connection.execute(_runs_of(study)) if row.key not in without]
    return _run_rows(connection, rows, study, None, now) if rows else []


def _run_rows(
    connection: Connection, rows: Iterable[Any], study: str | None, keys: Sequence[str] | None, now: float
) -> list[RunRow]:
    requested, table = schema.requested_questions, schema.studies
    query = select(requested.c.key, requested.c.question).join(table, table.c.name == requested.c.study)
    query = query.order_by(table.c.created, table.c.name, requested.c.position)
    still_open = _open_keys(study)
    if study is not None:
        query = query.where(requested.c.study == study)
    if keys is not None:
        query, still_open = query.where(requested.c.key.in_(keys)), still_open.where(requested.c.key.in_(keys))
    questions: dict[str, dict[str, dict[str, Any]]] = {}
    text = Texts(lambda question: canonical(question, "questions"))
    for row in decoded(schema.requested_questions, connection.execute(query)):
        questions.setdefault(row["key"], {})[text(row["question"])] = row["question"]
    unanswered_keys = set(connection.scalars(still_open))
    return [
        RunRow(**row, questions=list(questions.get(row["key"], {}).values()), status=_status(row, unanswered_keys, now))
        for row in decoded(schema.runs, rows)
    ]


def full_key(connection: Connection, prefix: str, name: str, option: str) -> str:
    table = schema.runs
    rows = decoded(schema.runs, connection.execute(select(table).order_by(table.c.key)))
    known = {row["key"]: f"{row['key']} ({row['label']}, {row['task']}, seed {row['seed']})" for row in rows}
    prefix = prefix.strip()
    matches = [key for key in known if prefix and key.lower().startswith(prefix.lower())]
    if len(matches) == 1 or prefix in known:
        return prefix if prefix in known else matches[0]
    if not known:
        raise StoreError(f"there are no runs in {name}; run a study first")
    if matches:
        listed = ", ".join(known[key] for key in matches[:4]) + (", ..." if len(matches) > 4 else "")
        raise StoreError(f"{len(matches)} keys start with {prefix!r}: {listed}; give more digits of the key")
    near = [key for key in known if prefix[:2] and key.lower().startswith(prefix[:2].lower())][:3]
    hint = f"; similar keys: {', '.join(known[key] for key in near)}" if near else near_miss(prefix, known)
    raise StoreError(
        f"no run has a key that starts with {prefix!r}{hint}; `lengthwise list runs{option}` lists all runs"
    )


# ---- answers ----------------------------------------------------------------------------------------------------


def answers(connection: Connection, keys: Iterable[str], measurements: Collection[str] = ()) -> Iterator[AnswerRow]:
    """Yield answers, of all measurements if none is named. Only those of a batch of runs are in memory at a time."""
    table = schema.answers
    for batch in batches(keys):
        query = select(table).where(table.c.key.in_(batch)).order_by(table.c.question)
        if measurements:
            query = query.where(table.c.measurement.in_(measurements))
        rows_by_key: dict[str, list[AnswerRow]] = {key: [] for key in batch}
        for cells in decoded(table, connection.execute(query)):
            # Its own __init__ takes three times as long, because the class is frozen, and a page reads 80,000 rows.
            answer = object.__new__(AnswerRow)
            vars(answer).update(cells)
            rows_by_key[cells["key"]].append(answer)
        for rows in rows_by_key.values():
            yield from sorted(rows, key=lambda row: (row.measurement, row.question.get("length", 0)))
