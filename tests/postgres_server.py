"""A PostgreSQL server for tests: the fixture `postgres`, to be imported by the conftest of a folder.

It takes part where its server programs are installed (Debian: `apt install postgresql`): a server of its own is started
in a temporary folder, on a socket there. LENGTHWISE_TEST_POSTGRES, the URL of an empty database, takes its place.
"""

import getpass
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them away from PATH."""
    found = [Path(which).parent for which in [shutil.which("initdb")] if which]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((path for path in found if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def unsupported_reason() -> str | None:
    """The reason why PostgreSQL takes no part."""
    if importlib.util.find_spec("psycopg") is None:
        return "PostgreSQL: psycopg is not installed"
    if os.environ.get("LENGTHWISE_TEST_POSTGRES"):
        return None
    if programs() is None:
        return "PostgreSQL: its server is not installed (initdb and pg_ctl), and LENGTHWISE_TEST_POSTGRES has no URL"
    if os.name != "posix" or (os.getuid() == 0 and (account() is None or shutil.which("setpriv") is None)):
        return "PostgreSQL: its server does not run as root, and there is no user postgres to run it"
    return None


def account() -> Any:
    import pwd

    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


class Server:
    """A server of its own in a temporary folder, on a socket there."""

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="lengthwise-postgres-")
        )  # short: a socket's path has at most 107 bytes
        found, user, self.prefix = programs(), getpass.getuser(), list[str]()
        assert found is not None
        self.bin = found
        if os.getuid() == 0:
            owner = account()
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            user = "postgres"
            self.prefix = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        self.url = f"postgresql://{user}@/postgres?host={self.folder}"
        self.call("initdb", "-U", user, "-A", "trust", "--no-sync", "-E", "UTF8")

    def call(self, program: str, *words: str) -> None:
        command = [*self.prefix, f"{self.bin}/{program}", "-D", f"{self.folder}/data", *words]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{program}: {ran.stdout}{ran.stderr}"

    def start(self) -> None:
        self.call("pg_ctl", "-w", "-t", "60", "-l", f"{self.folder}/log", "-o", f"-k {self.folder} -h ''", "start")

    def stop(self) -> None:
        """End it at once, as a crash would."""
        self.call("pg_ctl", "-w", "-m", "immediate", "stop")


@contextmanager
def new_server() -> Iterator[Server]:
    server = Server()
    try:
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    if given := os.environ.get("LENGTHWISE_TEST_POSTGRES"):
        yield given
        return
    with new_server() as server:
        yield server.url


REASON = unsupported_reason()
needs_postgres = pytest.mark.skipif(bool(REASON), reason=REASON or "")
needs_own_postgres = pytest.mark.skipif(
    bool(REASON) or programs() is None, reason=REASON or "PostgreSQL: its server is not installed (initdb and pg_ctl)"
)
