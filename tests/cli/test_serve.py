"""`lengthwise serve` as a command: its options, and its end."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
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
            ("--port", port): f"port {port} of 127.0.0.1 is in use by another program; choose another one with --port",
            ("--port", 70000): "--port must be from 0 to 65535, got 70000",
            ("--port", -1): "--port must be from 0 to 65535, got -1",
            ("--port", 0, "--token", "short"): "--token must have at least 8 characters",
            ("--port", 0, "--token", "ééééééééé"): "--token must have at least 8 characters, all of them ASCII",
            ("--port", 0, "--host", "nothing.invalid"): "--host nothing.invalid is not an address of this machine",
            ("--port", 0, "--host", "192.0.2.1"): "cannot listen at 192.0.2.1",
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
        == "lengthwise: the package uvicorn is missing; install the extra serve: pip install '.[serve]' in a clone of Lengthwise\n"
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    ("number", "codes"), [(signal.SIGINT, (0, 130)), pytest.param(signal.SIGTERM, (143,), marks=pytest.mark.slow)]
)
def test_it_answers_until_a_signal(results: Path, number: signal.Signals, codes: tuple[int, ...]) -> None:
    command = [
        sys.executable,
        "-m",
        "lengthwise",
        "serve",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--results",
        str(results),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        assert server.stdout is not None
        match = re.search(r":(\d+)/\?token=([\w-]{22}) ", server.stdout.readline())
        assert match, "any other address than 127.0.0.1 has a token"
        address = f"http://127.0.0.1:{match[1]}/"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address, timeout=20)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = opener.open(f"{address}?token={match[2]}", timeout=20).read().decode()
        assert "No studies yet" in page
        server.send_signal(number)
        _, err = server.communicate(timeout=20)
    assert server.returncode in codes
    assert "Traceback" not in err
    assert err.count("lengthwise:") <= 1
