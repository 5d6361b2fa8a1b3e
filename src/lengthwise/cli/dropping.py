"""`lengthwise drop`: delete runs and studies. Imports no torch."""

from collections.abc import Sequence

from lengthwise.cli.printing import one_line
from lengthwise.config import ConfigError
from lengthwise.store import Dropped, RunRow, StoreError, open_results


def drop_runs(prefixes: Sequence[str], study: str | None, finished: bool, results: str) -> int:
    """Delete runs or a study, with the runs' folders. Raise `StoreError` if some could not be deleted."""
    if bool(prefixes) == (study is not None):
        raise ConfigError(
            f"drop needs either the keys of runs or --study NAME, got {'both' if prefixes else 'neither'}; "
            "`lengthwise list runs` shows the keys"
        )
    with open_results(results, create=False) as store:
        if study is not None:
            dropped = store.drop_study(study, finished=finished)
        else:
            keys = [store.run(prefix).key for prefix in prefixes]
            try:
                dropped = store.drop(keys, finished=finished)
            except StoreError as error:
                hint = "; add --finished to delete it" if "is finished" in str(error) else ""
                raise StoreError(f"{error}{hint}") from None
    _print(dropped, study)
    if dropped.stuck:
        raise StoreError(
            f"the files of {len(dropped.stuck)} runs could not be deleted, so these runs were kept; the reasons are above"
        )
    return 0


def _print(dropped: Dropped, study: str | None) -> None:
    for run in dropped.runs:
        print(f"deleted {_description(run)}: {run.status}")
    for key in dropped.unreadable:
        print(f"deleted {one_line(key)}: it could not be read")
    for key in dropped.unknown:
        print(f"kept {one_line(key)}: it could not be read, so it may be finished; add --finished to delete it")
    for run, reason in dropped.kept:
        print(f"kept {_description(run)}: {one_line(reason)}")
    for key, reason in dropped.stuck:
        print(f"kept {one_line(key)}: {one_line(reason)}")
    for name in dropped.studies:
        print(f"deleted study {one_line(name)}")
    if study is not None and study not in dropped.studies:
        print(f"kept study {one_line(study)}: it still contains the runs above")


def _description(run: RunRow) -> str:
    return f"{run.key} ({one_line(run.label)}, {one_line(run.task)}, seed {run.seed})"
