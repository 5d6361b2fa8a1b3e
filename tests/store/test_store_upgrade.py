"""A database of schema version 1: it is read as it is, upgraded by who writes to it, and loses nothing."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from lengthwise.store import SCHEMA_VERSION, Store, StoreError, open_store, schema

# The tables as version 1 made them, and one study in them, by hand.
VERSION_1 = """
CREATE TABLE lengthwise (schema_version INTEGER NOT NULL, PRIMARY KEY (schema_version));
CREATE TABLE studies (name TEXT NOT NULL, question TEXT NOT NULL, expectation TEXT NOT NULL, cost TEXT NOT NULL,
  command TEXT NOT NULL, evaluation TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, updated DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (name));
CREATE TABLE runs (key TEXT NOT NULL, label TEXT NOT NULL, encoding TEXT NOT NULL, task TEXT NOT NULL,
  metric TEXT NOT NULL, better TEXT NOT NULL, unit TEXT NOT NULL, seed BIGINT NOT NULL, train_length BIGINT NOT NULL,
  config TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, worker TEXT, heartbeat DOUBLE PRECISION, handed_out TEXT,
  claims INTEGER NOT NULL, step BIGINT NOT NULL, steps BIGINT NOT NULL, started DOUBLE PRECISION,
  finished DOUBLE PRECISION, error TEXT, facts TEXT NOT NULL, PRIMARY KEY (key));
CREATE TABLE study_runs (study TEXT NOT NULL, key TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (study, key),
  FOREIGN KEY(study) REFERENCES studies (name), FOREIGN KEY(key) REFERENCES runs (key));
CREATE TABLE asked (study TEXT NOT NULL, key TEXT NOT NULL, question TEXT NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (study, key, question), FOREIGN KEY(study) REFERENCES studies (name), FOREIGN KEY(key) REFERENCES runs (key));
CREATE TABLE scores (key TEXT NOT NULL, question TEXT NOT NULL, length BIGINT NOT NULL, metric TEXT NOT NULL,
  better TEXT NOT NULL, n BIGINT NOT NULL, mean DOUBLE PRECISION, standard_error DOUBLE PRECISION,
  out_of_distribution BOOLEAN NOT NULL, seconds DOUBLE PRECISION, facts TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (key, question), FOREIGN KEY(key) REFERENCES runs (key));
CREATE TABLE curve (key TEXT NOT NULL, step BIGINT NOT NULL, loss DOUBLE PRECISION, learning_rate DOUBLE PRECISION,
  gradient_norm DOUBLE PRECISION, tokens_per_second DOUBLE PRECISION, PRIMARY KEY (key, step),
  FOREIGN KEY(key) REFERENCES runs (key));
CREATE INDEX study_runs_by_key ON study_runs (key);
INSERT INTO lengthwise VALUES (1);
INSERT INTO studies VALUES ('s', 'Does it?', 'No', '1 min', 'lengthwise run s', '{"lengths":[8]}', 100.5, 101.5);
INSERT INTO runs VALUES ('a100000000000000', 'FIRE', 'FIRE', 'Copy', 'exact match', 'higher', 'symbols', 7, 8, '{"seed":7}', 100.5,
  NULL, NULL, NULL, 1, 10, 10, 100.75, 101.25, NULL, '{"seconds":1.5}');
INSERT INTO study_runs VALUES ('s', 'a100000000000000', 0);
INSERT INTO asked VALUES ('s', 'a100000000000000', '{"examples":256,"length":8,"seed":0}', 0);
INSERT INTO scores VALUES ('a100000000000000', '{"examples":256,"length":8,"seed":0}', 8, 'exact match', 'higher', 256, 0.5, 0.01,
  false, 0.25, '{}', 101.0);
