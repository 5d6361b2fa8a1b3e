"""Sources: the formats of files with their oddities, and what makes a source unusable."""

import bz2
import gzip
import json
import lzma
import os
import pickle
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError
from lengthwise.corpora.catalog import CATALOG
from lengthwise.corpora.documents import Document
from lengthwise.corpora.sources import Invalid, SourceOptions, base, hugging_face, open_source
from tests.corpora.small_corpora import json_lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}


def records(path: Path | str, **options: Any) -> list[Document | Invalid]:
    source = open_source(str(path), SourceOptions(**options))
    return [record for part in source.parts() for record in source.read(part)]


def texts(path: Path | str, **options: Any) -> list[bytes]:
    found = records(path, **options)
    assert all(isinstance(record, Document) for record in found), found
    return [record.data for record in found if isinstance(record, Document)]


def problem(path: Path, **options: Any) -> str:
    (found,) = (record for record in records(path, **options) if isinstance(record, Invalid))
    return f"{found.name}: {found.problem}"


class TestPlainText:
    def test_a_folder_sorted_without_hidden_files(self, tmp_path: Path) -> None:
        files = {"b.txt": b"b\r\n", "a/c.txt": b"\xef\xbb\xbfc", ".hidden": b"h", "a/.git/x": b"x", "empty": b""}
        for name, data in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        found = records(tmp_path)
        assert [(d.name, d.origin, d.data) for d in found if isinstance(d, Document)] == [
            ("a/c.txt", "a/c.txt", b"c"),
            ("b.txt", "b.txt", b"b\r\n"),
            ("empty", "empty", b""),
        ]
        assert texts(tmp_path, glob="*.txt") == [b"b\r\n"]

    def test_what_is_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(b"PNG\0\0")
        assert problem(tmp_path) == (
            "a.png: it is not text, because it contains a zero byte; unpack an archive, or leave the file out with "
            "--glob"
        )

    def test_a_document_that_is_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(base, "MAX_DOCUMENT", 10)
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * 11))
        (tmp_path / "b.txt").write_bytes(b"b" * 10)
        assert "must have at most" in problem(tmp_path)


class TestJSONLines:
    def test_oddities(self, tmp_path: Path) -> None:
        lines = [
            b'\xef\xbb\xbf{"text": "with a mark"}\r\n', b"\n", b"   \r\n", b'{"text": ""}\n', b'{"text": null}\n',
            b'{"text": "\\u00e9\\n", "other": 1}\n', b'{"other": 1, "text": "no line break at the end"}',
        ]  # fmt: skip
        file = tmp_path / "a.jsonl"
        file.write_bytes(b"".join(lines))
        want = [b"with a mark", b"", b"", "é\n".encode(), b"no line break at the end"]
        assert texts(file) == want
        for name, data in {"a.jsonl.gz": gzip.compress(file.read_bytes()), "a.json": file.read_bytes()}.items():
            (tmp_path / name).write_bytes(data)
            assert texts(tmp_path / name) == want

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            (b'{"txt": "a"}', "no field 'text'; did you mean 'txt'?; its fields are: txt"),
            (b'{"text": 3}', "the field 'text' must be text, got a int"),
            (b'["text"]', "must be a JSON object, got a list"),
            (b'{"text": "a"', "is not a JSON object (Expecting"),
            (b'{"text": "caf\xe9"}', "is not UTF-8 text (byte 0xe9)"),
            (b'{"text": "\\ud800"}', "half of a surrogate pair"),
        ],
    )
    def test_invalid_lines(self, tmp_path: Path, line: bytes, says: str) -> None:
        file = tmp_path / "a.jsonl"
        file.write_bytes(b'{"text": "good"}\n' + line + b'\n{"text": "good too"}\n')
        assert [r.data for r in records(file) if isinstance(r, Document)] == [b"good", b"good too"]
        assert problem(file).startswith("a.jsonl, line 2: ")
        assert says in problem(file)

    def test_fields_of_fields(self, tmp_path: Path) -> None:
        rows = [{"meta": {"text": "a", "repo": "r"}}, {"meta.text": "b", "meta": {"repo": None}}]
        file = tmp_path / "a.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        found = records(file, field="meta.text", origin="meta.repo")
        assert [(d.data, d.origin) for d in found if isinstance(d, Document)] == [(b"a", "r"), (b"b", "")]
        assert "no field 'meta.txt'" in problem(json_lines(tmp_path / "b.jsonl", ["c"]), field="meta.txt")

    @given(sizes=st.lists(st.integers(0, 40), max_size=12), part=st.integers(1, 60))
    def test_ranges_of_a_file_have_every_line_once(
        self, tmp_path_factory: pytest.TempPathFactory, sizes: list[int], part: int
    ) -> None:
        file = tmp_path_factory.getbasetemp() / "ranges.jsonl"
        want = [f"{n}" + "x" * size for n, size in enumerate(sizes)]
        json_lines(file, want)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lengthwise.corpora.sources.files.part_bytes", lambda size: part)
            assert texts(file) == [text.encode() for text in want]


