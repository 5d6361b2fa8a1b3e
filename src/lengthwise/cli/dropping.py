"""`lengthwise drop`: runs that nobody wants any more. Imports no torch."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from lengthwise.cli.printing import shown
from lengthwise.config import ConfigError
from lengthwise.store import RunRow, Store, StoreError, open_store


def drop_runs(prefixes: Sequence[str], study: str | None, finished: bool, results: str) -> int:
    """Forget runs, and delete what lies in their folders."""
    if bool(prefixes) == (study is not None):
        raise ConfigError(
            "name runs by their keys, or with --study a study whose unfinished runs are to be dropped, one of the two; "
            "`lengthwise list runs` shows the keys"
        )
    if study is not None and finished:
        raise ConfigError(
            "--finished is for runs that are named by their keys; of a study only unfinished ones are dropped"
        )
    folder = Path(results)
    with open_store(folder, create=False) as store:
        keys = [store.run(prefix).key for prefix in prefixes] if study is None else _unfinished(store, study)
        try:
            dropped = store.drop(keys, finished=finished)
        except StoreError as error:
            hint = "; --finished drops it all the same" if "is finished" in str(error) else ""
            raise StoreError(f"{error}{hint}") from None
    for run in dropped:
        _forget(run, (folder.parent if folder.is_file() else folder) / "runs" / run.key)
    if not dropped:
        print(f"There is nothing to drop: every run of {shown(study)} is finished or being worked on.")
    return 0


def _unfinished(store: Store, study: str) -> list[str]:
    return [run.key for run in store.runs(study) if run.finished is None and run.status != "running"]


def _forget(run: RunRow, folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    print(f"dropped {run.key} ({shown(run.label)}, {shown(run.task)}, seed {run.seed}): {run.status}")
