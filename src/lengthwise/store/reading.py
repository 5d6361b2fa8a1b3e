"""The questions that `Store` asks its tables, each inside a transaction that is already open."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, or_, select

from lengthwise.config import near_miss
from lengthwise.store import schema
from lengthwise.store.errors import StoreError
from lengthwise.store.rows import STATUSES, CurveRow, ProbeRow, RunRow, ScoreRow, StudyRow, canonical, number
from lengthwise.store.workers import is_dead


def parse(text: str | None) -> Any:
    try:
        return json.loads(text) if text else []
    except ValueError as error:
        raise StoreError(
            f"the results database is damaged (what it says at one place is no JSON: {error}); restore a copy, or move "
            "it away and run the study again"
        ) from error


def require_study(connection: Connection, study: str) -> None:
    known = list(connection.scalars(select(schema.studies.c.name)))
    if study not in known:
        there_are = f"there are: {', '.join(sorted(known))}" if known else "there are none yet"
        raise StoreError(f"there is no study {study!r}{near_miss(study, known)}; {there_are}")


# ---- what is still to do ----------------------------------------------------------------------------------------


def _open_keys(study: str | None) -> Select[str]:
    """The keys of the runs of which a question has no score."""
    asked, scores = schema.asked, schema.scores
    answered = select(scores.c.key).where(scores.c.key == asked.c.key, scores.c.question == asked.c.question).exists()
    wanted = select(asked.c.key).where(~answered)
    return wanted if study is None else wanted.where(asked.c.study == study)


def in_need(connection: Connection, study: str) -> Sequence[Any]:
    """The study's runs that did not fail and are not done, in its order, whoever holds them."""
    require_study(connection, study)
    runs, members = schema.runs, schema.study_runs
    query = (
        select(runs.c.key, runs.c.worker, runs.c.heartbeat, runs.c.claims)
        .join(members, and_(members.c.key == runs.c.key, members.c.study == study))
        .where(runs.c.error.is_(None), or_(runs.c.finished.is_(None), runs.c.key.in_(_open_keys(study))))
        .order_by(members.c.position)
    )
    return connection.execute(query).all()


