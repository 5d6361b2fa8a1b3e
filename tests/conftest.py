"""Settings for every test. `lengthwise` is not imported here: jaxtyping's hook must come before it."""

import datetime
import gc
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; several workers share the cores

import hypothesis
import jaxtyping
import pytest

# A job that a shell started in the background ignores Ctrl-C, and so would every command that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Time says little on a shared machine; a failure must come again on the next run.
hypothesis.settings.register_profile("lengthwise", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("lengthwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=1, help="run one in N of the selected tests, others every day")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use a browser as medium. Keep the tests whose hash with today's date is divisible by N."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("medium")
    share, today = config.getoption("--share"), datetime.date.today().isoformat()
    if share > 1:
        digests = {item: hashlib.sha256(f"{today} {item.nodeid}".encode()).digest() for item in items}
        items[:] = [item for item in items if int.from_bytes(digests[item][:8], "big") % share == 0]


def pytest_collection_finish() -> None:
    """The garbage collector need not search the collected tests, which stay until the end."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def the_installed_transformers_counts_as_tested() -> Iterator[None]:
    """With a newer version than the tested ones, commands print a warning, which would fail all tests of their
    messages.
    """
    from lengthwise import transformers_versions

    original = transformers_versions.version_warning
    installed = importlib.metadata.version("transformers") if importlib.util.find_spec("transformers") else None

    def warning() -> str | None:
        import transformers

        return original() if transformers.__version__ != installed else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers_versions, "version_warning", warning)
        yield


@pytest.fixture(autouse=True)
def type_checks_of_some_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `dev.py test --types`, check types in one of four tests, because in many the checks take longest.

    Each function that is checked runs in many tests, so some of them run with the checks.
    """
    jaxtyping.config.update("jaxtyping_disable", zlib.crc32(request.node.nodeid.encode()) % 4 != 0)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def own_results(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the results of whoever runs it."""
    monkeypatch.setenv("LENGTHWISE_RESULTS", str(tmp_path_factory.getbasetemp() / "results"))


def chromium() -> str | None:
    return next(filter(None, (os.environ.get("CHROMIUM"), *map(shutil.which, ("chromium", "google-chrome")))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None or not Path(path).exists():
        pytest.skip("no browser: $CHROMIUM, chromium and google-chrome lead nowhere")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()
