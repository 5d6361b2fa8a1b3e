"""`lengthwise upgrade`. What an upgrade does is tested in tests/store/test_migrations.py."""

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import migrations, schema, worker_name
from tests.store.second_revision import second_tables, write_revisions

Call = Callable[..., Any]


@pytest.fixture
def older(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished results, when revision 2 has become the newest one."""
    shutil.copytree(finished, tmp_path / "older")
    write_revisions(tmp_path / "migrations")
    monkeypatch.setattr(migrations, "FOLDER", tmp_path / "migrations")
    monkeypatch.setattr(schema, "REVISION", 2)
    monkeypatch.setattr(schema, "tables", second_tables())
    return tmp_path / "older"


def test_an_upgrade(here: Call, older: Path) -> None:
    options = ("--results", older)
    ran = here("report", *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.endswith(f"; stop all workers and run `lengthwise upgrade --results {older}`\n")
    ran = here("upgrade", *options)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"upgraded {older / 'results.db'} from revision 1 of the tables to revision 2\n"
    assert here("report", *options).code == 0
    ran = here("upgrade", *options)
    assert ran.code == 0
    assert ran.out == f"nothing to do: {older / 'results.db'} has revision 2 of the tables, which is the newest\n"


def test_refusals_are_one_line(here: Call, older: Path, tmp_path: Path) -> None:
    with sqlite3.connect(older / "results.db") as raw:
        raw.execute("UPDATE runs SET worker = ?, heartbeat = ?", (worker_name(), time.time()))
    raw.close()
    for place, words in (
        (older, "; stop all workers and run this command again"),
        (tmp_path / "no", "there are no results at"),
    ):
        ran = here("upgrade", "--results", place)
        assert (ran.code, ran.err.count("\n"), ran.out) == (2, 1, "")
        assert words in ran.err


@pytest.mark.medium
def test_an_upgrade_imports_no_torch(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "older")
    write_revisions(tmp_path / "migrations")
    code = f"""
import sys
from pathlib import Path
from lengthwise.cli import main
def loaded():
    return sorted({{name.split(".")[0] for name in sys.modules}} & {{"torch", "alembic"}})
words = ["upgrade", "--results", {str(tmp_path / "older")!r}]
print(main(words), loaded())
from lengthwise.store import migrations, schema
from tests.store.second_revision import second_tables
schema.REVISION, schema.tables, migrations.FOLDER = 2, second_tables(), Path({str(tmp_path / "migrations")!r})
print(main(words), loaded())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("nothing to do") and lines[2].startswith("upgraded")
    assert [lines[1], lines[3]] == ["0 []", "0 ['alembic']"]
