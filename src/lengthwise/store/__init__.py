"""The results database: which runs a study wants, who works on them, and every number that came out.

SQLite by default (one file, safe for several processes on one machine), PostgreSQL by URL. Nothing here imports torch:
a report is made on a laptop from the database alone.

    with open_store("lengthwise-results") as store:
        for run in store.runs("quickstart"):
            print(run.label, run.status, store.scores([run.key]))
"""

from lengthwise.store.errors import ClaimLost, StoreError
from lengthwise.store.opening import open_store
from lengthwise.store.results import Store
from lengthwise.store.rows import STATUSES, CurveRow, ProbeRow, RunRow, ScoreRow, StudyRow
from lengthwise.store.schema import SCHEMA_VERSION
from lengthwise.store.workers import worker_name

__all__ = [
    "SCHEMA_VERSION",
    "STATUSES",
    "ClaimLost",
    "CurveRow",
    "ProbeRow",
    "RunRow",
    "ScoreRow",
    "Store",
    "StoreError",
    "StudyRow",
    "open_store",
    "worker_name",
]
