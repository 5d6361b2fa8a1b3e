"""`lengthwise drop`: delete runs and studies. Imports no torch."""

from typing import TYPE_CHECKING

from lengthwise.cli.options import Place
from lengthwise.cli.printing import one_line
from lengthwise.cli.selection import Runs, description, require_one

if TYPE_CHECKING:
    from lengthwise.store import Dropped


def command(*runs: Runs, study: str | None = None, finished: bool = False, place: Place = Place()) -> int:
    """Delete runs or a study, with checkpoints and scores. Finished runs are deleted only with --finished.

    Deleting a study deletes its runs, except those that another study also lists. Runs that are being trained are not
    deleted, and neither is their study. The command prints what it deleted and what it did not. If a study file still
    lists a deleted run, `lengthwise run` trains it from the beginning.

    Example: lengthwise drop 3f9a 77c0; lengthwise drop --study quickstart; lengthwise drop --study quickstart
    --finished

    Args:
        runs: Keys of the runs, or their first digits.
        study: Study to delete, with its runs.
        finished: Also delete finished runs, with their trained models and all results.
    """
    from lengthwise.store import StoreError

    require_one("drop", runs, study, place)
    with place.open() as store:
        if study is not None:
            dropped = store.drop_study(study, finished=finished)
            _require_deletion(dropped, study)
        else:
            keys = [store.run(prefix).key for prefix in runs]
            try:
                dropped = store.drop(keys, finished=finished)
            except StoreError as error:
                hint = "; add --finished to delete it" if "is finished" in str(error) else ""
                raise StoreError(f"{error}{hint}") from None
    _print(dropped, study)
    if dropped.stuck:
        runs_were, they_were = ("1 run", "it was") if (n := len(dropped.stuck)) == 1 else (f"{n} runs", "they were")
        raise StoreError(f"the files of {runs_were} could not be deleted, so {they_were} kept; the reasons are above")
    return 0


def _require_deletion(dropped: "Dropped", study: str) -> None:
    """Raise `StoreError` if no run was deleted because all runs are finished."""
    from lengthwise.store import StoreError

    deleted = dropped.runs or dropped.studies
    if not (deleted or dropped.stuck) and all(run.finished is not None for run, _ in dropped.remaining):
        raise StoreError(
            f"all runs of study {one_line(study)} are finished and their results would be lost; nothing was deleted; "
            "add --finished to delete them"
        )


def _print(dropped: "Dropped", study: str | None) -> None:
    for run in dropped.runs:
        print(f"deleted {description(run)}: {run.status}")
    for run, reason in dropped.remaining:
        print(f"kept {description(run)}: {one_line(reason)}")
    for key, reason in dropped.stuck:
        print(f"kept {one_line(key)}: {one_line(reason)}")
    for name in dropped.studies:
        print(f"deleted study {one_line(name)}")
    if study is not None and study not in dropped.studies:
        print(f"kept study {one_line(study)}: it still contains the runs above")
