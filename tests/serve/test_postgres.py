"""`lengthwise serve` as its own process on a PostgreSQL server, which crashes and comes back."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from lengthwise.store import open_results
from tests.postgres_server import needs_own_postgres, new_server

from .conftest import WORKER, add_study, advance, finish, key


def answer(address: str) -> tuple[int, str]:
    try:
        with urlopen(address, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def eventually(address: str, words: str, status: int = 200) -> str:
    """Request a page again and again until it contains some words, and return it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found, page = answer(address)
        if found == status and words in page:
            return page
        time.sleep(0.1)
    raise AssertionError(f"{address} has no {words!r}: {found} {page[:2000]}")


@needs_own_postgres
@pytest.mark.slow
def test_pages_on_a_server_that_crashes_and_comes_back(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with new_server() as database:
        with open_results(results, store=database.url) as store:
            add_study(store, "first", 1, 4)
            keys = [finish(store, "first"), finish(store, "first", 0.5)]
            running = store.claim("first", WORKER)
            assert running is not None
            advance(store, running.key, 100)
        command = [sys.executable, "-m", "lengthwise", "serve", "--port", "0"]
        command += ["--results", str(results), "--store", database.url]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stdout is not None
            match = re.search(r"http://\S+/", server.stdout.readline())
            assert match
            address = match[0].rstrip("/")
            assert "2 done" in eventually(address, "2 done")
            assert "step 100 of 1,000" in " ".join(eventually(f"{address}/study?name=first", "of 1,000").split())
            assert "exact match" in eventually(f"{address}/compare?runs={','.join(keys)}", "exact match")
            with open_results(results, store=database.url) as store:
                advance(store, running.key, 600)
            eventually(f"{address}/study?name=first", "600 of 1,000")
            assert "Written by Lengthwise" in eventually(f"{address}/report?study=first", "Written by Lengthwise")
            database.stop()
            page = eventually(address, "The results cannot be read now", 503)
            assert "postgres@" not in page and "Traceback" not in page
            database.start()
            with open_results(results, store=database.url) as store:
                advance(store, running.key, 700)
            eventually(f"{address}/study?name=first", "700 of 1,000")
            assert key(1, 3)[:8] in answer(f"{address}/study?name=first")[1]
        finally:
            server.terminate()
            _, errors = server.communicate()
        assert "Traceback" not in errors
