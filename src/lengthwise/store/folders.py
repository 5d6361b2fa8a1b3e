"""The results folder and the folders of runs. Only this module turns a run's key into a path."""

import os
import secrets
import shlex
import shutil
from collections.abc import Collection
from pathlib import Path

from lengthwise.store.cells import require_key
from lengthwise.store.errors import BadFolder, StoreError
from lengthwise.user_classes import shortened
from lengthwise.values import RESULTS, WEIGHTS, is_remote, require_no_address

ID_FILE = "results-id"


def results_option(results: str | os.PathLike[str]) -> str:
    """Return ` --results PATH` for commands in messages, or "" if this is the folder that they use without the option."""
    default = os.environ.get("LENGTHWISE_RESULTS") or RESULTS
    given, usual = (where if is_remote(where) else Path(where).resolve() for where in (results, default))
    return "" if given == usual else f" --results {shlex.quote(shortened(str(results)))}"


def store_option(address: str | None) -> str:
    """Return ` --store ADDRESS` for commands in messages, in this wording, since an address may contain a password. Return "" if
    they need none, because there is no address or LENGTHWISE_STORE has it."""
    return "" if address is None or os.environ.get("LENGTHWISE_STORE") == address else " --store ADDRESS"


def results_id(folder: Path, create: bool) -> str | None:
    """Return the identifier in a results folder, or None if it has none. With `create`, it gets a random one if it has none.

    Two machines that find the same identifier see the same folder.
    """
    file = folder / ID_FILE
    try:
        if create and not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{ID_FILE}.{os.getpid()}"
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


class ResultsFolder:
    """The files of a results folder on this machine. `RemoteFolder` has the same methods for a folder at an address.

    `path`: the folder in which a process reads and writes the files of runs. `address`: with what another process opens it.
    """

    is_remote = False

    def __init__(self, path: Path):
        self.path = path

    @property
    def address(self) -> str:
        return str(self.path.resolve())

    def __str__(self) -> str:
        """Return the name in messages, and for the option --results."""
        return str(self.path)

    def identifier(self, create: bool) -> str | None:
        """Return the identifier in the folder, or None if it has none. With `create`, it gets a random one if it has none."""
        return results_id(self.path, create)

    def run_folder(self, key: str) -> Path:
        """Return the path of a run's folder; see `run_folder`."""
        return run_folder(self.path, key)

    def trained(self, keys: Collection[str]) -> set[str]:
        """Return the keys of those runs that have weights."""
        return {key for key in keys if (self.run_folder(key) / WEIGHTS).is_file()}

    def fetch(self, key: str) -> None:
        """Bring the files of a run into its folder, as the machine that used it last has left them."""

    def send(self, key: str) -> None:
        """Make the new files of a run available to other machines."""

    def require_deletable(self, key: str) -> None:
        """Raise `StoreError` if the files of a run cannot be deleted."""
        require_deletable(self.path, key)

    def delete(self, key: str) -> None:
        """Delete the files of a run; see `delete_run`."""
        delete_run(self.path, key)
