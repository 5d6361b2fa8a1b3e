"""`lengthwise check`: the encodings that it tests."""

import json
import subprocess
import sys


def test_check_asks_those_that_are_named():
    command = [sys.executable, "-m", "lengthwise", "check", "NOPE", "--encodings", "Rope", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {row["encoding"] for row in json.loads(done.stdout)["answers"]} == {"NoPE", "RoPE"}
