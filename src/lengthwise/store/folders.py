"""The folders of runs. Only this module turns a run's key into a path."""

import os
import secrets
import shlex
import shutil
from pathlib import Path

from lengthwise.class_versions import shortened
from lengthwise.store.checks import require_key
from lengthwise.store.errors import BadFolder, StoreError
from lengthwise.values import RESULTS, require_no_address

_ID_FILE = "results-id"


def results_option(results: str | os.PathLike[str]) -> str:
    """Return ` --results PATH` for commands in messages, or "" if this is the folder that they use without the option."""
    default = os.environ.get("LENGTHWISE_RESULTS") or RESULTS
    return (
        ""
        if Path(results).resolve() == Path(default).resolve()
        else f" --results {shlex.quote(shortened(str(results)))}"
    )


def store_option(address: str | None) -> str:
    """Return ` --store ADDRESS` for commands in messages, in this wording, since an address may contain a password. Return "" if
    they need none, because there is no address or LENGTHWISE_STORE has it."""
    return "" if address is None or os.environ.get("LENGTHWISE_STORE") == address else " --store ADDRESS"


def results_id(folder: Path, create: bool) -> str | None:
    """Return the identifier in a results folder, or None if it has none. With `create`, it gets a random one if it has none.

    Two machines that find the same identifier see the same folder.
    """
    file = folder / _ID_FILE
    try:
        if create and not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{_ID_FILE}.{os.getpid()}"
            draft.write_text(secrets.token_hex(16), encoding="ascii")
            os.replace(draft, file)
        with open(file, encoding="ascii", errors="replace") as text:
            return text.read(64).strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{file} cannot be used ({error.strerror}); give another results folder") from error


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
