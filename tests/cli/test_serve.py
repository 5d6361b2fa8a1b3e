"""`lengthwise serve` as a command: its options, and its end."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import open_results

Call = Callable[..., Any]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    with open_results(tmp_path / "results"):
        return tmp_path / "results"


def test_what_is_refused_in_one_line(here: Call, results: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for words, line in {
            ("--port", port): f"cannot listen on port {port} of 127.0.0.1 (Address already in use); choose another one",
            ("--port", 70000): "--port must be from 0 to 65535, got 70000",
            ("--port", -1): "--port must be from 0 to 65535, got -1",
            ("--port", 0, "--results", tmp_path / "none"): "there are no results at",
        }.items():
            ran = here("serve", "--results", results, *words) if "--results" not in words else here("serve", *words)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert line in ran.err


def test_a_missing_package_names_the_extra(here: Call, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = here("serve", "--results", results)
    assert ran.code == 2
    assert (
        ran.err
        == "lengthwise: the package uvicorn is missing; install the extra serve: pip install '.[serve]' in a clone of "
        "Lengthwise\n"
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    ("number", "codes"), [(signal.SIGINT, (0, 130)), pytest.param(signal.SIGTERM, (143,), marks=pytest.mark.slow)]
)
def test_it_answers_until_a_signal(results: Path, number: signal.Signals, codes: tuple[int, ...]) -> None:
    command = [sys.executable, "-m", "lengthwise", "serve", "--port", "0", "--results", str(results)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        assert server.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert match
        page = urllib.request.urlopen(match[0], timeout=20).read().decode()
        assert "No studies yet" in page
        server.send_signal(number)
        _, err = server.communicate(timeout=20)
    assert server.returncode in codes
    assert "Traceback" not in err
    assert err.count("lengthwise:") <= 1
