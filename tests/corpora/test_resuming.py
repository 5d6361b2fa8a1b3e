"""Preparing corpora: a kill at any moment changes nothing in the result."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.corpora import prepare as preparing
from lengthwise.corpora import writing
from lengthwise.corpora.prepared import PreparedCorpus
from tests.corpora.small_corpora import content, documents, json_lines, prepare, story


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few documents."""
    monkeypatch.setattr("lengthwise.corpora.sources.files.part_bytes", lambda size: 2000)


SCRIPT = """
import sys, time
from pathlib import Path
from lengthwise.corpora import parts, prepare, writing
from lengthwise.corpora.sources import SourceOptions, files, open_source

files.part_bytes = lambda size: 2000
replace = writing.os.replace

def slow(*names):  # time to be killed before and after every file is complete
    time.sleep(0.002)
    replace(*names)
    time.sleep(0.002)

writing.os.replace = slow
if __name__ == "__main__":
    source = open_source(sys.argv[1], SourceOptions())
    print("begun", flush=True)
    prepare.Preparation(
        source=source, tokenizer=sys.argv[3], output=Path(sys.argv[2]), validation=0.2, workers=int(sys.argv[4]),
        shard_bytes=1500,
    ).run()
"""


def run_script(script: Path, *words: object, kill_at: float | None = None) -> float | None:
    """Run the script. Return how many seconds it took, or None if it was killed with all its workers."""
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, words)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    process.stdout.readline()
    start = time.monotonic()
    try:
        process.wait(kill_at)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert process.returncode in (0, -signal.SIGKILL)
    return time.monotonic() - start if process.returncode == 0 else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokenizer", "workers", "kills"),
    [("bpe:300", 3, 8), ("bytes", 1, 20)],
)
def test_kills_at_random_moments_change_nothing(tmp_path: Path, tokenizer: str, workers: int, kills: int) -> None:
    source = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(120)])
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    seconds = run_script(script, source, tmp_path / "whole", tokenizer, workers)
    assert seconds is not None
    want = content(tmp_path / "whole")
    chance = random.Random(kills)
    ended = []
    for _ in range(kills):
        ended.append(
            run_script(script, source, tmp_path / "out", tokenizer, workers, kill_at=chance.uniform(0, 0.8 * seconds))
        )
        if (tmp_path / "out").exists():
            assert content(tmp_path / "out") == want, "a folder with the final name is complete"
            for file in (tmp_path / "out").iterdir():
                file.unlink()
            (tmp_path / "out").rmdir()
    assert None in ended
    run_script(script, source, tmp_path / "out", tokenizer, workers)
    assert content(tmp_path / "out") == want
    assert not (tmp_path / "out.unfinished").exists()


def test_an_interruption_before_and_after_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of the manifest. What was finished before is not done again."""
    source = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(80)])
    want_folder = tmp_path / "want"
    prepare(source, want_folder, tokenizer="bpe:280", shard_bytes=1500)
    want = content(want_folder)
    replace, written = os.replace, []

    class Kill(BaseException):
        pass

    def interrupted(draft: Any, path: Any) -> None:
        name = Path(path).name
        if name not in written:
            written.append(name)
            if len(written) % 2:
                if Path(draft).is_dir():
                    raise Kill
                Path(draft).write_bytes(Path(draft).read_bytes()[:-1])  # as after a kill while it was written
                raise Kill
            replace(draft, path)
            raise Kill
        replace(draft, path)

    monkeypatch.setattr(writing.os, "replace", interrupted)
    tries = 0
    while True:
        tries += 1
        try:
            prepare(source, tmp_path / "out", tokenizer="bpe:280", shard_bytes=1500)
            break
        except Kill:
            assert not (tmp_path / "out" / "manifest.json").exists() or written[-1] == "out"
    assert content(tmp_path / "out") == want
    assert tries == len(written) + 1 > 30
    assert "manifest.json" in written
    assert "out" in written


def test_the_same_call_again_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(40)])
    first = prepare(source, tmp_path / "out", tokenizer="bpe:300")
    monkeypatch.setattr(preparing.Job, "tokenize", None)  # cannot be called
    monkeypatch.setattr(preparing, "train", None)
    assert prepare(source, tmp_path / "out", tokenizer="bpe:300") == first
    assert not (tmp_path / "out.unfinished").exists()
    for other in ({"validation": 0.2}, {"tokenizer": "bytes"}):
        with pytest.raises(ConfigError, match=r"is a corpus of another source, tokenizer or option"):
            prepare(source, tmp_path / "out", **{"tokenizer": "bpe:300"} | other)


def test_a_changed_file_is_tokenized_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(2):
        json_lines(tmp_path / f"{n}.jsonl", [story(k) for k in range(n, 40, 2)])

    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "plan", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path, tmp_path / "out", glob="*.jsonl")
    json_lines(tmp_path / "1.jsonl", ["changed", "text"])
    prepare(tmp_path, tmp_path / "out", glob="*.jsonl")
    corpus = PreparedCorpus(tmp_path / "out")
    found = documents(corpus, "train") + documents(corpus, "validation")
    assert sorted(found) == sorted([story(k).encode() for k in range(0, 40, 2)] + [b"changed", b"text"])


def test_two_processes_do_not_prepare_the_same_corpus(tmp_path: Path) -> None:
    import fcntl

    source = json_lines(tmp_path / "a.jsonl", [story(n) for n in range(40)])
    work = tmp_path / "out.unfinished"
    work.mkdir()
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process is preparing"):
            prepare(source, tmp_path / "out")
    prepare(source, tmp_path / "out")