INSERT INTO curve VALUES ('a100000000000000', 5, 2.5, 0.001, 1.0, 900.0);
INSERT INTO curve VALUES ('a100000000000000', 10, NULL, 0.001, 1.0, 900.0)
"""
ASKED = {"probe": "p", "length": 8}


def engine_of(where: str) -> Engine:
    url = where.replace("postgresql://", "postgresql+psycopg://") if "://" in where else f"sqlite:///{where}/results.db"
    return create_engine(url)


@pytest.fixture
def old(where: str) -> str:
    """Where a database of version 1 lies."""
    if "://" not in where:
        Path(where).mkdir()
    engine = engine_of(where)
    with engine.begin() as connection:
        double = "DOUBLE PRECISION" if engine.dialect.name == "postgresql" else "DOUBLE"
        for statement in VERSION_1.replace("DOUBLE PRECISION", double).split(";"):
            connection.execute(text(statement.replace(":", r"\:")))
    engine.dispose()
    return where


def version(where: str) -> int:
    engine = engine_of(where)
    with engine.connect() as connection:
        found: int = connection.execute(text("SELECT schema_version FROM lengthwise")).scalar_one()
    engine.dispose()
    return found


def everything_is_there(store: Store) -> None:
    (study,) = store.studies()
    assert (study.name, study.question, study.evaluation) == ("s", "Does it?", {"lengths": [8]})
    assert (study.created, study.updated, study.published) == (100.5, 101.5, None)
    (run,) = store.runs("s")
    assert (run.key, run.status, run.seed, run.claims, run.facts) == (
        "a100000000000000",
        "done",
        7,
        1,
        {"seconds": 1.5},
    )
    assert (run.started, run.finished, run.config) == (100.75, 101.25, {"seed": 7})
    (score,) = store.scores(["a100000000000000"])
    assert (score.mean, score.n, score.created, score.out_of_distribution) == (0.5, 256, 101.0, False)
    first, last = store.curve("a100000000000000")
    assert (first.step, first.loss, last.step) == (5, 2.5, 10)
    assert last.loss != last.loss
    assert store.probes(["a100000000000000"]) == []


def test_opening_for_writing_upgrades_and_loses_nothing(old: str, make: Any) -> None:
    with open_store(old) as store:
        assert version(old) == SCHEMA_VERSION == 2
        everything_is_there(store)
        store.add_probe("a100000000000000", ASKED, {"layers": [0.1]}, {})
        store.add_study("t", evaluation={}, runs=[make.run("b200000000000000")], published={"source": "A paper"})
    with open_store(old) as again:
        assert [row.result for row in again.probes(["a100000000000000"])] == [{"layers": [0.1]}]
        assert {row.name: row.published for row in again.studies()} == {"s": None, "t": {"source": "A paper"}}


def test_the_upgraded_tables_are_those_of_a_new_database(old: str, tmp_path: Path) -> None:
    def columns(where: str) -> dict[str, Any]:
        engine = engine_of(where)
        looks = inspect(engine)
        found = {
            table: (
                {c["name"]: (str(c["type"]), c["nullable"]) for c in looks.get_columns(table)},
                looks.get_pk_constraint(table)["constrained_columns"],
                [(f["constrained_columns"], f["referred_table"]) for f in looks.get_foreign_keys(table)],
            )
            for table in looks.get_table_names()
        }
        engine.dispose()
        return found

    open_store(old).close()
    upgraded = columns(old)
    engine = engine_of(old)
    schema.tables.drop_all(engine)
    engine.dispose()
    open_store(old).close()
    assert upgraded == columns(old)


def test_reading_changes_nothing_until_something_is_written(old: str) -> None:
    with open_store(old, create=False) as store:
        everything_is_there(store)
        assert store.probe("a100000000000000", ASKED) is None
        assert version(old) == 1
        with pytest.raises(StoreError, match="there is no run 'zz'"):
            store.add_probe("zz", ASKED, {}, {})
        store.add_probe("a100000000000000", ASKED, {"layers": []}, {})
        assert version(old) == 2
        assert store.probe("a100000000000000", ASKED) is not None


def test_a_reader_sees_what_another_process_upgraded_meanwhile(old: str) -> None:
    with open_store(old, create=False) as reader:
        everything_is_there(reader)
        with open_store(old) as writer:
            writer.add_probe("a100000000000000", ASKED, {"layers": []}, {})
        assert len(reader.probes(["a100000000000000"])) == 1
        assert reader.studies()[0].published is None


def test_who_had_it_open_as_version_1_goes_on(old: str) -> None:
    """What an older program writes: it names the columns that it knows."""
    engine = engine_of(old)
    with engine.connect() as other:
        other.execute(text("SELECT name FROM studies")).all()
        other.rollback()
        open_store(old).close()
        other.execute(
            text(
                "INSERT INTO studies (name, question, expectation, cost, command, evaluation, created, updated) "
                "VALUES ('u', '', '', '', '', '{}', 1.0, 1.0)"
            )
        )
        other.commit()
    engine.dispose()
    with open_store(old) as store:
        assert [row.name for row in store.studies()] == ["u", "s"]


def test_an_upgrade_that_fails_leaves_version_1(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it or nothing: no table is left behind by an attempt that ended halfway."""
    with monkeypatch.context() as patched:
        patched.setattr(schema, "text", lambda words: text(words.replace("published", "published NO SUCH TYPE (")))
        with pytest.raises(StoreError):
            open_store(old)
    assert version(old) == 1
    with open_store(old) as store:
        assert version(old) == 2
        everything_is_there(store)


