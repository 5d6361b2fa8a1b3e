"""Opening a store: every place that is none is answered in one plain line, and nothing there is changed."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import StoreError, open_store


def refused(where: str | Path, create: bool = True, timeout: float = 0.2) -> str:
    with pytest.raises(StoreError) as caught, open_store(where, create, timeout=timeout):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def results(tmp_path: Path, make: Any) -> Path:
    """A results folder with one finished run."""
    folder = tmp_path / "results"
    with open_store(folder) as store:
        store.add_study("s", evaluation={}, runs=[make.run("a100000000000000", (8,))])
        store.add_answers("a100000000000000", [make.score(8)])
    return folder


# ---- which file is meant ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("new", "new/results.db"),
        ("a/b/c.v2", "a/b/c.v2/results.db"),
        ("deep/mine.db", "deep/mine.db"),
        ("x.sqlite3", "x.sqlite3"),
        ("a ? b#c%20&d", "a ? b#c%20&d/results.db"),
        ("sqlite:///url.db", "url.db"),
    ],
)
def test_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, file: str) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with open_store(where) as store:
            assert store.path == tmp_path / file
            assert store.name == str(tmp_path / file)
            url = store.url
    with open_store(url, create=False) as store:
        assert store.path == tmp_path / file
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / file]


def test_an_existing_file_of_any_name_is_that_file(results: Path) -> None:
    (results / "results.db").rename(results / "kept")
    with open_store(results / "kept", create=False) as store:
        assert store.run("a100000000000000").key == "a100000000000000"


def test_it_is_in_wal_mode(results: Path) -> None:
    assert sqlite3.connect(results / "results.db").execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- what is no store -------------------------------------------------------------------------------------------


def test_missing(tmp_path: Path, results: Path) -> None:
    message = refused(tmp_path / "nothing", create=False)
    assert message.startswith(f"there are no results at {tmp_path / 'nothing' / 'results.db'}; run a study first")
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "empty.db").touch()
    assert "empty.db is empty; run a study first" in refused(tmp_path / "empty.db", create=False)
    with open_store(tmp_path / "empty.db") as store:
        assert store.runs() == []


@pytest.mark.parametrize("content", [b"no database\n" * 100, b"x", b"SQLite format 3\x00" + b"junk" * 300])
@pytest.mark.parametrize("create", [True, False])
def test_not_a_database(tmp_path: Path, content: bytes, create: bool) -> None:
    file = tmp_path / "notes.db"
    file.write_bytes(content)
    message = refused(file, create)
    assert str(file) in message
    assert "is not a SQLite database; give" in message or "is damaged" in message
    assert file.read_bytes() == content
    assert os.listdir(tmp_path) == ["notes.db"]


@pytest.mark.parametrize("create", [True, False])
def test_another_program_s_database(tmp_path: Path, create: bool) -> None:
    file = tmp_path / "music.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE songs (name)")
    content = file.read_bytes()
    assert "is a database of another program (it has the table 'songs')" in refused(file, create)
    assert file.read_bytes() == content, "not even its journal mode"


def test_damaged(results: Path) -> None:
    file = results / "results.db"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(StoreError) as caught, open_store(results) as store:
        store.runs()
    assert str(caught.value).startswith(f"{file} is damaged (")
    assert str(caught.value).endswith("; restore a copy, or move it away and run the study again")


def test_damaged_text(results: Path) -> None:
    with sqlite3.connect(results / "results.db") as connection:
        connection.execute("UPDATE runs SET config = ?", ('{"encoding',))
    connection.close()
    with open_store(results) as store:
        with pytest.raises(StoreError, match=r"runs: the row '\w{16}' is damaged, its config must be JSON") as said:
            store.runs()
        assert len(str(said.value)) < 300


def test_a_file_in_the_folder_s_place(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    assert "cannot be used" in refused(tmp_path / "taken" / "results")
    assert "there are no results at" in refused(tmp_path / "taken" / "results", create=False)


@pytest.mark.parametrize("where", ["x" * 5000, "~nobody-of-this-name/x", "\udcff"])
def test_a_path_that_cannot_be(where: str) -> None:
    assert refused(where, create=False)
    assert refused(where)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.org/results", "http:// is not supported; give a folder"),
        ("mysql://me@host/db", "mysql:// is not supported"),
        ("://", "must be a folder or a database URL"),
        ("sqlite://", "would be lost when the program ends"),
        ("sqlite:///:memory:", "would be lost when the program ends"),
        ("sqlite:///x.db?mode=ro", "a SQLite URL must have no options"),
    ],
)
def test_urls_that_are_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused(url)
    assert os.listdir(tmp_path) == []


def test_a_server_that_is_not_there_or_cannot_be_spoken_to() -> None:
    message = refused("postgresql://me:secret@localhost:9/none")
    assert message.startswith("postgresql://localhost:9/none cannot be reached (")
    assert message.endswith("; start the server, or correct the address")
    assert "secret" not in message
    assert "me" not in message.split()


def test_a_link_is_followed(results: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(results)
    (tmp_path / "mine.db").symlink_to(results / "results.db")
    for named in ("folder", "mine.db"):
        with open_store(tmp_path / named, create=False) as store:
            assert len(store.runs()) == 1


# ---- locked, full -----------------------------------------------------------------------------------------------


def test_locked_for_writing(results: Path, make: Any) -> None:
    other = sqlite3.connect(results / "results.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with open_store(results, timeout=0.2) as store:
        assert store.run("a100000000000000").status == "pending", "reading does not wait for a writer"
        for write in (lambda: store.claim("s", "w"), lambda: store.heartbeat("a100000000000000", "w", 1, 2)):
            with pytest.raises(StoreError, match=r"results.db is locked by another program \(waited 0.2 s\); close"):
                write()
        other.execute("ROLLBACK")
        assert store.claim("s", "w") is not None, "and afterwards it goes on"


@pytest.mark.medium
def test_locked_altogether(results: Path, tmp_path: Path) -> None:
    other = sqlite3.connect(results / "results.db", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    assert "is locked by another program" in refused(results)
    assert "is locked by another program" in refused(results, create=False)
    other.close()
    new = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    new.execute("BEGIN EXCLUSIVE")
    assert "is locked by another program" in refused(tmp_path / "new.db")
    new.close()


def test_a_new_file_that_another_process_is_about_to_fill(tmp_path: Path) -> None:
    """SQLite refuses the change to WAL at once then, whatever the timeout; opening waits all the same."""
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    assert "is locked by another program" in refused(tmp_path / "new.db")
    leaves = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    leaves.start()
    with open_store(tmp_path / "new.db", timeout=30) as store:
        assert store.runs() == []
    leaves.join()
    other.close()


@pytest.mark.medium
def test_a_full_disk(results: Path, make: Any) -> None:
    with open_store(results) as store:
        with store._database.engine.connect() as connection:  # the one connection there is, also for what follows
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        many = [make.score(n, question=make.question(n)) for n in range(1, 5000)]
        store.add_answers("a100000000000000", many[:1])
        for _ in range(2):
            with pytest.raises(
                StoreError, match=r"results.db could not be written because the disk is full; free some space"
            ):
                store.add_answers("a100000000000000", many)
        assert [score.length for score in store.scores(["a100000000000000"])] == [1, 8], "nothing half-written"
        assert store.claim("s", "w") is not None, "what needs no space goes on"
        with store._database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
        store.add_answers("a100000000000000", many, worker="w")
        assert len(store.scores(["a100000000000000"])) == 4999


# ---- read-only --------------------------------------------------------------------------------------------------

READER = """
import os, sys
from lengthwise.store import StoreError, open_store
with open_store(sys.argv[2]) as warm:  # everything is imported before the right to read it goes
    warm.runs()
