"""`lengthwise tokenize`: prepare a corpus, show its documents, verify it."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpora.small_corpora import content, json_lines, story

Call = Callable[..., Any]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return json_lines(tmp_path / "a.jsonl", [*(story(n) for n in range(60)), "", story(5)])


def test_a_corpus_from_the_command_line(here: Call, source: Path, tmp_path: Path) -> None:
    ran = here("tokenize", source, "--output", tmp_path / "out", "--tokenizer", "bpe:300", "--validation", 0.2)
    assert ran.code == 0, ran.err
    assert "left out: 1 duplicate, 1 empty" in ran.out
    assert re.search(r"tokenizer bpe:300: 2[6-9]\d token IDs", ran.out), "the text has too few pairs for 300"
    assert f"lengthwise compare rope alibi --text {tmp_path / 'out'}" in ran.out
    before = content(tmp_path / "out")
    again = here("tokenize", source, "--output", tmp_path / "out", "--tokenizer", "bpe:300", "--validation", 0.2)
    assert (again.code, again.out) == (0, ran.out)
    assert content(tmp_path / "out") == before
    assert (
        here("tokenize", tmp_path / "out", "--verify").out
        == f"{tmp_path / 'out'}: every file has its size and its SHA-256\n"
    )
    ran = here("sample", f"text:path={tmp_path / 'out'}", "--length", 4, "--count", 1)
    assert ran.code == 0, ran.err
    assert "<BOS>" in ran.out
    assert "length 4 tokens" in ran.out
    (tmp_path / "out" / "train-00000.tokens").write_bytes(b"")
    ran = here("tokenize", tmp_path / "out", "--verify")
    assert ran.code == 2
    assert "train-00000.tokens must have" in ran.err
    assert ran.err.count("\n") == 1


def test_a_dry_run_shows_documents_and_writes_nothing(here: Call, source: Path, tmp_path: Path) -> None:
    ran = here("tokenize", source, "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"a.jsonl, line 1: {len(story(0))} bytes\n  {story(0).strip()}")
    assert ran.out.endswith("\nnothing was written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    hello = json_lines(tmp_path / "b.jsonl", ["hello"])
    assert "line 1: 5 bytes\n" in here("tokenize", hello, "--dry-run", "--tokenizer", "bpe:300").out


def test_an_output_that_is_a_link_to_a_folder_elsewhere(here: Call, source: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "scratch")
    ran = here("tokenize", source, "--output", tmp_path / "link")
    assert ran.code == 0, ran.err
    assert (tmp_path / "scratch" / "manifest.json").exists()
    assert (tmp_path / "link").is_symlink()


def test_what_cannot_be_prepared(here: Call, source: Path, tmp_path: Path) -> None:
    cases = [
        ([source], "tokenize needs a folder for the corpus: --output FOLDER"),
        ([source, "--output", ""], "--output FOLDER"),
        ([source, "--output", tmp_path / "o", "--field", "txt"], "no field 'txt'; did you mean 'text'"),
        ([source, "--output", tmp_path / "o", "--workers", 0], "workers must be at least 1"),
        ([source, "--output", tmp_path / "o", "--validation", 1], "above 0 and below 1"),
        ([source, "--output", "postgresql://u:p@h/d"], "must be a folder on this machine"),
        (["postgresql://u:p@h/d", "--output", tmp_path / "o"], "must be a folder on this machine"),
        ([tmp_path / "gone", "--dry-run"], "there is no file or folder"),
        ([tmp_path, "--verify"], "is not a prepared corpus"),
        (["--outptu", "x"], "Unknown option: --outptu. Did you mean --output?"),
    ]  # fmt: skip
    for words, says in cases:
        ran = here("tokenize", *words)
        assert ran.code == 2, words
        assert says in ran.err, ran.err
        assert ran.err.count("\n") == 1
        assert ran.out == ""
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl"}


def test_it_starts_without_torch(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from lengthwise.cli import main; "
        f"main(['tokenize', {str(source)!r}, '--output', {str(tmp_path / 'o')!r}, '--workers', '1']); "
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr == "False\n"


@pytest.mark.medium
def test_a_dry_run_of_a_dataset_of_parquet_files(tmp_path: Path) -> None:
    """It stops reading early. The threads that still read aborted every second process at its end."""
    (tmp_path / "data").mkdir()
    table = pa.table({"text": [f"document {n} " * 50 for n in range(60_000)]})
    pq.write_table(table, tmp_path / "data" / "a.parquet", row_group_size=1000)
    words = [sys.executable, "-m", "lengthwise", "tokenize", f"hf:{tmp_path / 'data'}", "--dry-run"]
    for _ in range(3):
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("hf:data, shard 0, row 1: ")


@pytest.mark.medium
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_stops_at_once_and_continues(here: Call, tmp_path: Path, number: int, code: int) -> None:
    """One line says how to go on, and no worker stays."""
    source = json_lines(tmp_path / "a.jsonl", (story(n % 3000) * 100 + str(n) for n in range(3000)))
    words = ["tokenize", source, "--output", tmp_path / "out", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lengthwise", *map(str, words)], stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "out.unfinished" / "parts").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(number)
    err = process.communicate(timeout=20)[1]
    if process.returncode:  # it was not quicker
        assert (process.returncode, err.strip()) == (
            code,
            "lengthwise: stopped; run the same command again to continue",
        )
        assert not (tmp_path / "out").exists()
    assert here(*words).code == 0
