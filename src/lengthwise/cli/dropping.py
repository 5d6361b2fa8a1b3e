"""`lengthwise drop`: delete runs and studies. Imports no torch."""

from collections.abc import Sequence

from lengthwise.cli.printing import shown
from lengthwise.config import ConfigError
from lengthwise.store import Dropped, RunRow, StoreError, open_results


def drop_runs(prefixes: Sequence[str], study: str | None, finished: bool, results: str) -> int:
    """Forget runs or a study, and delete what lies in the runs' folders. `StoreError` also where that could not be done for all."""
    if bool(prefixes) == (study is not None):
        raise ConfigError(
            "name runs by their keys, or with --study a study that is to be dropped, one of the two; "
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
                hint = "; --finished drops it all the same" if "is finished" in str(error) else ""
                raise StoreError(f"{error}{hint}") from None
    _say(dropped, study)
    if dropped.stuck:
        raise StoreError(
            f"the files of {len(dropped.stuck)} runs could not be deleted, so the runs stay; see above for the reasons"
        )
    return 0


def _say(dropped: Dropped, study: str | None) -> None:
    for run in dropped.runs:
        print(f"dropped {_named(run)}: {run.status}")
    for key in dropped.unreadable:
        print(f"dropped {shown(key)}: it could not be read")
    for key in dropped.unknown:
        print(f"kept {shown(key)}: it could not be read, so it may be finished; --finished drops it too")
    for run, why in dropped.kept:
        print(f"kept {_named(run)}: {shown(why)}")
    for key, why in dropped.stuck:
        print(f"kept {shown(key)}: {shown(why)}")
    for name in dropped.studies:
        print(f"dropped study {shown(name)}")
    if study is not None and study not in dropped.studies:
        print(f"kept study {shown(study)}: it still has the runs above")


def _named(run: RunRow) -> str:
    return f"{run.key} ({shown(run.label)}, {shown(run.task)}, seed {run.seed})"
