"""A store on each database.

PostgreSQL takes part where its server programs are installed (Debian: `apt install postgresql`): a server of its own is
started in a temporary folder, on a socket there. LENGTHWISE_TEST_POSTGRES, the URL of an empty database, takes its place.
"""

import getpass
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from lengthwise.store import Store, open_store
from lengthwise.store.schema import tables


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them away from PATH."""
    found = [Path(which).parent for which in [shutil.which("initdb")] if which]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((path for path in found if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def why_not() -> str | None:
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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    if given := os.environ.get("LENGTHWISE_TEST_POSTGRES"):
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="lengthwise-postgres-"))  # short: a socket's path has at most 107 bytes
    bin, user, prefix = programs(), getpass.getuser(), []
    assert bin is not None
    if os.getuid() == 0:
        owner = account()
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user, prefix = "postgres", ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]

    def call(*words: str) -> None:
        ran = subprocess.run([*prefix, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{words[0]}: {ran.stdout}{ran.stderr}"

    try:
        call(f"{bin}/initdb", "-D", f"{folder}/data", "-U", user, "-A", "trust", "--no-sync", "-E", "UTF8")
        call(
            f"{bin}/pg_ctl",
            "-D",
            f"{folder}/data",
            "-w",
            "-t",
            "60",
            "-l",
            f"{folder}/log",
            "-o",
            f"-k {folder} -h ''",
            "start",
        )
        try:
            yield f"postgresql://{user}@/postgres?host={folder}"
        finally:
            call(f"{bin}/pg_ctl", "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


REASON = why_not()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.skipif(bool(REASON), reason=REASON or ""))]
)
def where(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Where an empty store can be opened."""
    if request.param == "sqlite":
        return str(tmp_path / "results")
    url: str = request.getfixturevalue("postgres")
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    tables.drop_all(engine)
    engine.dispose()
    return url


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_store(where, timeout=10) as opened:
        yield opened


@pytest.fixture
def silence(store: Store) -> Callable[[str, float], None]:
    """Make a run's worker look as if it had not been heard of for some seconds."""

    def silence(key: str, seconds: float) -> None:
        with store._database.engine.begin() as connection:
            done = connection.execute(
                text("UPDATE runs SET heartbeat = heartbeat - :s WHERE key = :k"), {"s": seconds, "k": key}
            )
            assert done.rowcount == 1

    return silence


def run_data(key: str, lengths: tuple[int, ...] = (8, 16), **change: Any) -> dict[str, Any]:
    """A run as a study hands it over."""
    return {
        "key": key,
        "label": "FIRE(hidden_layers=1)",
        "encoding": "FIRE",
        "task": "Copy",
        "metric": "exact match",
        "better": "higher",
        "unit": "symbols",
        "seed": 0,
        "train_length": 8,
        "config": {"encoding": {"is": "FIRE"}, "seed": 0},
        "asked": [question(length) for length in lengths],
        **change,
    }


def question(length: int) -> dict[str, Any]:
    return {"length": length, "examples": 256, "seed": 0}


def score(length: int, mean: float = 0.5, **change: Any) -> dict[str, Any]:
    return {
        "asked": question(length),
        "length": length,
        "metric": "exact match",
        "better": "higher",
        "n": 256,
        "mean": mean,
        "standard_error": 0.01,
        "out_of_distribution": length > 8,
        "seconds": 0.25,
        **change,
    }


def point(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"step": step, "loss": loss, "learning_rate": 1e-3, "gradient_norm": 0.5, "tokens_per_second": 9000.0}


@pytest.fixture
def make() -> Any:
    """The builders above: `make.run("ab00000000000000")`, `make.score(8)`, `make.point(10)`, `make.question(8)`."""

    class Make:
        run = staticmethod(run_data)
        score = staticmethod(score)
        point = staticmethod(point)
        question = staticmethod(question)

    return Make
