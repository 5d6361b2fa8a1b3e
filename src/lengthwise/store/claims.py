"""Which worker has which run, and which runs have failed. Each function runs inside a transaction that is already open."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from lengthwise.store import reading, schema
from lengthwise.store.rows import RunRow, canonical
from lengthwise.store.writing import batches

CANCELLED = "cancelled"  # the error of runs that the user does not want to be trained
MAX_DEATHS = 5  # of workers in a row without progress, after which a run fails
CLAIM_OVER: dict[str, Any] = {"worker": None, "heartbeat": None, "handed_out": None}


def held(key: str, worker: str) -> Any:
    return update(schema.runs).where(schema.runs.c.key == key, schema.runs.c.worker == worker)


def claim(connection: Connection, study: str, worker: str, now: float) -> RunRow | None:
    for row in reading.claimable(connection, study, now):
        key, holder, claims = row["key"], row["worker"], row["claims"]
        questions = reading.questions_of(connection, study, key)
        # Two workers may choose the same run of a dead one: then the number of its claims has changed, the second update
        # matches no row, and that worker takes another run. The server may also still execute the last transaction of a
        # dead worker, after which the run may be finished or have no worker.
        unchanged = schema.runs.c.claims == claims, schema.runs.c.worker.is_not_distinct_from(holder)
        free = update(schema.runs).where(schema.runs.c.key == key, *unchanged)
        deaths = row["deaths"] + (holder is not None)
        if deaths >= MAX_DEATHS:
            error = (
                f"its workers ended {deaths} times without progress; if memory ran out, use fewer workers per machine"
            )
            connection.execute(free.values({**CLAIM_OVER, "error": error, "deaths": 0}))
            continue
        values = {"worker": worker, "heartbeat": now, "started": now, "claims": claims + 1, "deaths": deaths}
        values["handed_out"] = canonical(questions, "asked")
        if connection.execute(free.values(values)).rowcount == 1:
            return reading.run(connection, key, study, now)
    return None


def forget_failures(connection: Connection, keys: Sequence[str]) -> list[str]:
    """Remove the errors of failed runs. Return their keys."""
    failed: list[str] = []
    for batch in batches(list(keys)):
        chosen = schema.runs.c.key.in_(batch), schema.runs.c.error.is_not(None)
        failed += connection.scalars(select(schema.runs.c.key).where(*chosen).with_for_update())
        connection.execute(update(schema.runs).where(*chosen).values(error=None, failures=0, deaths=0))
    return failed


def cancel(connection: Connection, keys: Sequence[str], now: float) -> list[str]:
    """Mark runs that are neither done nor failed as failed. Return their keys."""
    cancelled = []
    for key in keys:
        connection.execute(select(schema.runs.c.key).where(schema.runs.c.key == key).with_for_update())
        if reading.run(connection, key, None, now).status in ("pending", "running"):
            values = {**CLAIM_OVER, "error": CANCELLED}
            connection.execute(update(schema.runs).where(schema.runs.c.key == key).values(values))
            cancelled.append(key)
    return cancelled
