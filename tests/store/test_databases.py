"""The list of databases: one module each, chosen by the address."""

from pathlib import Path

import pytest
from sqlalchemy import update

from lengthwise.store import Store, StoreError, databases, open_store, schema
from lengthwise.store.databases import DATABASES, SQLite

FOLDER = Path(databases.__file__).parent


def test_the_list_and_the_folder_agree() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "base"}
    assert {kind.__module__.rpartition(".")[2] for kind in DATABASES} == modules
    drivers = [driver for kind in DATABASES for driver in kind.drivers]
    assert len(set(drivers)) == len(drivers)


def test_another_database_is_one_class_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(SQLite):
        drivers = ("other",)

    monkeypatch.setattr(databases, "DATABASES", (*DATABASES, Other))
    with open_store(f"other:///{tmp_path}/o.db") as store:
        store.add_study("s", evaluation={}, runs=[])
        assert isinstance(store, Store)
        assert [row.name for row in store.studies()] == ["s"]


@pytest.mark.parametrize(
    ("revision", "shown", "fix"),
    [("7", "7", "upgrade lengthwise"), ("x\ny", "x\\ny", "use the version of lengthwise that wrote it")],
)
def test_another_revision_is_refused(store: Store, where: str, revision: str, shown: str, fix: str) -> None:
    change = update(schema.version).values(version_num=revision)
    with store._database.engine.begin() as connection:
        assert connection.execute(change).rowcount == 1
    for create in (True, False):
        with pytest.raises(StoreError) as refused:
            open_store(where, create)
        assert str(refused.value).endswith(
            f"has revision {shown} of the tables, but this lengthwise reads only revision 1; {fix}, or give another "
            "folder"
        )
