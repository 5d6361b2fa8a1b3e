"""The folders of runs. Only this module turns a run's key into a path."""

import os
import shlex
import shutil
from pathlib import Path

from lengthwise.class_versions import shortened
from lengthwise.store.checks import require_key
from lengthwise.store.errors import BadFolder
from lengthwise.values import RESULTS, require_no_address


def results_option(results: str | os.PathLike[str]) -> str:
    """Return ` --results PATH` for commands in messages, or "" if this is the folder that they use without the option."""
    default = os.environ.get("LENGTHWISE_RESULTS") or RESULTS
    return (
        ""
        if Path(results).resolve() == Path(default).resolve()
        else f" --results {shlex.quote(shortened(str(results)))}"
    )


def run_folder(results: str | os.PathLike[str], key: str) -> Path:
    """Return the folder of a run, `RESULTS/runs/KEY`, which may not exist.

    A results folder may come from somebody else. Raises `StoreError` for an invalid key, and `BadFolder` if `runs` or the run's
    folder is a file or a link: files would be written and deleted elsewhere. `results` itself may be a link.
    """
    require_no_address("the results folder", results)
    require_key(key, "the key")
    folder = Path(results) / "runs" / key
    for part in (folder.parent, folder):
        if part.is_symlink():
            raise BadFolder(
                f"{part} must not be a link, because runs are written and deleted only inside the results folder; remove the link, "
                "or make the whole results folder a link"
            )
        if part.exists() and not part.is_dir():
            raise BadFolder(f"{part} must be a folder for the files of runs, got a file; remove it")
    expected = Path(results).resolve() / "runs" / key
    if folder.resolve() != expected:
        raise BadFolder(f"{folder} must be inside its results folder; give another results folder")
    return folder


def delete_run(results: str | os.PathLike[str], key: str) -> None:
    """Delete the files of a run. If its folder is a link, only the link is removed."""
    if (link := require_deletable(results, key)).is_symlink():
        link.unlink()
    folder = run_folder(results, key)
    if folder.is_dir():
        shutil.rmtree(folder)


def require_deletable(results: str | os.PathLike[str], key: str) -> Path:
    """Return the path of the run's folder for `delete_run`; raise `StoreError` if it cannot be deleted."""
    link = Path(results) / "runs" / require_key(key, "the key")
    if link.parent.is_symlink() or not link.is_symlink():
        run_folder(results, key)
    return link
