"""Bundles: from one store to another, on every pair of databases, and files that somebody has made or modified."""

import hashlib
import json
import math
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.analysis import findings
from lengthwise.config import ConfigError
from lengthwise.exchange.bundles import checked_bundle, layout, write_bundle
from lengthwise.report import render
from lengthwise.store import Store, StoreError, open_results, open_store, worker_name
from lengthwise.store.transfer import TABLES
from tests.exchange.conftest import fill, run_data, score_data
from tests.postgres_server import needs_postgres, postgres
from tests.store.conftest import empty_store

__all__ = ["postgres"]

Files = dict[str, bytes]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
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
        store.add_curve(runs[0]["key"], [point])
        write_bundle(store, "made", folder / "made.zip")
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
    with checked_bundle(file) as found:
        return store.add_study_cells(found.tables())


def parts(file: Path) -> Files:
    with zipfile.ZipFile(file) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def pack(file: Path, files: Files) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return file


def with_hashes(files: Files) -> Files:
    """Return the files with a manifest that fits them, as somebody who modifies a bundle on purpose would write it."""
    manifest = json.loads(files["manifest.json"])
    for name, content in files.items():
        if name in layout.FILES:
            facts = {"rows": content.count(b"\n"), "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            manifest["files"][name] = facts
    return files | {"manifest.json": json.dumps(manifest).encode()}


def with_row(files: Files, name: str, change: Callable[[dict[str, Any]], Any]) -> Files:
    """Return the files with the first row of one changed, and with hashes that fit."""
    first, _, rest = files[name].partition(b"\n")
    row = json.loads(first)
    change(row)
    return with_hashes(files | {name: json.dumps(row).encode() + b"\n" + rest})


# ---- from store to store ----------------------------------------------------------------------------------------


@pytest.mark.medium
def test_the_other_store_has_the_same_rows_and_the_same_page(
    store: Store, bundle: Path, where: str, tmp_path: Path
) -> None:
    with open_store(where) as other:
        added = imported(bundle, other)
        assert added == {name: len(rows) for name, rows in dump(store).items()}
        assert dump(other) == dump(store), "with the times"
        assert any(row["loss"] == math.inf and row["gradient_norm"] is None for row in dump(other)["curve"])
        assert render(findings(other, "made")) == render(findings(store, "made"))
        assert set(imported(bundle, other).values()) == {0}, "the second time, nothing is new"
        assert dump(other) == dump(store)
        write_bundle(other, "made", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_runs_that_others_start_from_or_are_compared_with_come_too(tmp_path: Path) -> None:
    with open_results(tmp_path / "one") as store:
        _fill_lineage(store)
        write_bundle(store, "made", tmp_path / "made.zip")
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
    store.add_probe(key, {"probe": "own", "against": against["key"]}, {"value": 1.0}, {})


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
        assert (added["runs"], added["scores"]) == (0, 18)
        assert other.progress("mine")["done"] == 6
        ours = {run.key: run.created for run in other.runs("mine")}
        assert other.runs("made")[0].finished == store.runs("made")[0].finished
        assert min(ours.values()) > store.runs("made")[0].created, "the run was added here at another time"


def test_other_results_are_refused_and_equal_ones_stay(store: Store, bundle: Path, where: str) -> None:
    runs = [run_data("NoPE", 0)]
    with open_store(where) as other:
        other.add_study("mine", evaluation={}, runs=runs)
        asked = runs[0]["asked"][0]
        other.add_scores(runs[0]["key"], [score_data(runs[0], asked, 1.0, seconds=9.0)])
        other.add_probe(runs[0]["key"], {"probe": "own probe", "length": 8}, {"value": 0.75}, {})
        with pytest.raises(
            StoreError, match=r"own probe.*has other results for it \(result is .*0.75.* here and .*0.5"
        ):
            imported(bundle, other)
        assert [study.name for study in other.studies()] == ["mine"]
        assert len(other.scores([runs[0]["key"]])) == 1
        other.drop([runs[0]["key"]])
        other.add_study("mine", evaluation={}, runs=runs)
        other.add_scores(runs[0]["key"], [score_data(runs[0], asked, 1.0, seconds=9.0)])
        assert imported(bundle, other)["scores"] == 17
        assert next(iter(other.scores([runs[0]["key"]]))).seconds == 9.0
    with open_results(bundle.parent / "third") as third:
        third.add_study("mine", evaluation={}, runs=runs)
        third.add_scores(runs[0]["key"], [score_data(runs[0], asked, 0.5)])
        with pytest.raises(
            StoreError, match=r'"length":8.*other results for it \(mean is 0.5 here and 1.0 in the bundle\)'
        ):
            imported(bundle, third)
        assert third.scores([runs[0]["key"]])[0].mean == 0.5


def test_the_newer_list_of_runs_wins(bundle: Path, tmp_path: Path) -> None:
    with open_results(tmp_path / "other") as other, open_results(tmp_path / "one") as store:
        imported(bundle, other)
        imported(bundle, store)
        fill(store, seeds=4)  # one seed more
        write_bundle(store, "made", tmp_path / "newer.zip")
        assert imported(tmp_path / "newer.zip", other)["runs"] == 2
        assert len(other.runs("made")) == 8
        assert set(imported(bundle, other).values()) == {0}
        assert len(other.runs("made")) == 8
        assert dump(other) == dump(store)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["runs", "scores", "curve"])
def test_a_kill_leaves_the_store_as_it_was(bundle: Path, where: str, tmp_path: Path, table: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from lengthwise.exchange.bundles import checked_bundle\n"
        "from lengthwise.store import open_store, transfer\n"
        "from pathlib import Path\n"
        "insert = transfer._insert\n"
        "def killed(connection, table, rows):\n"
        "    count = insert(connection, table, rows)\n"
        f"    if table.name == {table!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return count\n"
        "transfer._insert = killed\n"
        "with checked_bundle(Path(sys.argv[1])) as bundle, open_store(sys.argv[2]) as store:\n"
        "    store.add_study_cells(bundle.tables())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(bundle), where], check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    with open_store(where) as other:
        assert (other.studies(), other.runs()) == ([], [])
        assert imported(bundle, other)["runs"] == 6


# ---- files that are no bundles ----------------------------------------------------------------------------------


def refused(file: Path, says: str) -> None:
    with pytest.raises(ConfigError) as raised, checked_bundle(file):
        pass
    text = str(raised.value)
    assert says in text and text.endswith("; nothing was imported") and "\n" not in text, text


@pytest.mark.parametrize("name", [*layout.FILES, "manifest.json"])
def test_a_modified_file_is_named(bundle: Path, name: str) -> None:
    files = parts(bundle)
    content = files[name].replace(b"1", b"2", 1)
    refused(
        pack(bundle, files | {name: content}),
        "manifest.json" if name == "manifest.json" else f"{name} has been modified",
    )
    refused(pack(bundle, files | {name: files[name] + b"{}\n"}), name)
    refused(pack(bundle, {other: part for other, part in files.items() if other != name}), f"{name} is missing")


def test_other_names_links_and_duplicates(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = parts(bundle)
    for name in ("../runs.jsonl", "/etc/passwd", "code.py", "runs.jsonl/", "folder/", "RUNS.jsonl", "序列", "x" * 5000):
        refused(pack(bundle, files | {name: b"x"}), "a bundle has only asked.jsonl, curve.jsonl")
    with zipfile.ZipFile(pack(bundle, files), "a") as opened, pytest.warns(UserWarning, match="Duplicate"):
        opened.writestr("runs.jsonl", files["runs.jsonl"])
    refused(bundle, "contains 'runs.jsonl' twice")
    with zipfile.ZipFile(bundle, "w") as opened:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = ((stat.S_IFLNK if name == "runs.jsonl" else stat.S_IFREG) | 0o644) << 16
            opened.writestr(entry, content)
    refused(bundle, "'runs.jsonl' is a link or a folder")
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_LZMA) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    refused(bundle, "compressed in another way than by deflate")
    monkeypatch.setattr("lengthwise.exchange.bundles.checking.MOST_BYTES", 1000)
    refused(pack(bundle, files), "its files have more than 1,000 bytes")


def test_a_bomb_is_not_unpacked(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of spaces that is a thousand times as large as the bundle, and one whose directory says that it is small."""
    monkeypatch.setattr("lengthwise.exchange.bundles.checking.MOST_OF_LINE", 1 << 16)
    files = parts(bundle)
    refused(pack(bundle, with_hashes(files | {"curve.jsonl": b" " * (1 << 22)})), "a line has no end")
    refused(pack(bundle, files | {"manifest.json": b" " * (1 << 20)}), "manifest.json has more than 65,536 bytes")
    pack(bundle, files | {"curve.jsonl": b" " * 1_234_567})
    small = len(files["curve.jsonl"]).to_bytes(4, "little")
    bundle.write_bytes(bundle.read_bytes().replace((1_234_567).to_bytes(4, "little"), small))
    refused(bundle, "curve.jsonl")


def test_damaged_files(store: Store, bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    for content in (b"", b"PK", b"no zip at all" * 100, whole[: len(whole) // 2], whole[200:]):
        bundle.write_bytes(content)
        refused(bundle, "damaged (")
    messages = []
    for place in range(0, len(whole), 61):
        bundle.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            with checked_bundle(bundle) as found:  # the byte was one that no program reads, such as the date of a file
                assert {name: list(rows) for name, rows in found.tables().items()} == dump(store)
        except ConfigError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert all(text.endswith("; nothing was imported") and "\n" not in text for text in messages)
    refused(tmp_path / "none.zip", "it cannot be read (No such file or directory)")
    refused(tmp_path, "cannot be imported")


def test_manifests(bundle: Path) -> None:
    files = parts(bundle)
    manifest = json.loads(files["manifest.json"])
    for change, says in (
        ({"bundle": 2}, "manifest.json has version 2 of the layout, and this Lengthwise reads version 1"),
        ({"bundle": "1"}, "manifest.json has version '1' of the layout"),
        ({"study": "line\nbreak"}, "manifest.json study is not one line of printable text"),
        ({"study": "other"}, "studies.jsonl, line 1, has another study than the manifest"),
        ({"files": {}}, "manifest.json files lacks studies.jsonl"),
        ({"files": manifest["files"] | {"x.py": {}}}, "manifest.json files has an unknown member 'x.py'"),
        (
            {"files": manifest["files"] | {"runs.jsonl": {"rows": 1, "size": 1, "sha256": "../x"}}},
            "is not a SHA-256 hash",
        ),
    ):
        refused(pack(bundle, files | {"manifest.json": json.dumps(manifest | change).encode()}), says)
    for text in (b"[]", b"{", b"\xff", b"[" * 60_000, b'{"bundle": NaN}'):
        refused(pack(bundle, files | {"manifest.json": text}), "manifest.json ")


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("studies.jsonl", {"name": "other"}, "line 1, has another study than the manifest"),
        ("studies.jsonl", {"created": 1e13}, "whose created is not a time"),
        ("runs.jsonl", {"key": "../../../../etc"}, "key is not a key of 16 hex digits"),
        ("runs.jsonl", {"key": "0" * 16}, "which runs.jsonl lacks"),
        ("runs.jsonl", {"config": "{}  "}, "has a config that is not canonical JSON"),
        ("runs.jsonl", {"config": '{"training": 3}'}, "config"),
        ("runs.jsonl", {"worker": "host:1:x"}, "is not an object with exactly the columns"),
        ("runs.jsonl", {"seed": 2**63}, "more than 64 bits"),
        ("runs.jsonl", {"seed": 1.0}, "whose seed is not of the column's type"),
        ("runs.jsonl", {"label": "a\x00b"}, "whose label is not of the column's type"),
        ("runs.jsonl", {"position": -1}, "has a position that is too large, or below 0"),
        ("study_runs.jsonl", {"study": "other"}, "has another study than the manifest"),
        ("asked.jsonl", {"key": "0" * 16}, "which runs.jsonl lacks"),
        ("scores.jsonl", {"mean": "0.5"}, "whose mean is not of the column's type"),
        ("scores.jsonl", {"mean": True}, "whose mean is not of the column's type"),
        ("scores.jsonl", {"n": 0}, "n is a whole number outside 1"),
        ("scores.jsonl", {"length": 9}, "has another length than its question"),
        ("scores.jsonl", {"out_of_distribution": 1}, "out_of_distribution is not of the column's type"),
        ("curve.jsonl", {"loss": "-Infinity"}, "whose loss is not of the column's type"),
        ("probes.jsonl", {"question": '{"probe": 3}'}, "probe is a number instead of text"),
    ],
)
def test_rows_with_fitting_hashes_are_checked(bundle: Path, name: str, change: dict[str, Any], says: str) -> None:
    files = parts(bundle)
    refused(pack(bundle, with_row(files, name, lambda row: row.update(change))), says)


@pytest.mark.parametrize("name", list(layout.FILES))
def test_no_row_is_there_twice_and_none_lacks_a_column(bundle: Path, name: str) -> None:
    files = parts(bundle)
    first, count = files[name].split(b"\n")[0] + b"\n", files[name].count(b"\n") + 1
    refused(pack(bundle, with_hashes(files | {name: files[name] + first})), f"{name}, line {count}, is a second")
    refused(pack(bundle, with_row(files, name, lambda row: row.pop(next(iter(row))))), "exactly the columns")
    refused(pack(bundle, with_hashes(files | {name: b"[]\n" + files[name]})), f"{name}, line 1, is not an object")
    refused(pack(bundle, with_hashes(files | {name: b"\xff\n" + files[name]})), f"{name}, line 1, ")


def test_every_table_is_in_the_bundle(bundle: Path) -> None:
    """A table that is added to the store has to be added to bundles too, or named here."""
    from lengthwise.store.schema import tables

    assert set(tables.tables) - set(TABLES) == {"lengthwise", "lengthwise_schema"}
    assert set(parts(bundle)) == {"manifest.json", *layout.FILES}
