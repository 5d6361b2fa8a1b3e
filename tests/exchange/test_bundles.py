"""Bundles: from one store to another, on every pair of databases, and files that are no bundles or damaged ones."""

import hashlib
import math
import signal
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import findings
from lengthwise.config import ConfigError
from lengthwise.exchange.bundle import DATABASE, SUMS, export_bundle, opened_bundle
from lengthwise.measurements import Table
from lengthwise.report import render
from lengthwise.store import Store, StoreError, open_results, open_store, worker_name
from lengthwise.store.transfer import TABLES
from tests.exchange.conftest import fill, run_data, score_data
from tests.postgres_server import needs_postgres, postgres
from tests.store.conftest import empty_store

__all__ = ["postgres"]

Files = dict[str, bytes]
WEIGHTS = "weights.safetensors"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[needs_postgres, pytest.mark.medium])])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where another store can be opened, which is empty."""
    return empty_store(request, tmp_path / "other machine")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, bytes]]:
    """A store with a study that has every kind of row, and numbers that JSON does not have; and its bundle."""
    folder = tmp_path_factory.mktemp("origin")
    with open_results(folder / "results") as store:
        runs = fill(store)
        point = {
            "step": 30,
            "loss": math.inf,
            "learning_rate": 1e-3,
            "gradient_norm": math.nan,
            "tokens_per_second": 9e3,
        }
        store.add_answer(runs[0]["key"], "further", {}, Table.from_rows([point]).to_data(), {})
        export_bundle(store, "made", folder / "made.zip")
        yield store, (folder / "made.zip").read_bytes()


@pytest.fixture
def bundle(origin: tuple[Store, bytes], tmp_path: Path) -> Path:
    (tmp_path / "made.zip").write_bytes(origin[1])
    return tmp_path / "made.zip"


@pytest.fixture
def store(origin: tuple[Store, bytes]) -> Store:
    """The store with the study; tests only read it."""
    return origin[0]


def dump(store: Store) -> dict[str, list[dict[str, Any]]]:
    with store.study_cells("made") as tables:
        return {name: list(rows) for name, rows in tables.items()}


def imported(file: Path, store: Store) -> dict[str, int]:
    with opened_bundle(file) as found:
        return found.add_to(store)


def parts(file: Path) -> Files:
    with zipfile.ZipFile(file) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def pack(file: Path, files: Files) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return file


def with_sums(files: Files) -> Files:
    """Return the files with sums that fit them."""
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items() if name != SUMS]
    return files | {SUMS: "".join(sums).encode()}


# ---- from store to store ----------------------------------------------------------------------------------------


@pytest.mark.medium
def test_the_other_store_has_the_same_rows_and_the_same_page(
    store: Store, bundle: Path, where: str, tmp_path: Path
) -> None:
    with open_store(where) as other:
        added = imported(bundle, other)
        assert added == {name: len(rows) for name, rows in dump(store).items()} | {"weights": 0}
        assert dump(other) == dump(store), "with the times"
        assert any('"loss":["inf"]' in row["rows"] for row in dump(other)["answers"])
        assert render(findings(other, "made")) == render(findings(store, "made"))
        assert set(imported(bundle, other).values()) == {0}, "the second time, nothing is new"
        assert dump(other) == dump(store)
        export_bundle(other, "made", tmp_path / "again.zip", weights=False)
    with open_results(tmp_path / "third") as third:
        imported(tmp_path / "again.zip", third)
        assert dump(third) == dump(store)


def test_runs_that_others_start_from_or_are_compared_with_come_too(tmp_path: Path) -> None:
    with open_results(tmp_path / "one") as store:
        _fill_lineage(store)
        export_bundle(store, "made", tmp_path / "made.zip")
    with open_results(tmp_path / "other") as other:
        assert imported(tmp_path / "made.zip", other)["runs"] == 4
        assert [run.label for run in other.runs("made")] == ["ALiBi"]
        assert {run.label for run in other.runs()} == {"ALiBi", "RoPE", "NoPE", "T5"}


def _fill_lineage(store: Store) -> None:
    (first,) = fill(store, "first", seeds=1, labels=("NoPE",))
    (second,) = fill(store, "second", seeds=1, labels=("RoPE",), parent=first["key"])
    fill(store, "made", seeds=1, labels=("ALiBi",), parent=second["key"])
    key = store.runs("made")[0].key
    (against,) = fill(store, "compared", seeds=1, labels=("T5",))
    store.add_answer(key, "own", {"against": against["key"]}, {"value": [1.0]}, {})


@pytest.mark.medium
def test_training_goes_to_runs_that_are_not_finished_here(store: Store, bundle: Path, where: str) -> None:
    """The other machine lists the same study, has trained nothing yet, and one of its workers has just died."""
    with open_store(where) as other:
        runs = [run_data(label, seed) for label in ("NoPE", "FIRE(hidden_layers=1)") for seed in range(3)]
        other.add_study("made", question="Which one?", command="lengthwise run made.py", evaluation={}, runs=runs)
        with pytest.raises(StoreError, match="has another study 'made', which was created at another time"):
            imported(bundle, other)
        assert other.progress("made")["pending"] == 6
        other.drop_study("made")
        other.add_study("mine", evaluation={}, runs=runs)
        living = other.claim("mine", worker_name())
        assert living is not None
        with pytest.raises(
            StoreError, match=f"a worker is training run {living.key} of .* now; wait|a worker is training"
        ):
            imported(bundle, other)
        assert other.progress("mine") == {"pending": 5, "running": 1, "done": 0, "failed": 0}
        other.release(living.key, str(living.worker))
        added = imported(bundle, other)
        assert (added["runs"], added["answers"]) == (0, 31)
        assert other.progress("mine")["done"] == 6
        ours = {run.key: run.created for run in other.runs("mine")}
        assert other.runs("made")[0].finished == store.runs("made")[0].finished
        assert min(ours.values()) > store.runs("made")[0].created, "the run was added here at another time"


def test_other_results_are_refused_and_equal_ones_stay(store: Store, bundle: Path, where: str) -> None:
    runs = [run_data("NoPE", 0)]
    with open_store(where) as other:
        other.add_study("mine", evaluation={}, runs=runs)
        asked = runs[0]["questions"][0]
        other.add_answers(runs[0]["key"], [score_data(asked, 1.0, facts={"seconds": 9.0})])
        other.add_answer(runs[0]["key"], "own", {"length": 8}, {"value": [0.75]}, {})
        with pytest.raises(StoreError, match=r"own.*has other results for it \(value is .*0.75.* here and .*0.5"):
            imported(bundle, other)
        assert [study.name for study in other.studies()] == ["mine"]
        assert len(other.scores([runs[0]["key"]])) == 1
        other.drop([runs[0]["key"]])
        other.add_study("mine", evaluation={}, runs=runs)
        other.add_answers(runs[0]["key"], [score_data(asked, 1.0, facts={"seconds": 9.0})])
        assert imported(bundle, other)["answers"] == 30
        assert other.answers([runs[0]["key"]], "scores")[0].facts == {"seconds": 9.0}
    with open_results(bundle.parent / "third") as third:
        third.add_study("mine", evaluation={}, runs=runs)
        third.add_answers(runs[0]["key"], [score_data(asked, 0.5)])
        with pytest.raises(
            StoreError,
            match=r'scores.*"length":8.*other results for it \(mean is \[0.5\] here and \[1.0\] in the bundle\)',
        ):
            imported(bundle, third)
        assert third.scores([runs[0]["key"]])[0].mean == 0.5


def test_the_newer_list_of_runs_wins(bundle: Path, tmp_path: Path) -> None:
    with open_results(tmp_path / "other") as other, open_results(tmp_path / "one") as store:
        imported(bundle, other)
        imported(bundle, store)
        fill(store, seeds=4)  # one seed more
        export_bundle(store, "made", tmp_path / "newer.zip")
        assert imported(tmp_path / "newer.zip", other)["runs"] == 2
        assert len(other.runs("made")) == 8
        assert set(imported(bundle, other).values()) == {0}
        assert len(other.runs("made")) == 8
        assert dump(other) == dump(store)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["runs", "answers"])
def test_a_kill_leaves_the_store_as_it_was(bundle: Path, where: str, tmp_path: Path, table: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from lengthwise.exchange.bundle import opened_bundle\n"
        "from lengthwise.store import open_store, transfer\n"
        "from pathlib import Path\n"
        "insert = transfer.insert_rows\n"
        "def killed(connection, table, rows):\n"
        "    count = insert(connection, table, rows)\n"
        f"    if table.name == {table!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return count\n"
        "with opened_bundle(Path(sys.argv[1])) as bundle, open_store(sys.argv[2]) as store:\n"
        "    transfer.insert_rows = killed\n"
        "    bundle.add_to(store)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(bundle), where], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    with open_store(where) as other:
        assert (other.studies(), other.runs()) == ([], [])
        assert imported(bundle, other)["runs"] == 6


# ---- weights ----------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[tuple[Store, Path]]:
    """A store with the weights of two of its six runs, and a bundle."""
    with open_results(tmp_path / "trained") as store:
        for run in fill(store)[:2]:
            weights = store.files.run_folder(run["key"]) / WEIGHTS
            weights.parent.mkdir(parents=True)
            weights.write_text(f"weights of {run['key']}")
        export_bundle(store, "made", tmp_path / "trained.zip")
        yield store, tmp_path / "trained.zip"


def weights_of(store: Store) -> dict[str, str]:
    return {file.parent.name: file.read_text() for file in store.files.path.glob(f"runs/*/{WEIGHTS}")}


@pytest.mark.parametrize("address", [False, True])
def test_weights_come_too(
    trained: tuple[Store, Path], tmp_path: Path, address: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, bundle = trained
    place = (f"memory://{tmp_path}", f"sqlite:///{tmp_path}/x.db") if address else (tmp_path / "other", None)
    with open_results(place[0], store=place[1]) as other:
        first = store.runs("made")[0].key
        kept = other.files.run_folder(first) / WEIGHTS
        kept.parent.mkdir(parents=True)
        kept.write_text("weights of this machine")
        other.files.send(first)
        assert imported(bundle, other)["weights"] == 1
        assert weights_of(other) == weights_of(store) | {first: "weights of this machine"}
        assert other.files.trained([run.key for run in other.runs()]) == weights_of(store).keys()
        assert set(imported(bundle, other).values()) == {0}
    monkeypatch.setenv(
        "LENGTHWISE_CACHE", str(tmp_path / "cache")
    )  # another machine, for which the address has the weights
    with open_results(place[0], store=place[1]) as other:
        export_bundle(other, "made", tmp_path / "again.zip")
        assert len(parts(tmp_path / "again.zip")) == 4
    export_bundle(store, "made", tmp_path / "rows.zip", weights=False)
    assert parts(tmp_path / "rows.zip").keys() == {DATABASE, SUMS}


def test_weights_go_away_if_the_rows_are_refused(trained: tuple[Store, Path], tmp_path: Path) -> None:
    runs = [run_data("NoPE", 0)]
    with open_results(tmp_path / "other") as other:
        other.add_study("mine", evaluation={}, runs=runs)
        other.add_answers(runs[0]["key"], [score_data(runs[0]["questions"][0], 0.5)])
        with pytest.raises(StoreError, match="other results for it"):
            imported(trained[1], other)
        assert weights_of(other) == {}


def test_weights_that_cannot_be_written(trained: tuple[Store, Path], tmp_path: Path) -> None:
    with open_results(tmp_path / "other") as other:
        (tmp_path / "other" / "runs").write_text("mine")
        with pytest.raises(
            ConfigError, match=r"trained.zip cannot be imported: .*Not a directory; nothing was imported"
        ):
            imported(trained[1], other)
        assert other.studies() == []


# ---- files that are no bundles ----------------------------------------------------------------------------------


def refused(file: Path, says: str) -> None:
    with pytest.raises(ConfigError) as raised, opened_bundle(file):
        pass
    text = str(raised.value)
    assert says in text and text.endswith("; nothing was imported") and "\n" not in text, text


@pytest.mark.parametrize("name", [DATABASE, "weights/0123456789abcdef.safetensors"])
def test_a_modified_file_is_named(bundle: Path, name: str) -> None:
    files = parts(bundle) | {"weights/0123456789abcdef.safetensors": b"weights"}
    pack(bundle, with_sums(files))
    with opened_bundle(bundle):
        pass
    refused(pack(bundle, with_sums(files) | {name: b"x"}), f"{name} was damaged or modified")
    without = {other: content for other, content in with_sums(files).items() if other != name}
    refused(pack(bundle, without), name)
    refused(pack(bundle, with_sums(without) | {name: b"x"}), name)


@pytest.mark.parametrize(
    "name",
    [
        *("../results.db", "/etc/passwd", "code.py", "weights/", "weights/../x.safetensors", "序列"),
        *("weights/0123456789ABCDEF.safetensors", "weights/0123456789abcdef.pt"),
    ],
)
def test_other_names_are_refused(bundle: Path, name: str) -> None:
    refused(pack(bundle, with_sums(parts(bundle) | {name: b"x"})), "which no bundle has")


def test_other_zip_files(bundle: Path, tmp_path: Path) -> None:
    files = parts(bundle)
    refused(pack(bundle, {}), "so it is not a bundle")
    for text in (b"", b"x", b"x  y", b"\xff"):
        refused(pack(bundle, files | {SUMS: text}), "")
    refused(
        pack(bundle, with_sums(files | {DATABASE: b"no database" * 100})), "its results.db is not a SQLite database"
    )
    with open_results(tmp_path / "empty"):
        pass
    empty = (tmp_path / "empty" / "results.db").read_bytes()
    refused(pack(bundle, with_sums(files | {DATABASE: empty})), "it has 0 studies instead of one")
    with sqlite3.connect(tmp_path / "empty" / "results.db") as database:
        database.execute("UPDATE lengthwise_schema SET version_num = '99'")
    database.close()
    newer = (tmp_path / "empty" / "results.db").read_bytes()
    refused(pack(bundle, with_sums(files | {DATABASE: newer})), "its results.db has revision 99 of the tables")


def test_damaged_files(store: Store, bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    for content in (b"", b"PK", b"no zip at all" * 100, whole[: len(whole) // 2], whole[200:]):
        bundle.write_bytes(content)
        refused(bundle, "damaged (")
    messages = []
    for place in range(0, len(whole), 61):
        bundle.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            with opened_bundle(bundle) as found:  # the byte was one that no program reads, such as the date of a file
                assert found.study == "made"
        except ConfigError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert all(text.endswith("; nothing was imported") and "\n" not in text for text in messages)
    refused(tmp_path / "none.zip", "(No such file or directory)")
    refused(tmp_path, "(Is a directory)")


def test_every_table_is_in_the_bundle() -> None:
    """A table that is added to the store has to be added to bundles too, or named here."""
    from lengthwise.store.schema import tables

    assert set(tables.tables) - set(TABLES) == {"lengthwise", "lengthwise_schema"}