class TestParquet:
    def test_row_groups_and_nested_fields(self, tmp_path: Path) -> None:
        rows = [{"text": f"t{n}", "meta": {"repo": f"r{n // 2}"}} for n in range(7)]
        pq.write_table(
            pa.Table.from_pylist([*rows, {"text": None, "meta": None}]), tmp_path / "a.parquet", row_group_size=3
        )
        found = records(tmp_path / "a.parquet", origin="meta.repo")
        assert [d.data for d in found[:7] if isinstance(d, Document)] == [row["text"].encode() for row in rows]
        assert [d.origin for d in found[:7] if isinstance(d, Document)] == [row["meta"]["repo"] for row in rows]
        assert isinstance(found[7], Invalid)
        assert found[7].name == "a.parquet, row 8"

    def test_rows_that_are_not_utf_8(self, tmp_path: Path) -> None:
        text = pa.array([b"good", b"\xff\xfe", b"good too"]).cast(pa.binary())
        column = pa.Array.from_buffers(pa.string(), 3, text.buffers())  # as other writers leave it
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        found = records(tmp_path / "a.parquet")
        assert [d.data for d in found if isinstance(d, Document)] == [b"good", b"good too"]
        assert found[1] == Invalid("a.parquet, row 2", "it is not UTF-8 text")

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"text": ["a" * 1000, "b"] * 100}), tmp_path / "good.parquet", compression=None)
        with pytest.raises(ConfigError, match=r"has no column 'txt'; did you mean 'text'\?; its columns are: text"):
            records(tmp_path / "good.parquet", field="txt")
        data = (tmp_path / "good.parquet").read_bytes()
        (tmp_path / "cut.parquet").write_bytes(data[:-10])
        (tmp_path / "page.parquet").write_bytes(data[:4] + b"\xff" * 40 + data[44:])
        (tmp_path / "empty.parquet").write_bytes(b"")
        for name in ("cut", "page", "empty"):
            with pytest.raises(ConfigError, match=f"{name}.parquet is not a readable parquet file") as caught:
                records(tmp_path / f"{name}.parquet")
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(tmp_path: Path, suffix: str) -> None:
    """Files may consist of several frames, as tools that compress in parallel write them."""
    compress = COMPRESS[suffix]
    (tmp_path / f"a.txt.{suffix}").write_bytes(compress(b"one ") + compress(b"text"))
    (tmp_path / f"b.jsonl.{suffix}").write_bytes(compress(b'{"text": "one"}\n{"te') + compress(b'xt": "two"}\n'))
    assert texts(tmp_path) == [b"one text", b"one", b"two"]


def test_a_large_window_of_zstd(tmp_path: Path) -> None:
    """As `zstd --long=31` writes it, which the published comments of Reddit need."""
    options = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.content_size_flag: 0}
    with zstd.open(tmp_path / "a.txt.zst", "wb", options=options) as file:
        file.write(b"text")
    assert texts(tmp_path / "a.txt.zst") == [b"text"]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["half", "plain"])
