"""The most common mistakes at the command line: exit code 2 and a line that says what is wrong, as in mistakes.json."""

import contextlib
import io
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.config import EvaluationConfig, Inline, ModelConfig, TrainingConfig
from lengthwise.studies import Study, execute, grid
from tests.frozen.comparison import load

ON_COPY = "--task copy --train-length 4"

# Each command, run in a folder with the files that `make_files` writes, and the words in its message that name the
# mistake.
MISTAKES = {
    # misspelled names
    "rnu quickstart": "rnu",
    "run quikstart": "quikstart",
    "run quickstart --wokers 2": "--wokers",
    "run axes/small --set step=5": "'step'",
    f"compare ropee {ON_COPY}": "ropee",
    "compare rope --task cpoy --train-length 4": "cpoy",
    f"compare fire:hiden_layers=1 {ON_COPY}": "hiden_layers",
    f"compare fire:activation=rleu {ON_COPY}": "rleu",
    f"compare rope {ON_COPY} --positions randomised": "randomised",
    f"compare rope {ON_COPY} --positions randomized:max_lenght=9": "max_lenght",
    f"compare rope {ON_COPY} --backend fussed": "fussed",
    f"compare rope {ON_COPY} --device gpu": "gpu",
    f"compare rope {ON_COPY} --on lokal": "lokal",
    f"compare nope {ON_COPY} --mixer mambo": "mambo",
    "list encodigns": "encodigns",
    "list encodings rop": "rop",
    "sample copy --split tset": "tset",
    "inspect ropee": "ropee",
    "check ropee": "ropee",
    "bench ropee": "ropee",
    "probe recencyy 3f9a --results finished": "recencyy",
    "report --study tinny --results finished": "tinny",
    "export scores tinny --out scores.csv --results finished": "tinny",
    # missing and superfluous words
    "run": "needs STUDY",
    "run quickstart nope/small": "nope/small",
    f"compare {ON_COPY}": "needs at least one encoding",
    "compare rope --train-length 4": "got neither",
    f"compare rope --text short.txt {ON_COPY}": "got both",
    "compare rope --task copy": "--train-length",
    f"compare rope rope {ON_COPY}": "RoPE",
    # wrong types
    f"compare rope {ON_COPY} --steps many": "many",
    f"compare rope {ON_COPY} --seeds 2.5": "2.5",
    f"compare rope {ON_COPY} --lengths 4,x8": "x8",
    f"compare rope:base=ten {ON_COPY}": "ten",
    "sample copy:symbols=x": "got 'x'",
    # impossible sizes
    "compare rope --task copy --train-length 0": "--train-length",
    f"compare rope {ON_COPY} --lengths 0": "got '0'",
    f"compare rope {ON_COPY} --lengths 4,4": "[4, 4]",
    f"compare rope {ON_COPY} --steps 0": "steps must be at least 1",
    f"compare rope {ON_COPY} --batch-size 0": "--batch-size",
    f"compare rope {ON_COPY} --num-heads 3": "128 and 3",
    f"compare rope {ON_COPY} --workers 0": "workers must be from 1",
    f"compare rope {ON_COPY} --learning-rate -1": "--learning-rate",
    f"compare fire:c=0 {ON_COPY}": "c must be",
    f"compare learned:max_length=12 {ON_COPY} --lengths 4,8": "Learned has 12",
    "sample copy --length 0": "got 0",
    "statistics --length 5 --results finished": "got 5",
    # files of the user
    "run missing.py": "missing.py",
    "run folder": "is a folder",
    "run raises.py": "raises.py, line 2",
    "run empty.py": "empty.py",
    "compare rope --text missing.txt --train-length 16": "missing.txt",
    "compare rope --text empty.txt --train-length 16": "empty.txt",
    "compare rope --text short.txt --train-length 16 --lengths 16,5120": "5120",
    "compare rope --text folder --glob *.md --train-length 16": "*.md",
    "list encodings --plugin missing.py": "missing.py",
    "tokenize missing.txt --output corpus": "missing.txt",
    "lengths missing.jsonl": "missing.jsonl",
    "model missing": "missing does not exist",
    "reach missing --text short.txt": "missing does not exist",
    "import short.txt --results new": "short.txt",
    "export scores tiny --out folder --results finished": "got the folder",
    "export scores tiny --out scores.doc --results finished": "scores.doc",
    "report --results finished --output short.txt/page.html": "short.txt",
    # results
    "report --results nowhere": "nowhere",
    "list runs --results nowhere": "nowhere",
    "show 3f9a --results nowhere": "nowhere",
    "show zzzz --results finished": "zzzz",
    "probe recency zzzz --results finished": "zzzz",
    "drop zzzz --results finished": "zzzz",
    "report --results letter": "letter",
    f"compare rope {ON_COPY} --results letter": "letter",
    "report --results truncated": "truncated",
    "report --results newer": "newer",
    f"compare rope {ON_COPY} --results newer": "newer",
    f"compare rope {ON_COPY} --results short.txt": "short.txt",
    f"compare rope {ON_COPY} --results /proc/results": "/proc/results",
    f"compare rope {ON_COPY} --store mysql://host/name": "mysql",
}


