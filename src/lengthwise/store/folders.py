"""Where the files of a run lie: the one place in which a run's key becomes a path."""

import os
import shutil
from pathlib import Path

from lengthwise.store.checks import require_key
from lengthwise.store.errors import StoreError
from lengthwise.values import require_no_address


def run_folder(results: str | os.PathLike[str], key: str) -> Path:
    """Return the folder of a run, `RESULTS/runs/KEY`, which need not be there.

    A results folder may come from somebody else. `StoreError` for a key that is none, and where `runs` or the run's folder is a
    link: what is written or deleted there would lie elsewhere. `results` itself may be a link.
    """
    require_no_address("the results folder", results)
    require_key(key, "the key")
    folder = Path(results) / "runs" / key
    for part in (folder.parent, folder):
        if part.is_symlink():
            raise StoreError(
                f"{part} is a link, and runs are written and deleted in the results folder alone; remove the link, or make "
                "the whole results folder one"
            )
    expected = Path(results).resolve() / "runs" / key
    if folder.resolve() != expected:
        raise StoreError(f"{folder} lies outside of its results folder; give another results folder")
    return folder


def delete_run(results: str | os.PathLike[str], key: str) -> None:
    """Delete the files of a run. A link in the place of its folder is removed, and what it leads to stays."""
    if (link := require_deletable(results, key)).is_symlink():
        link.unlink()
    folder = run_folder(results, key)
    if folder.is_dir():
        shutil.rmtree(folder)


def require_deletable(results: str | os.PathLike[str], key: str) -> Path:
    """Return the path at which `delete_run` finds the run's folder; raise `StoreError` where it would refuse."""
    link = Path(results) / "runs" / require_key(key, "the key")
    if link.parent.is_symlink() or not link.is_symlink():
        run_folder(results, key)
    return link


def identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; None where there is none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)
