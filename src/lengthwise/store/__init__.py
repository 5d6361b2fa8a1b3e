"""The results database: the runs of each study, the workers that hold them, and all results.

The default is SQLite, one file that several processes on one machine can share. PostgreSQL is used by URL. Nothing
here imports torch, so a report needs the database alone.

    with open_store("lengthwise-results") as store:
        for run in store.runs("quickstart"):
            print(run.label, run.status, store.scores([run.key]))
"""

from lengthwise.store.claims import CANCELLED
from lengthwise.store.dropping import Dropped
from lengthwise.store.errors import ClaimLost, StoreError, StoreGone, StoreUnreachable, Unstorable
from lengthwise.store.folders import ResultsFolder, results_option, store_option
from lengthwise.store.opening import open_folder, open_results, open_store
from lengthwise.store.results import Store
from lengthwise.store.rows import STATUSES, Activity, AnswerRow, RunRow, ScoreRow, StudyRow
from lengthwise.store.workers import worker_name

__all__ = [
    "CANCELLED",
    "STATUSES",
    "Activity",
    "AnswerRow",
    "ClaimLost",
    "Dropped",
    "ResultsFolder",
    "RunRow",
    "ScoreRow",
    "Store",
    "StoreError",
    "StoreGone",
    "StoreUnreachable",
    "StudyRow",
    "Unstorable",
    "open_folder",
    "open_results",
    "open_store",
    "results_option",
    "store_option",
    "worker_name",
]