def make_files(folder: Path) -> None:
    """Write what the commands name: texts, study files, the results of a finished study, and results that cannot be
    used.
    """
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("To be, or not to be, that is the question.\n" * 20)
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "raises.py").write_text("import math\nmath.sqrt('two')\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "a.py").write_text("x = 1\n")
    study = Study(
        name="tiny",
        runs=grid(
            ["nope", "rope"],
            ["copy"],
            model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
            training=TrainingConfig(train_length=4, steps=2, batch_size=4),
        ),
        evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
    )
    execute(study, folder / "finished", executor=Inline())
    for name in ("letter", "truncated", "newer"):
        (folder / name).mkdir()
    stored = (folder / "finished" / "results.db").read_bytes()
    (folder / "letter" / "results.db").write_text("This is a letter, not a database.\n" * 50)
    (folder / "truncated" / "results.db").write_bytes(stored[: len(stored) // 2])
    (folder / "newer" / "results.db").write_bytes(stored)
    with contextlib.closing(sqlite3.connect(folder / "newer" / "results.db")) as newer, newer:
        newer.execute("UPDATE lengthwise_schema SET version_num = '999'")


def in_this_process(command: str) -> tuple[int, list[str]]:
    """Run a command in the current folder. Return the exit code and the lines on stderr."""
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        code = main(shlex.split(command))
    return code, lines_of(error.getvalue())


def lines_of(error: str) -> list[str]:
    """Return the lines of stderr without what differs between machines and versions: the folder, and lists of all
    names.
    """
    text = error.replace(str(Path.cwd()), "FOLDER")
    return [re.sub(r"(available|its settings are): .*", r"\1: ...", line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes").resolve()
    make_files(folder)
    return folder


@pytest.fixture
def folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LENGTHWISE_RESULTS", raising=False)
    monkeypatch.chdir(files)
    return files


def record() -> dict[str, Any]:
    """Return what mistakes.json is to contain: the line of each command."""
    os.environ.pop("LENGTHWISE_RESULTS", None)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(Path(name).resolve()):
        make_files(Path.cwd())
        found = {command: in_this_process(command) for command in MISTAKES}
    for command, (code, lines) in found.items():
        assert code == 2 and len(lines) == 1 and MISTAKES[command] in lines[0], (command, code, lines)
    return {command: lines[0] for command, (_, lines) in found.items()}


RECORDED = load("mistakes")


def test_the_record_has_every_mistake() -> None:
    assert list(RECORDED) == list(MISTAKES)


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_gives_the_recorded_line(command: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    code, lines = in_this_process(command)
    assert lines == [RECORDED[command]]
    assert MISTAKES[command] in lines[0]
    assert code == 2
    assert sorted(folder.iterdir()) == before, "it has written something"


@pytest.mark.parametrize(
    "command",
    ["run quickstart --wokers 2", "report --results newer", pytest.param("run raises.py", marks=pytest.mark.medium)],
)
def test_the_same_as_a_process(command: str, folder: Path) -> None:
    words = [sys.executable, "-m", "lengthwise", *shlex.split(command)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout, lines_of(ran.stderr)) == (2, "", [RECORDED[command]])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may write everywhere")
def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "readonly").mkdir(mode=0o555, exist_ok=True)
    assert in_this_process(f"compare rope {ON_COPY} --results readonly") == (
        2,
        [
            "lengthwise: FOLDER/readonly/results.db cannot be opened (unable to open database file); check that its "
            "folder exists and is writable"
        ],
    )