def test_damaged_compressed_files(tmp_path: Path, suffix: str, damage: str) -> None:
    """A truncated file never counts as a shorter text, and one that is not compressed is not text."""
    text = "".join(
        json.dumps({"text": str(zlib.crc32(bytes([n % 256, n // 256])))}) + "\n" for n in range(5000)
    ).encode()
    data = COMPRESS[suffix](text)
    file = tmp_path / f"a.jsonl.{suffix}"
    file.write_bytes(data[: len(data) // 2] if damage == "half" else text)
    with pytest.raises(ConfigError, match=rf"a.jsonl.{suffix} is damaged: .*; copy it again") as caught:
        records(file)
    assert "\n" not in str(caught.value)


def test_parts_depend_on_the_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.corpora.sources.files.part_bytes", lambda size: 100)
    for n in range(10):
        (tmp_path / f"{n}.txt").write_text("x" * 40)
    source = open_source(str(tmp_path), SourceOptions())
    parts = source.parts()
    assert [[piece.file for piece in part] for part in parts][:2] == [
        ["0.txt", "1.txt", "2.txt"],
        ["3.txt", "4.txt", "5.txt"],
    ]
    states = [source.state(part) for part in parts]
    os.utime(tmp_path / "4.txt", ns=(1, 1))
    again = open_source(str(tmp_path), SourceOptions())
    assert [new == old for new, old in zip([again.state(p) for p in again.parts()], states, strict=True)] == [
        True, False, True, True,
    ]  # fmt: skip


def test_sources_that_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases = {
        str(tmp_path / "gone"): "there is no file or folder",
        str(tmp_path / "empty"): "no file in .* matches",
        " ": "there is no source",
        "python:manul": "did you mean 'manual'",
        "hf:": "names no dataset",
    }
    for text, says in cases.items():
        with pytest.raises(ConfigError, match=says) as caught:
            open_source(text, SourceOptions())
        assert "\n" not in str(caught.value)


class TestHuggingFace:
    def test_a_copy_of_a_dataset(self, tmp_path: Path) -> None:
        for n in range(2):
            json_lines(tmp_path / f"{n}.jsonl", [f"text {n} {k}" for k in range(3)])
        source = open_source(f"hf:{tmp_path}", SourceOptions())
        assert len(source.parts()) == 2
        assert texts(f"hf:{tmp_path}") == [f"text {n} {k}".encode() for n in range(2) for k in range(3)]
        with pytest.raises(ConfigError, match=r"cannot be read: .*tst"):
            records(f"hf:{tmp_path}", split="tst")

    def test_a_saved_dataset(self, tmp_path: Path) -> None:
        import datasets

        rows = [{"text": f"t{n}", "more": n, "meta": {"text": f"m{n}"}} for n in range(10)]
        datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "one"))
        datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "dict"))
        want = [row["text"].encode() for row in rows]
        assert texts(f"hf:{tmp_path / 'one'}") == texts(f"hf:{tmp_path / 'dict'}") == want
        assert texts(f"hf:{tmp_path / 'one'}", field="meta.text") == [f"m{n}".encode() for n in range(10)]
        with pytest.raises(ConfigError, match="has no split 'test'; available: train"):
            records(f"hf:{tmp_path / 'dict'}", split="test")
        with pytest.raises(ConfigError, match="has no field 'txt'; did you mean 'text'"):
            records(f"hf:{tmp_path / 'one'}", field="txt")

    def test_without_a_network_it_says_at_once_how_to_go_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        start = time.monotonic()
        with pytest.raises(
            ConfigError, match=r"cannot be read: ConnectError: .*Connection refused; .* or download it: `hf download"
        ) as caught:
            open_source("hf:someone/something", SourceOptions())
        assert time.monotonic() - start < 5
        assert "--local-dir something` on a machine with a network, then `lengthwise tokenize hf:something`" in str(
            caught.value
        )
        assert "\n" not in str(caught.value)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ConfigError, match="offline mode is enabled"):
            open_source("hf:someone/something", SourceOptions())

    def test_a_dataset_of_the_hub_is_fixed_at_its_newest_commit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a hub that is a folder here."""
        import datasets
        import huggingface_hub

        json_lines(tmp_path / "a.jsonl", ["one", "two"])
        calls, load = [], datasets.load_dataset

        def from_folder(*arguments: Any, revision: Any, **options: Any) -> Any:
            calls.append((*arguments, revision))
            return load(str(tmp_path), **options)

        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: SimpleNamespace(sha="c0ffee"))
        monkeypatch.setattr(datasets, "load_dataset", from_folder)
        source = open_source("hf:some/data:part", SourceOptions())
        (part,) = source.parts()
        again = pickle.loads(pickle.dumps(source))  # as a worker receives it
        assert [record.data for record in again.read(part)] == [b"one", b"two"]
        assert calls == [("some/data", "part", "c0ffee")] * 2
        state = source.state(part)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: SimpleNamespace(sha="decaf"))
        assert open_source("hf:some/data:part", SourceOptions()).state(part) != state

    @pytest.mark.parametrize("name", CATALOG)
    def test_published_corpora(self, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Each names its dataset and the command for a machine without a network, with the fields that a copy needs."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        published = CATALOG[name]
        with pytest.raises(ConfigError) as caught:
            open_source(name, SourceOptions())
        assert published.download(published.dataset.rpartition("/")[2]) in str(caught.value)
        assert f"`lengthwise tokenize {published.dataset.rpartition('/')[2]}{published.options}`" in str(caught.value)
        opened = []
        monkeypatch.setattr(
            hugging_face.HuggingFaceSource, "open", classmethod(lambda cls, *given: opened.append(given))
        )
        open_source(name, SourceOptions())
        open_source(name, SourceOptions(field="other"))
        assert [(text, o.field, o.origin) for text, o in opened] == [
            (published.source, published.field, published.origin), (published.source, "other", published.origin)
        ]  # fmt: skip
        (tmp_path / name).write_text("a file of this name")
        assert texts(name) == [b"a file of this name"]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.zst").write_bytes(b"")
    monkeypatch.setitem(sys.modules, zstd.__name__, None)  # type: ignore[arg-type]
    if "." in zstd.__name__:
        monkeypatch.delattr(sys.modules["backports"], "zstd")
    with pytest.raises(ConfigError, match=r"needs the package backports.zstd, .*pip install '\.\[data\]'"):
        records(tmp_path / "a.zst")
    assert base.MAX_DOCUMENT < 1 << 32, "lengths of documents are stored in 32 bits"
