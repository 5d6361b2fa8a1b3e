"""The results database: the runs of each study, the workers that hold them, and all results.

The default is SQLite, one file that several processes on one machine can share. PostgreSQL is used by URL. Nothing here imports
torch, so a report needs the database alone.

    with open_store("lengthwise-results") as store:
        for run in store.runs("quickstart"):
            print(run.label, run.status, store.scores([run.key]))
"""

from lengthwise.store.dropping import Dropped
from lengthwise.store.errors import BadFolder, ClaimLost, StoreError, StoreGone, StoreWarning, Unstorable
from lengthwise.store.folders import delete_run, results_option, run_folder, store_option
from lengthwise.store.results import Store, open_results, open_store
from lengthwise.store.rows import STATUSES, CurveRow, ProbeRow, RunRow, ScoreRow, StudyRow
from lengthwise.store.schema import SCHEMA_VERSION
from lengthwise.store.workers import worker_name

__all__ = [
    "SCHEMA_VERSION",
    "STATUSES",
    "BadFolder",
    "ClaimLost",
    "CurveRow",
    "Dropped",
    "ProbeRow",
    "RunRow",
    "ScoreRow",
    "Store",
    "StoreError",
    "StoreGone",
    "StoreWarning",
    "StudyRow",
    "Unstorable",
    "delete_run",
    "open_results",
    "open_store",
    "results_option",
    "run_folder",
    "store_option",
    "worker_name",
]
