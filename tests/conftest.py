"""Settings for every test. `lengthwise` is not imported here: jaxtyping's hook must come before it."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; several workers share the cores

import hypothesis
import pytest

# A job that a shell started in the background ignores Ctrl-C, and so would every command that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Time says little on a shared machine; a failure must come again on the next run.
hypothesis.settings.register_profile("lengthwise", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("lengthwise")


@pytest.fixture(autouse=True)
def own_results(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the results of whoever runs it."""
    monkeypatch.setenv("LENGTHWISE_RESULTS", str(tmp_path_factory.getbasetemp() / "results"))