if os.getuid() == 0:
    os.setuid(65534)  # whoever may do everything has no read-only files
for create in (False, True):
    try:
        with open_store(sys.argv[1], create) as store:
            rows = [(row.key, row.status) for row in store.runs("s")]
            print(store.readonly, rows, len(store.scores(["a100000000000000"])))
            store.claim("s", "w")
            print("claimed")
    except StoreError as error:
        print(error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user of this machine may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        for path in Path(folder).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


def protect(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    folder.chmod(0o555)


def read(where: Path, tmp_path: Path) -> list[str]:
    command = [sys.executable, "-c", READER, str(where), str(tmp_path / "warm")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


needs_permissions = pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permissions there")


@pytest.mark.medium
@needs_permissions
@pytest.mark.parametrize("what", ["folder and file", "folder", "file"])
def test_a_read_only_store_can_be_read(results: Path, public: Path, tmp_path: Path, what: str) -> None:
    folder = public / "results"
    shutil.copytree(results, folder)
    (folder / "results.db").chmod(0o666)
    folder.chmod(0o777)
    if "file" in what:
        (folder / "results.db").chmod(0o444)
    if "folder" in what:
        folder.chmod(0o555)
    content = (folder / "results.db").read_bytes()
    seen, cannot_write, cannot_open = read(folder, tmp_path)
    assert seen == "True [('a100000000000000', 'pending')] 1"
    assert cannot_write == cannot_open
    assert cannot_open.startswith(
        f"{folder / 'results.db'} is read-only (the file or its folder is not writable); change"
    )
    assert (folder / "results.db").read_bytes() == content


@pytest.mark.medium
@needs_permissions
@pytest.mark.parametrize("with_index", [True, False])
def test_what_a_killed_writer_left_in_a_read_only_folder_is_never_missed(
    results: Path, public: Path, tmp_path: Path, make: Any, with_index: bool
) -> None:
    """Its last writes are in the log beside the file. SQLite reads the log only if it has its index."""
    folder = public / "results"
    folder.mkdir()
    with open_store(results) as store:
        assert store.claim("s", "elsewhere:1:w") is not None
        store.finish("a100000000000000", "elsewhere:1:w", {})
        for suffix in ("", "-wal", "-shm") if with_index else ("", "-wal"):
            shutil.copyfile(results / f"results.db{suffix}", folder / f"results.db{suffix}")
    assert (folder / "results.db-wal").stat().st_size > 0
    protect(folder)
    seen = read(folder, tmp_path)[0]
    assert seen == "True [('a100000000000000', 'done')] 1" if with_index else "results.db cannot be opened (" in seen


@needs_permissions
def test_a_file_that_may_not_be_read(results: Path, public: Path, tmp_path: Path) -> None:
    folder = public / "results"
    shutil.copytree(results, folder)
    (folder / "results.db").chmod(0o000)
    for line in read(folder, tmp_path)[:1]:
        assert line == f"{folder / 'results.db'} is not readable by this user; change its permissions"


@needs_permissions
def test_a_place_where_nothing_can_be_made(public: Path, tmp_path: Path) -> None:
    (public / "shut").mkdir(mode=0o555)
    lines = read(public / "shut" / "results", tmp_path)
    assert lines[0].startswith("there are no results at")
    file = public / "shut" / "results" / "results.db"
    assert lines[1] == f"the results folder {file.parent} cannot be used (Permission denied); give another folder"


def test_a_writable_store_opened_without_create_can_be_written(results: Path) -> None:
    with open_store(results, create=False) as store:
        assert not store.readonly
        assert store.claim("s", "w") is not None


def test_closing_twice_does_nothing(results: Path) -> None:
    store = open_store(results)
    store.close()
    store.close()
    assert os.listdir(results) == ["results.db"], "the log is merged"
