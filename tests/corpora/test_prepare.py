"""Preparing corpora: what is in them, resuming after a kill, and what stops the preparation."""

import gzip
import hashlib
import json
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lengthwise.config import ConfigError
from lengthwise.corpora import parts, planning
from lengthwise.corpora.manifest import SPLITS
from lengthwise.corpora.prepared import PreparedCorpus
from lengthwise.corpora.tokenizers import open_tokenizer
from tests.corpora.small_corpora import content, documents, json_lines, prepare, story
from tests.corpora.small_tokenizers import saved, word_level


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few documents."""
    monkeypatch.setattr("lengthwise.corpora.sources.files.part_bytes", lambda size: 2000)


def held_out(text: bytes, share: float) -> bool:
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") < share * 2**64


@given(
    numbers=st.lists(st.integers(0, 30), min_size=2, max_size=60),
    share=st.sampled_from([0.1, 0.5]),
    shard=st.sampled_from([300, 1 << 20]),
    tokenizer=st.sampled_from(["bytes", "bpe:300"]),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_corpus_has_each_document_once(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], share: float, shard: int, tokenizer: str
) -> None:
    """Every text that is not empty, once, in order, in the split of its hash, whatever the tokenizer and the shards."""
    folder = tmp_path_factory.mktemp("each")
    texts = ["" if number == 0 else story(number) for number in numbers]
    unique = [text.encode() for text in dict.fromkeys(texts) if text]
    json_lines(folder / "a.jsonl", texts)
    if len(unique) < 2:
        with pytest.raises(ConfigError, match=r"has one document|has no document with text"):
            prepare(folder / "a.jsonl", folder / "out", validation=share)
        return
    manifest = prepare(folder / "a.jsonl", folder / "out", validation=share, shard_bytes=shard, tokenizer=tokenizer)
    corpus = PreparedCorpus(folder / "out")
    train = [text for text in unique if not held_out(text, share)]
    if 0 < len(train) < len(unique):
        assert documents(corpus, "train") == train
        assert documents(corpus, "validation") == [text for text in unique if held_out(text, share)]
    else:  # one document is moved, so that both splits have one
        assert sorted(documents(corpus, "train") + documents(corpus, "validation")) == sorted(unique)
    assert manifest.left_out == {
        reason: count
        for reason, count in (("duplicate", len(texts) - texts.count("") - len(unique)), ("empty", texts.count("")))
        if count
    }
    counted = np.bincount(
        np.concatenate(
            open_tokenizer(str(folder / "out") if tokenizer != "bytes" else "bytes").encode(documents(corpus, "train"))
        ),
        minlength=manifest.target_size,
    )
    assert corpus.unigram_counts().tolist() == counted.tolist()
    for name in SPLITS:
        sizes = [shard.tokens * np.dtype(manifest.dtype).itemsize for shard in manifest.split(name).shards]
        assert all(
            size <= shard or part.documents == 1 for size, part in zip(sizes, manifest.split(name).shards, strict=True)
        )
        assert manifest.split(name).bytes == sum(map(len, documents(corpus, name)))


def test_documents_without_tokens_are_empty(tmp_path: Path) -> None:
    """Of spaces alone, a tokenizer that divides at spaces makes nothing."""
    json_lines(tmp_path / "a.jsonl", [*(story(n) for n in range(30)), " \n ", "  "])
    tokenizer = saved(tmp_path / "words", word_level())
    manifest = prepare(tmp_path / "a.jsonl", tmp_path / "out", tokenizer=str(tokenizer))
    assert manifest.left_out == {"empty": 2}
    assert PreparedCorpus(tmp_path / "out").lengths("train").min() > 0


def test_documents_of_one_origin_stay_together(tmp_path: Path) -> None:
    rows = [{"content": story(n), "repo": f"repo{n % 20}"} for n in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    prepare(tmp_path / "a.jsonl", tmp_path / "out", validation=0.4, field="content", origin="repo")
    corpus = PreparedCorpus(tmp_path / "out")
    repos = [{text.split()[-1] for text in map(bytes.decode, documents(corpus, name))} for name in SPLITS]
    assert len(repos[0]) + len(repos[1]) == 200
    groups = [{int(number.strip(".")) % 20 for number in numbers} for numbers in repos]
    assert groups[0]
    assert groups[1]
    assert groups[0].isdisjoint(groups[1])


def test_files_are_documents_and_their_names_decide(tmp_path: Path) -> None:
    source = tmp_path / "texts"
    source.mkdir()
    for n in range(20):
        (source / f"{n}.txt").write_text(story(n))
    prepare(source, tmp_path / "out", validation=0.3)
    names = [f"{n}.txt" for n in range(20) if held_out(f"{n}.txt".encode(), 0.3)]
    texts = [story(int(name.removesuffix(".txt"))).encode() for name in sorted(names)]
    assert documents(PreparedCorpus(tmp_path / "out"), "validation") == texts


def test_every_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    for n in range(3):
        json_lines(tmp_path / f"{n}.jsonl.gz", [story(k) for k in range(n, 150, 2)])
    found = []
    for workers in (1, 3):
        prepare(
            tmp_path,
            tmp_path / f"out{workers}",
            glob="*.jsonl.gz",
            tokenizer="bpe:400",
            workers=workers,
            shard_bytes=2000,
        )
        found.append(content(tmp_path / f"out{workers}"))
    assert found[0] == found[1]
    assert len(found[0]) > 8, "several shards"
    assert not list(tmp_path.glob("*.unfinished"))


def test_the_identity_is_that_of_documents_tokenizer_and_split(tmp_path: Path) -> None:
    first = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(60)])
    (tmp_path / "copy").mkdir()
    copy = json_lines(tmp_path / "copy" / "b.jsonl.gz", [*(story(n) for n in range(60)), "", story(3)])
    base = prepare(first, tmp_path / "1", validation=0.1).sha256
    assert prepare(copy, tmp_path / "2", validation=0.1, shard_bytes=100).sha256 == base
    assert prepare(first, tmp_path / "3", validation=0.3).sha256 != base
    assert prepare(first, tmp_path / "4", validation=0.1, tokenizer="bpe:300").sha256 != base
    fewer = json_lines(tmp_path / "c.jsonl", [story(n) for n in range(59)])
    assert prepare(fewer, tmp_path / "5", validation=0.1).sha256 != base


def test_training_a_tokenizer_gives_the_same_one_in_every_process(tmp_path: Path) -> None:
    json_lines(tmp_path / "a.jsonl", [story(n) for n in range(300)])
    code = (
        "import hashlib, json, sys; from lengthwise.corpora.tokenizers import train\n"
        "texts = [json.loads(line)['text'].encode() for line in open(sys.argv[1])]\n"
        "print(train(texts, 500).sha256)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a.jsonl")]
    found = {subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(found) == 1


# ---- errors -------------------------------------------------------------------------------------------------------


def test_invalid_input_leaves_nothing_behind(tmp_path: Path) -> None:
    cases: dict[str, tuple[bytes, dict[str, Any], str]] = {
        "latin1.txt": (
            b"caf\xe9",
            {"tokenizer": "bpe:300"},
            r"latin1.txt: it is not UTF-8 text \(byte 0xe9 at offset 3\)",
        ),
        "binary.txt": (b"\0\1", {}, "binary.txt: it is not text"),
        "field.jsonl": (b'{"txt": "a"}', {}, "field.jsonl, line 1: it has no field 'text'; did you mean 'txt'"),
        "empty.txt": (b"", {}, r"has no document with text \(1 empty\)"),
        "one.txt": (b"one", {}, "has one document"),
        "cut.jsonl.gz": (gzip.compress(b'{"text": "a"}\n')[:-4], {}, "is damaged"),
        "good.txt": (b"text", {"validation": 0.0}, "above 0 and below 1, got 0.0"),
        "good2.txt": (b"text", {"workers": 0}, "workers must be at least 1"),
        "good3.txt": (b"text", {"tokenizer": "bpe:12"}, "from 257 to 1,048,576 tokens, got 'bpe:12'"),
        "good4.txt": (b"text", {"tokenizer": "bpe:many"}, "write bpe:4096"),
        "good5.txt": (b"text", {"tokenizer": "byte"}, "did you mean 'bytes'"),
    }
    for name, (data, options, says) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=says) as caught:
            prepare(tmp_path / name, tmp_path / "out", **options)
        assert "\n" not in str(caught.value)
        if name != "one.txt":  # this one was read to its end, which is worth keeping
            assert not list(tmp_path.glob("out*")), name
        assert not (tmp_path / "out").exists()
        for left in (tmp_path / "out.unfinished").rglob("*"):
            if left.is_file():
                left.unlink()


def test_invalid_documents_can_be_left_out(tmp_path: Path) -> None:
    lines = [json.dumps({"text": story(n)}) for n in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"other": 1}', "no json"]))
    with pytest.raises(ConfigError, match="or leave such documents out with --skip-invalid"):
        prepare(tmp_path / "a.jsonl", tmp_path / "out")
    manifest = prepare(tmp_path / "a.jsonl", tmp_path / "out", skip_invalid=True)
    assert manifest.left_out == {"invalid": 2}
    assert manifest.train.documents + manifest.validation_split.documents == 30


def test_an_error_in_a_worker_is_one_line(tmp_path: Path) -> None:
    json_lines(tmp_path / "a.jsonl", [story(n) for n in range(60)])
    (tmp_path / "z.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match=r"z.txt: it is not UTF-8 text") as caught:
        prepare(tmp_path, tmp_path / "out", workers=2, tokenizer=str(trained(tmp_path)), glob="[az].*")
    assert "\n" not in str(caught.value)
    (tmp_path / "z.txt").write_bytes("café".encode())
    prepare(tmp_path, tmp_path / "out", workers=2, tokenizer=str(trained(tmp_path)), glob="[az].*")


def trained(folder: Path) -> Path:
    if not (folder / "tok").exists():
        json_lines(folder / "source.jsonl", [story(n) for n in range(60)])
        prepare(folder / "source.jsonl", folder / "tok", tokenizer="bpe:300")
    return folder / "tok"


def test_outputs_that_are_something_else(tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(30)])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    for name, says in {"file": "is a file", "folder": "is a folder with other files"}.items():
        with pytest.raises(ConfigError, match=says):
            prepare(source, tmp_path / name)
    for output in (tmp_path / "corpus", tmp_path / "empty" / ".." / "a" / "b", tmp_path):
        with pytest.raises(ConfigError, match=r"lies in the source|is a folder with other files"):
            prepare(tmp_path, output)
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "file", "folder", "empty"}
    assert (tmp_path / "folder" / "mine").read_text() == "mine"
    prepare(source, tmp_path / "empty")
    assert (tmp_path / "empty" / "manifest.json").exists()


def test_memory_of_a_plan() -> None:
    """About 40 bytes for each document, as the module says, and not all of the index."""
    count, chance = 200_000, np.random.default_rng(0)
    index = np.zeros(count, parts.INDEX)
    index["digest"] = np.frombuffer(chance.bytes(16 * count), "V16")
    index["origin"], index["tokens"] = chance.integers(0, 2**63, count), 5
    rows = np.split(index, 50)
    job = SimpleNamespace(
        tokenizer=open_tokenizer("bytes"), index=lambda key: rows[int(key)].copy(), left_out=lambda key: Counter()
    )
    tracemalloc.start()
    planned = planning.plan(job, list(map(str, range(50))), 0.01, 1 << 29)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(planned.splits["train"].lengths) > 0.9 * count
    assert 20 * count < peak < 60 * count
