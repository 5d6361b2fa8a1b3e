"""The results folder and the folders of runs in it. Only this module turns a run's key into a path."""

import os
import secrets
import shlex
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from lengthwise.store.cells import require_key
from lengthwise.store.errors import StoreError
from lengthwise.user_classes import shortened
from lengthwise.values import RESULTS, WEIGHTS, is_remote

ID_FILE = "results-id"


def results_option(results: str | os.PathLike[str]) -> str:
    """Return ` --results PATH` for commands in messages, or "" if they use this folder without the option."""
    default = os.environ.get("LENGTHWISE_RESULTS") or RESULTS
    given, usual = (where if is_remote(where) else Path(where).resolve() for where in (results, default))
    return "" if given == usual else f" --results {shlex.quote(shortened(str(results)))}"


def store_option(address: str | None) -> str:
    """Return ` --store ADDRESS` for commands in messages, in this wording, since an address may contain a password.
    Return "" if they need none, because there is no address or LENGTHWISE_STORE has it."""
    return "" if address is None or os.environ.get("LENGTHWISE_STORE") == address else " --store ADDRESS"


class ResultsFolder:
    """The files of a results folder on this machine. `RemoteFolder` has the same methods for a folder at an address.

    `path`: the folder in which a process reads and writes the files of runs. `address`: with what another process opens
    it.
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
        """Return the identifier in the folder, or None if it has none. With `create`, it gets a random one if it has
        none.

        Two machines that find the same identifier see the same folder.
        """
        file = self.path / ID_FILE
        try:
            if create and not file.exists():
                self.path.mkdir(parents=True, exist_ok=True)
                file.write_text(secrets.token_hex(16), encoding="ascii")
            return file.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{file} cannot be used ({error.strerror}); give another results folder") from error

    def run_folder(self, key: str) -> Path:
        """Return the folder of a run, which may not exist. Raises `StoreError` if the key is not 16 hex digits."""
        return self.path / "runs" / require_key(key)

    def trained(self, keys: Collection[str]) -> set[str]:
        """Return the keys of those runs that have weights."""
        return {key for key in keys if (self.run_folder(key) / WEIGHTS).is_file()}

    def fetch(self, key: str) -> None:
        """Bring the files of a run into its folder, as the machine that used it last has left them."""

    def send(self, key: str) -> None:
        """Make the new files of a run available to other machines."""

    def delete(self, key: str) -> None:
        """Delete the files of a run."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.run_folder(key))