WRITER = """
import sys
from lengthwise.store import open_store
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.add_probe("a100000000000000", {"probe": "p", "n": int(sys.argv[2])}, {}, {})
"""


def test_processes_that_upgrade_at_once(old: str) -> None:
    command = [sys.executable, "-c", WRITER, old]
    pipe = subprocess.PIPE
    writers = [subprocess.Popen([*command, str(n)], stdin=pipe, stdout=pipe, stderr=pipe, text=True) for n in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    with open_store(old) as store:
        assert [row.asked["n"] for row in store.probes(["a100000000000000"])] == [0, 1, 2]
        assert len(store.runs("s")) == 1


READER = """
import os, sys
from lengthwise.store import StoreError, open_store
with open_store(sys.argv[2]) as warm:  # everything is imported before the right to read it goes
    warm.runs(), warm.probes([])
if os.getuid() == 0:
    os.setuid(65534)  # whoever may do everything has no read-only files
with open_store(sys.argv[1], create=False) as store:
    found = [(r.key, r.status) for r in store.runs()]
    print(store.readonly, found, store.studies()[0].published, store.probes(["a100000000000000"]))
    try:
        store.add_probe("a100000000000000", {"probe": "p"}, {}, {})
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


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permissions there")
def test_a_reader_that_may_not_write_reads_version_1(public: Path, tmp_path: Path) -> None:
    folder = public / "results"
    folder.mkdir()
    with sqlite3.connect(folder / "results.db") as raw:
        raw.executescript("PRAGMA journal_mode=WAL;" + VERSION_1)
    raw.close()
    content = (folder / "results.db").read_bytes()
    (folder / "results.db").chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    folder.chmod(0o555)
    ran = subprocess.run(
        [sys.executable, "-c", READER, str(folder), str(tmp_path / "warm")], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    seen, refused = ran.stdout.splitlines()
    assert seen == "True [('a100000000000000', 'done')] None []"
    assert "is read-only" in refused
    assert (folder / "results.db").read_bytes() == content


def test_an_older_lengthwise_refuses_what_was_upgraded(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words that it had then."""
    open_store(old).close()
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 1)
    with pytest.raises(StoreError, match=r"has schema version 2, and this lengthwise reads .*; upgrade lengthwise"):
        open_store(old)


def test_a_copy_of_the_folder_is_another_store(old: str, tmp_path: Path) -> None:
    if "://" in old:
        pytest.skip("a server has no file to copy")
    shutil.copytree(old, tmp_path / "kept")
    open_store(old).close()
    assert (version(old), version(str(tmp_path / "kept"))) == (2, 1)
