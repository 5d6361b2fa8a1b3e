"""Files are complete or absent."""

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.corpora.writing import atomic_file, sha256_of, write_file

KILLED = """
import os, signal, sys
from pathlib import Path
from lengthwise.corpora.writing import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file._file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_kill_while_a_file_is_written(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "file"
    if before:
        path.write_bytes(before)
    ran = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert path.exists() == (before is not None)
    assert before is None or path.read_bytes() == before
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "file") as file:
        file.write(bytes(1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_the_hash_is_that_of_the_content(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "file") as file:
        file.write(b"a")
        file.write(b"b")
    assert file.sha256 == sha256_of(tmp_path / "file") == hashlib.sha256(b"ab").hexdigest()
