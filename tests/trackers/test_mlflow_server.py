"""Runs on a tracking server of MLflow.

The server is at LENGTHWISE_TEST_MLFLOW, the URL of an empty one, or it is started where the whole package `mlflow` is installed.
The extra has `mlflow-skinny`, which has no server. Weights & Biases has no server that can be installed as a package.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lengthwise.trackers.mlflow import MLflow
from tests.trackers.read_back import read_mlflow_at
from tests.trackers.test_process import KEY, kill_and_continue, points, require_all_points_once, start

pytestmark = pytest.mark.slow
NO_LIBRARY = importlib.util.find_spec("mlflow") is None
NO_SERVER = NO_LIBRARY or importlib.util.find_spec("flask") is None


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if given := os.environ.get("LENGTHWISE_TEST_MLFLOW"):
        yield given
        return
    if NO_SERVER:
        pytest.skip("MLflow: its server is not installed (the package mlflow), and LENGTHWISE_TEST_MLFLOW has no URL")
    folder = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}"]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                break
        except OSError:
            time.sleep(0.2)
    yield address
    server.terminate()
    server.wait(60)


@pytest.mark.skipif(NO_LIBRARY, reason="needs the extra mlflow")
def test_a_killed_process_is_continued_on_a_server(uri: str, tmp_path: Path) -> None:
    kill_and_continue(MLflow(uri=uri), tmp_path)
    require_all_points_once(read_mlflow_at(uri, KEY))
    assert not list(tmp_path.iterdir()), "nothing is stored in the results folder"


@pytest.mark.skipif(NO_LIBRARY, reason="needs the extra mlflow")
def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = start(MLflow(uri=f"http://127.0.0.1:{port}"), tmp_path)
    one.send({"points": points(1, 3)})
    begin = time.monotonic()
    one.finish("finished", lambda: False, 5, 5)
    assert time.monotonic() - begin < 10
    assert one.problem == "it could not begin in time; it may be offline"
