"""The list of databases: one module each, chosen by the address."""

from pathlib import Path

import pytest

from lengthwise.store import Store, databases, open_store
from lengthwise.store.databases import DATABASES, SQLite
from lengthwise.store.databases.base import Database

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


def test_a_database_without_a_method_is_refused() -> None:
    class Half(Database):
        drivers = ("half",)

    with pytest.raises(TypeError, match=r"abstract class Half .*begin_reading.*now"):
        Half("half", "half://", 1.0)  # type: ignore[abstract]
