"""Prepared corpora: what is wrong with a damaged one is said by its name, and reading stays within memory."""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.config import ConfigError
from lengthwise.corpora.manifest import is_prepared, read_manifest
from lengthwise.corpora.prepared import PreparedCorpus, damages
from tests.corpora.small_corpora import content, json_lines, prepare, story


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    json_lines(tmp_path / "a.jsonl", [story(n) for n in range(100)])
    prepare(tmp_path / "a.jsonl", tmp_path / "corpus", tokenizer="bpe:300", validation=0.2, shard_bytes=1500)
    return tmp_path / "corpus"


def found(folder: Path) -> list[str]:
    return damages(folder, lambda text, done, total: None)


def test_a_good_corpus(corpus: Path) -> None:
    assert found(corpus) == []
    assert is_prepared(corpus)
    assert not is_prepared(corpus.parent)
    assert len(read_manifest(corpus).train.shards) > 2


def test_every_file_that_is_missing_or_damaged_is_named(corpus: Path) -> None:
    for name, data in content(corpus).items():
        if name == "manifest.json":
            continue
        file = corpus / name
        file.unlink()
        assert found(corpus) == [f"{name} is missing"]
        if not name.startswith("tokenizer"):
            with pytest.raises(ConfigError, match=f"lacks its file {name}; restore it"):
                PreparedCorpus(corpus)
        file.write_bytes(data[:-1])
        if not name.startswith("tokenizer"):
            assert found(corpus) == [f"{name} must have {len(data):,} bytes, got {len(data) - 1:,}"]
            with pytest.raises(ConfigError, match=f"{name} is damaged: it must have .* bytes, got") as caught:
                PreparedCorpus(corpus)
            assert "\n" not in str(caught.value)
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        assert found(corpus) == [f"{name} has another SHA-256 than manifest.json says"]
        file.write_bytes(data)
    assert found(corpus) == []


def test_numbers_that_are_no_tokens_are_noticed_while_reading(corpus: Path) -> None:
    name = "train-00001.tokens"
    (corpus / name).write_bytes(b"\xff" * (corpus / name).stat().st_size)
    opened = PreparedCorpus(corpus)
    first = opened.manifest.train.shards[0].tokens
    reader = opened.reader("train")
    reader.read(np.array([0]), 3)
    with pytest.raises(ConfigError, match=rf"{name} is damaged: it contains a number that is no token"):
        reader.read(np.array([0, first]), 3)


def test_a_shard_that_disappears_after_opening(corpus: Path) -> None:
    opened = PreparedCorpus(corpus)
    (corpus / "train-00000.tokens").unlink()
    with pytest.raises(ConfigError, match=r"cannot read the shard .*train-00000.tokens"):
        opened.reader("train").read(np.array([0]), 3)


def test_lengths_that_do_not_add_up(corpus: Path) -> None:
    file = corpus / "train.lengths"
    lengths = np.fromfile(file, "<u4")
    lengths[0] += 1
    lengths.tofile(file)
    with pytest.raises(ConfigError, match=r"train.lengths is damaged: its lengths are not those of the shards"):
        PreparedCorpus(corpus).lengths("train")


def test_another_tokenizer_is_refused(corpus: Path) -> None:
    file = corpus / "tokenizer_config.json"
    file.write_text('{"bos_token": null}')
    with pytest.raises(ConfigError, match="is not the one that prepared the corpus"):
        _ = PreparedCorpus(corpus).tokenizer


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"format": "lengthwise corpus 9"},
            "has the format 'lengthwise corpus 9', but this version of lengthwise reads",
        ),
        ({"bos": 3}, "is damaged: its checksum is not that of its content"),
    ],
)
def test_a_changed_manifest(corpus: Path, change: dict[str, Any], says: str) -> None:
    file = corpus / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError, match=says) as caught:
        PreparedCorpus(corpus)
    assert "\n" not in str(caught.value)


def test_the_identity_does_not_depend_on_the_format_of_the_manifest(tmp_path: Path) -> None:
    """It is in the keys of runs: this is the hash that the first version wrote for these documents."""
    json_lines(tmp_path / "a.jsonl", [story(n) for n in range(100)])
    manifest = prepare(tmp_path / "a.jsonl", tmp_path / "corpus", validation=0.2)
    assert (
        manifest.sha256
        == read_manifest(tmp_path / "corpus").sha256
        == ("b2d1ada259e38cfa607762cccbf15b7593ffa1f771e8f898c2752a81f402c587")
    )


@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_read(tmp_path: Path) -> None:
    """A corpus of 200 MB, of which every page is read."""
    size, count = 1_000_000, 200
    texts = (bytes([97 + n % 26]) * size + str(n).encode() for n in range(count))
    folder = tmp_path / "texts"
    folder.mkdir()
    for n, text in enumerate(texts):
        (folder / f"{n:03}.txt").write_bytes(text)
    prepare(folder, tmp_path / "corpus")
    opened = PreparedCorpus(tmp_path / "corpus")
    reader = opened.reader("train")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    starts = np.arange(0, opened.manifest.train.tokens - 5000, 4096)
    sizes = []
    for first in range(0, len(starts), 100):
        rows = starts[first : first + 100]
        reader.read(rows, 1000)
        sizes.append(resident())
    assert max(sizes) - sizes[0] < 100e6
