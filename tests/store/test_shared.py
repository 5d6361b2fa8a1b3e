"""A database that several machines share: its results folder, claims that do not wait, and where SQLite must not be."""

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from lengthwise.config import ConfigError
from lengthwise.store import Store, StoreError, file_systems, open_results, open_store, store_option
from tests.postgres_server import needs_postgres

KEYS = [f"{n:016x}" for n in range(6)]


@pytest.fixture
def address(where: str) -> str:
    """The address of an empty database."""
    return where if "://" in where else f"sqlite:///{where}.db"


def test_the_results_folder_is_the_one_of_the_first_caller(address: str, tmp_path: Path) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    for _ in range(2):
        with open_results(shared, store=address) as store:
            assert store.files.path == shared
    with pytest.raises(
        StoreError, match=r"other is not the results folder of .* give the folder that all machines share"
    ):
        open_results(other, store=address)
    assert not other.exists()
    (tmp_path / "mounted").symlink_to(shared)  # the same folder at another place
    with open_results(tmp_path / "mounted", store=address):
        pass
    with open_results(other, create=False, store=address) as store:  # a report needs no files of runs
        assert store.runs() == []


@pytest.mark.parametrize("value", ["results", "/tmp/results.db", "", "host=h password=hunter2"])
def test_a_store_is_an_address(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be the address of a database") as refused:
        open_results(tmp_path, store=value)
    assert "hunter2" not in str(refused.value)


def test_options_in_messages_have_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://ann:secret@db:5432/runs"
    assert store_option(None) == ""
    assert store_option(address) == " --store ADDRESS"
    monkeypatch.setenv("LENGTHWISE_STORE", address)
    assert store_option(address) == ""


@pytest.mark.medium
@needs_postgres
@pytest.mark.parametrize("where", ["postgresql"], indirect=True)
def test_a_claim_does_not_wait_for_another_one(where: str, make: Any) -> None:
    """A transaction of another worker has locked the first run."""
    engine = create_engine(where.replace("postgresql://", "postgresql+psycopg://"))
    with open_store(where, timeout=30) as store:
        store.add_study("s", evaluation={}, runs=[make.run(key) for key in KEYS])
        with engine.connect() as other:
            other.execute(text(f"SELECT key FROM runs WHERE key = '{KEYS[0]}' FOR UPDATE"))
            start = time.monotonic()
            claimed = [store.claim("s", f"elsewhere:{n}:0-0-0") for n in range(6)]
            assert time.monotonic() - start < 15
        assert [row and row.key for row in claimed] == [*KEYS[1:], None]
        row = store.claim("s", "elsewhere:9:0-0-0")
        assert row is not None and row.key == KEYS[0]
    engine.dispose()


def test_runs_with_a_new_question_are_claimed_after_untrained_ones(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run(key) for key in KEYS[:3]])
    first = store.claim("s", "elsewhere:1:0-0-0")
    assert first is not None and first.key == KEYS[0]
    store.add_answers(KEYS[0], [make.score(8), make.score(16)], worker="elsewhere:1:0-0-0")
    store.finish(KEYS[0], "elsewhere:1:0-0-0", {})
    store.add_study("s", evaluation={}, runs=[make.run(key, (8, 16, 32)) for key in KEYS[:3]])
    order = [store.claim("s", f"elsewhere:{n}:0-0-0") for n in range(4)]
    assert [row and row.key for row in order] == [KEYS[1], KEYS[2], KEYS[0], None]
    assert store.is_unfinished("s")
    for n, key in enumerate((KEYS[1], KEYS[2])):
        assert store.fail(key, f"elsewhere:{n}:0-0-0", "no")
    assert store.is_unfinished("s")
    store.add_answers(KEYS[0], [make.score(32)], worker="elsewhere:2:0-0-0")
    store.finish(KEYS[0], "elsewhere:2:0-0-0", {})
    assert not store.is_unfinished("s")


MOUNTS = r"""
/dev/root / ext4 rw,relatime 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/local\040disk xfs rw 0 0
host: /remote fuse.sshfs rw 0 0
/dev/sdc /scratch ext4 rw 0 0
mds:/scratch /scratch lustre rw 0 0
""".lstrip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x/results.db", "ext4"), ("/home/ann/results.db", "nfs4"), ("/home/local disk/results.db", "xfs"),
        ("/homely/results.db", "ext4"), ("/remote/results.db", "fuse.sshfs"), ("/scratch/a/results.db", "lustre"),
    ],
)  # fmt: skip
def test_the_file_system_of_a_path(path: str, kind: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert file_systems._file_system(Path(path), mounts) == kind
    assert file_systems._file_system(Path(path), tmp_path / "none") is None


def test_no_sqlite_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "local"):
        pass
    monkeypatch.setattr(file_systems, "_file_system", lambda path: "nfs4")
    with pytest.raises(StoreError, match=r"is on a network file system \(nfs4\), where SQLite loses data; .* --store"):
        open_store(tmp_path / "results")
    assert not (tmp_path / "results").exists()
    with open_store(tmp_path / "local", create=False) as store:  # reading is allowed
        assert store.runs() == []
