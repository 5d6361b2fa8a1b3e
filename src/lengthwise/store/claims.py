"""Which worker has which run, and which runs have failed. Each function runs inside an open transaction."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from lengthwise.store import reading, schema
from lengthwise.store.columns import decoded
from lengthwise.store.rows import RunRow
from lengthwise.store.workers import STALE_SECONDS, host, is_dead
from lengthwise.store.writing import batches

CANCELLED = "cancelled"  # the error of runs that the user does not want to be trained
MAX_DEATHS = 5  # of workers in a row without progress, after which a run fails
CLAIM_OVER: dict[str, Any] = {"worker": None, "heartbeat": None}


def held(key: str, worker: str) -> Any:
    return update(schema.runs).where(schema.runs.c.key == key, schema.runs.c.worker == worker)


# ---- what can be claimed ------------------------------------------------------------------------------------------
# These statements are built once, because building them takes longer than a server needs for them.

_STUDY: Any = bindparam("study")
_SEEN: Any = bindparam("seen", expanding=True)
_run, _parent, _members = schema.runs.c, schema.runs.alias().c, schema.study_runs.c
_requested = schema.requested_questions.c

_is_open = (
    select(_requested.key).where(_requested.study == _STUDY, _requested.key == _run.key, ~reading.ANSWERED).exists()
)
_untrained_parent = select(_parent.key).where(
    _parent.key == _run.parent, _parent.finished.is_(None), _parent.error.is_(None)
)
_untrained = and_(_run.finished.is_(None), ~_untrained_parent.exists())
_unanswered = and_(_run.finished.is_not(None), _is_open)
_listed = select(schema.runs).join(schema.study_runs, and_(_members.key == _run.key, _members.study == _STUDY))
_in_need = _listed.where(_run.error.is_(None))

_PERHAPS_DEAD = select(_run.key).where(
    _run.worker.is_not(None),
    or_(
        ~_run.heartbeat.between(bindparam("earliest"), bindparam("latest")),
        _run.worker.startswith(bindparam("here"), autoescape=False),
    ),
)
_HELD = _in_need.where(_run.key.in_(_SEEN), or_(_untrained, _unanswered)).order_by(_run.position, _run.key)
_FREE = [  # one after the other, because the first one is quick to find
    _in_need.where(_run.worker.is_(None), condition, _run.key.not_in(_SEEN))
    .order_by(_run.position, _run.key)
    .limit(1)
    .with_for_update(of=schema.runs, skip_locked=True)
    for condition in (_untrained, _unanswered)
]
_QUESTIONS = (
    select(schema.requested_questions)
    .where(_requested.study == _STUDY, _requested.key == bindparam("run"))
    .order_by(_requested.position)
)
_UNFINISHED = [
    select(_run.key)
    .join(schema.study_runs, and_(_members.key == _run.key, _members.study == _STUDY))
    .where(_run.error.is_(None), condition)
    .limit(1)
    for condition in (_run.finished.is_(None), _is_open)
]


def claimable(connection: Connection, study: str, now: float) -> Iterator[dict[str, Any]]:
    """Yield the study's runs that need work and that no living worker holds: those of dead workers, then the others in
    order.

    Untrained runs whose parent is in the store, and neither trained nor failed, are left out: they have to wait. A
    server locks each run without a worker as it is yielded, and skips those that other workers have just locked.
    """
    limits = {"earliest": now - STALE_SECONDS, "latest": now + STALE_SECONDS, "here": f"{host()}:"}
    for batch in batches(connection.scalars(_PERHAPS_DEAD, limits).all()):
        for row in decoded(schema.runs, connection.execute(_HELD, {"study": study, "seen": batch})):
            if row["worker"] is not None and is_dead(row["worker"], now - row["heartbeat"]):
                yield row
    seen: list[str] = []
    for free in _FREE:
        while rows := connection.execute(free, {"study": study, "seen": seen}).all():
            yield from decoded(schema.runs, rows)
            seen.append(rows[0].key)


def claim(connection: Connection, study: str, worker: str, now: float) -> RunRow | None:
    for row in claimable(connection, study, now):
        key, holder = row["key"], row["worker"]
        # Two workers may choose the same run of a dead one: then the number of its claims has changed, the second
        # update matches no row, and that worker takes another run. The server may also still execute the last
        # transaction of a dead worker, after which the run may be finished or have no worker.
        unchanged = _run.claims == row["claims"], _run.worker.is_not_distinct_from(holder)
        free = update(schema.runs).where(_run.key == key, *unchanged)
        deaths = row["deaths"] + (holder is not None)
        if deaths >= MAX_DEATHS:
            error = (
                f"its workers ended {deaths} times without progress; if memory ran out, use fewer workers per machine"
            )
            connection.execute(free.values({**CLAIM_OVER, "error": error, "deaths": 0}))
            continue
        taken = {"worker": worker, "heartbeat": now, "started": now, "claims": row["claims"] + 1, "deaths": deaths}
        if connection.execute(free.values(**taken)).rowcount == 1:
            rows = decoded(schema.requested_questions, connection.execute(_QUESTIONS, {"study": study, "run": key}))
            questions = [question["question"] for question in rows]
            return RunRow(**row | taken, questions=questions, status="running")
    reading.require_study(connection, study)
    return None


def is_unfinished(connection: Connection, study: str) -> bool:
    """Return whether the study has a run that is neither failed nor done."""
    reading.require_study(connection, study)
    return any(connection.execute(statement, {"study": study}).first() is not None for statement in _UNFINISHED)


def forget_failures(connection: Connection, keys: Sequence[str]) -> list[str]:
    """Remove the errors of failed runs. Return their keys."""
    failed: list[str] = []
    for batch in batches(keys):
        chosen = schema.runs.c.key.in_(batch), schema.runs.c.error.is_not(None)
        failed += connection.scalars(select(schema.runs.c.key).where(*chosen).with_for_update())
        connection.execute(update(schema.runs).where(*chosen).values(error=None, failures=0, deaths=0))
    return failed


def cancel(connection: Connection, keys: Sequence[str], now: float) -> list[str]:
    """Mark runs that are neither done nor failed as failed. Return their keys."""
    for batch in batches(keys):
        connection.execute(select(schema.runs.c.key).where(schema.runs.c.key.in_(batch)).with_for_update())
    runs = reading.runs_of(connection, list(keys), now)
    cancelled = [key for key, run in runs.items() if run.status in ("pending", "running")]
    for batch in batches(cancelled):
        chosen = update(schema.runs).where(schema.runs.c.key.in_(batch))
        connection.execute(chosen.values({**CLAIM_OVER, "error": CANCELLED}))
    return cancelled