def unanswered(connection: Connection, key: str, asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    scores = schema.scores
    answered = set(connection.scalars(select(scores.c.question).where(scores.c.key == key)))
    return [question for question in asked if canonical(question, "asked") not in answered]


def questions_of(connection: Connection, study: str, key: str) -> list[dict[str, Any]]:
    asked = schema.asked
    query = select(asked.c.question).where(asked.c.study == study, asked.c.key == key).order_by(asked.c.position)
    return [parse(question) for question in connection.scalars(query)]


# ---- runs and studies -------------------------------------------------------------------------------------------


def _status(row: Any, still_open: set[str], now: float) -> str:
    if row.worker is not None and not is_dead(row.worker, now - row.heartbeat):
        return "running"
    if row.error is not None:
        return "failed"
    return "done" if row.finished is not None and row.key not in still_open else "pending"


def progress(connection: Connection, study: str, now: float) -> dict[str, int]:
    require_study(connection, study)
    runs, members = schema.runs, schema.study_runs
    query = select(runs.c.key, runs.c.worker, runs.c.heartbeat, runs.c.error, runs.c.finished)
    query = query.join(members, and_(members.c.key == runs.c.key, members.c.study == study))
    still_open = set(connection.scalars(_open_keys(study)))
    counts = Counter(_status(row, still_open, now) for row in connection.execute(query))
    return {status: counts[status] for status in STATUSES}


def studies(connection: Connection, now: float, version: int) -> list[StudyRow]:
    """`version`: of the tables; one that is older lacks columns."""
    table = schema.studies
    columns = [column for column in table.c if version >= 2 or column is not table.c.published]
    found = []
    for row in connection.execute(select(*columns).order_by(table.c.created, table.c.name)).all():
        values = row._asdict()
        values["evaluation"] = parse(row.evaluation)
        values["published"] = parse(text) if (text := values.get("published")) is not None else None
        found.append(StudyRow(**values, progress=progress(connection, row.name, now)))
    return found


def runs(connection: Connection, study: str | None, now: float) -> list[RunRow]:
    table, members = schema.runs, schema.study_runs
    query = select(table)
    if study is None:
        query = query.order_by(table.c.created, table.c.key)
    else:
        require_study(connection, study)
        query = query.join(members, and_(members.c.key == table.c.key, members.c.study == study))
        query = query.order_by(members.c.position)
    return _run_rows(connection, connection.execute(query).all(), study, None, now)


def run(connection: Connection, key: str, study: str | None, now: float) -> RunRow:
    table = schema.runs
    return _run_rows(connection, connection.execute(select(table).where(table.c.key == key)).all(), study, key, now)[0]


def _run_rows(
    connection: Connection, rows: Iterable[Any], study: str | None, key: str | None, now: float
) -> list[RunRow]:
    asked, table = schema.asked, schema.studies
    query = select(asked.c.key, asked.c.question).join(table, table.c.name == asked.c.study)
    query = query.order_by(table.c.created, table.c.name, asked.c.position)
    still_open = _open_keys(study)
    if study is not None:
        query = query.where(asked.c.study == study)
    if key is not None:
        query, still_open = query.where(asked.c.key == key), still_open.where(asked.c.key == key)
    questions: dict[str, dict[str, None]] = {}
    for owner, question in connection.execute(query):
        questions.setdefault(owner, {})[question] = None
    unanswered_keys = set(connection.scalars(still_open))
    found = []
    for row in rows:
        values = row._asdict()
        del values["handed_out"]
        values |= {"config": parse(row.config), "facts": parse(row.facts)}
        values["asked"] = [parse(question) for question in questions.get(row.key, ())]
        found.append(RunRow(**values, status=_status(row, unanswered_keys, now)))
    return found


def full_key(connection: Connection, prefix: str, name: str) -> str:
    table = schema.runs
    known = {
        row.key: f"{row.key} ({row.label}, {row.task}, seed {row.seed})"
        for row in connection.execute(select(table).order_by(table.c.key))
    }
    prefix = prefix.strip()
    found = [key for key in known if prefix and key.lower().startswith(prefix.lower())]
    if len(found) == 1 or prefix in known:
        return prefix if prefix in known else found[0]
    if not known:
        raise StoreError(f"there are no runs in {name}; run a study first")
    if found:
        some = ", ".join(known[key] for key in found[:4]) + (", ..." if len(found) > 4 else "")
        raise StoreError(f"{prefix!r} begins {len(found)} keys: {some}; give more of the key")
    near = [key for key in known if prefix[:2] and key.lower().startswith(prefix[:2].lower())][:3]
    hint = f"; there are {', '.join(known[key] for key in near)}" if near else near_miss(prefix, known)
    raise StoreError(f"there is no run whose key begins with {prefix!r}{hint}; `lengthwise list runs` shows them all")


# ---- numbers ----------------------------------------------------------------------------------------------------


def scores(connection: Connection, key: str) -> list[ScoreRow]:
    table = schema.scores
    found = []
    query = select(table).where(table.c.key == key).order_by(table.c.length, table.c.question)
    for row in connection.execute(query):
        values = row._asdict()
        values["asked"], values["facts"] = parse(values.pop("question")), parse(row.facts)
        values |= {name: number(values[name]) for name in ("mean", "standard_error", "seconds")}
        found.append(ScoreRow(**values))
    return found


def curve(connection: Connection, key: str) -> list[CurveRow]:
    table = schema.curve
    columns = (table.c.step, table.c.loss, table.c.learning_rate, table.c.gradient_norm, table.c.tokens_per_second)
    query = select(*columns).where(table.c.key == key).order_by(table.c.step)
    found = []
    for row in connection.execute(query):
        step, *measured = row
        found.append(CurveRow(step, *map(number, measured)))
    return found


def probes(connection: Connection, key: str) -> list[ProbeRow]:
    table = schema.probes
    rows = connection.execute(select(table).where(table.c.key == key).order_by(table.c.question))
    return [
        ProbeRow(
            key=row.key,
            asked=parse(row.question),
            result=parse(row.result),
            facts=parse(row.facts),
            created=row.created,
        )
        for row in rows
    ]
