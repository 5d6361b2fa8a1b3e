"""A results folder at an address: files of runs on two machines, interruptions, and errors in one line."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from lengthwise.config import ConfigError
from lengthwise.store import StoreError, StoreUnreachable, open_folder, open_results
from lengthwise.store.remote_files import RECORD, RemoteFolder
from tests.store.remote_system import FlakySystem

KEY = f"{7:016x}"
OTHER = f"{8:016x}"
WEIGHTS = "weights.safetensors"


@pytest.fixture(params=["file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path}/bucket/folder"


@pytest.fixture
def flaky(tmp_path: Path) -> Iterator[str]:
    yield f"flaky://{tmp_path}/bucket/folder"
    FlakySystem.problem = None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], RemoteFolder]:
    """`machine("a", address)` is the results folder on a machine with its own cache folder."""

    def on(name: str, address: str) -> RemoteFolder:
        monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / name))
        folder = open_folder(f"{address}/")
        assert isinstance(folder, RemoteFolder) and folder.path.is_dir() and folder.identifier(create=True)
        return folder

    return on


Machine = Callable[[str, str], RemoteFolder]


def checkpoint(step: int) -> str:
    return f"checkpoint-{step:08d}.safetensors"


def save(folder: RemoteFolder, *steps: int, of: str = "", keep: int = 2) -> None:
    """Write checkpoints as training does: the newest two stay."""
    run = folder.run_folder(KEY)
    run.mkdir(parents=True, exist_ok=True)
    for step in steps:
        (run / checkpoint(step)).write_text(f"{of}{step}")
    for old in sorted(run.glob("checkpoint-*"))[:-keep]:
        old.unlink()


def finish(folder: RemoteFolder, text: str = "weights") -> None:
    run = folder.run_folder(KEY)
    run.mkdir(parents=True, exist_ok=True)
    (run / WEIGHTS).write_text(text)
    for old in run.glob("checkpoint-*"):
        old.unlink()


def files(folder: RemoteFolder) -> dict[str, str]:
    """The files of the run on this machine."""
    return {path.name: path.read_text() for path in folder.run_folder(KEY).glob("*") if path.name != RECORD}


def stored(address: str) -> dict[str, str]:
    """The files of the run at the address."""
    system, root = fsspec.url_to_fs(address)
    return {path.rpartition("/")[2]: system.cat_file(path).decode() for path in system.find(f"{root}/runs/{KEY}")}


def test_another_machine_continues(address: str, machine: Machine) -> None:
    a, b = machine("a", address), machine("b", address)
    assert a.path != b.path and a.identifier(create=False) == b.identifier(create=True)
    a.fetch(KEY)
    assert files(a) == {}
    save(a, 10, 20)
    a.send(KEY)
    save(a, 30)
    a.send(KEY)
    assert stored(address) == files(a) == {checkpoint(20): "20", checkpoint(30): "30"}
    b.fetch(KEY)
    assert files(b) == files(a)
    save(a, 35)  # which is never sent
    save(b, 40, 50)
    b.send(KEY)
    assert a.trained([KEY]) == set()
    a.fetch(KEY)
    assert files(a) == stored(address) == {checkpoint(40): "40", checkpoint(50): "50"}
    finish(a)
    a.send(KEY)
    assert stored(address) == {WEIGHTS: "weights"}
    assert b.trained([KEY]) == b.trained([KEY, OTHER]) == {KEY}
    assert b.trained([OTHER]) == b.trained([]) == set()
    b.fetch(KEY)
    assert files(b) == {WEIGHTS: "weights"}


def test_what_was_not_sent_counts_if_nobody_else_continued(address: str, machine: Machine) -> None:
    a = machine("a", address)
    save(a, 10, 20)
    a.send(KEY)
    save(a, 30)
    a.fetch(KEY)
    assert checkpoint(30) in files(a)
    finish(a)
    a.fetch(KEY)
    assert files(a)[WEIGHTS] == "weights"
    a.send(KEY)
    (a.run_folder(KEY) / WEIGHTS).write_text("weights of a second training")
    a.fetch(KEY)
    a.send(KEY)
    assert stored(address)[WEIGHTS] == "weights of a second training"


@pytest.mark.medium
def test_a_lost_or_damaged_working_folder(address: str, machine: Machine) -> None:
    a = machine("a", address)
    save(a, 10, 20)
    a.send(KEY)
    for lost in ([20], [10], [10, 20]):
        for step in lost:
            (a.run_folder(KEY) / checkpoint(step)).unlink()
        a.send(KEY)  # a file that is missing here is no reason to delete the newest one there
        a.fetch(KEY)
        assert checkpoint(20) in files(a)
        assert files(a) == stored(address)
        save(a, 10)
        a.send(KEY)
    for text in ("", "[]", '{"x": 1}'):
        (a.run_folder(KEY) / RECORD).write_text(text)
        (a.run_folder(KEY) / checkpoint(20)).write_text("rotten")
        a.fetch(KEY)
        assert files(a) == stored(address) == {checkpoint(10): "10", checkpoint(20): "20"}


def test_weights_at_the_address_stay_while_a_run_is_trained_again(address: str, machine: Machine) -> None:
    a = machine("a", address)
    finish(a)
    a.send(KEY)
    (a.run_folder(KEY) / WEIGHTS).unlink()
    save(a, 10)
    a.send(KEY)
    assert stored(address) == {WEIGHTS: "weights", checkpoint(10): "10"}


def test_a_run_is_deleted_in_both_places(address: str, machine: Machine) -> None:
    a, b = machine("a", address), machine("b", address)
    save(a, 10, 20)
    a.send(KEY)
    b.fetch(KEY)
    b.delete(KEY)
    b.delete(KEY)
    assert stored(address) == {} and not b.run_folder(KEY).exists()
    a.fetch(KEY)
    assert files(a) == {}


def test_only_files_of_runs_are_copied(address: str, machine: Machine) -> None:
    a = machine("a", address)
    system, root = fsspec.url_to_fs(address, auto_mkdir=True)
    for name in (RECORD, ".hidden", f"{checkpoint(10)}.exe", "checkpoint-1.safetensors", "x.py", checkpoint(30)):
        system.pipe_file(f"{root}/runs/{KEY}/{name}", b"{}")
    a.fetch(KEY)
    assert files(a) == {checkpoint(30): "{}"}
    for key in ("../x", "x", "", "A" * 16):
        for call in (a.fetch, a.send, a.delete, a.run_folder):
            with pytest.raises(StoreError, match="must be a run key"):
                call(key)


class Killed(BaseException):
    pass


@pytest.mark.medium
@pytest.mark.parametrize("machine_after", ["a", "b"])
def test_a_kill_at_any_moment(flaky: str, machine: Machine, machine_after: str) -> None:
    """Whatever the last operation was, the next machine has the newest checkpoint or the one before, complete."""
    for moment in range(40):
        operations = 0

        def kill(operation: str, path: str, moment: int = moment) -> None:
            nonlocal operations
            operations += 1
            if operations > moment:
                raise Killed

        a = machine("a", flaky)
        a.delete(KEY)
        save(a, 10, 20)
        a.send(KEY)
        save(a, 30)
        FlakySystem.problem = kill
        try:
            a.send(KEY)
            finish(a)
            a.send(KEY)
        except Killed:
            pass
        FlakySystem.problem = None
        after = machine(machine_after, flaky)
        after.fetch(KEY)
        found = files(after)
        assert found.get(WEIGHTS) == "weights" or checkpoint(30) in found or checkpoint(20) in found, (moment, found)
        for name, text in found.items():
            assert text == ("weights" if name == WEIGHTS else str(int(name[11:19])))
        save(after, 40)
        finish(after)
        after.send(KEY)
        assert stored(flaky) == {WEIGHTS: "weights"}, moment
        if operations <= moment:
            return
    raise AssertionError("the number of operations is larger than expected")


@pytest.mark.parametrize("error", [OSError(5, "timed out"), RuntimeError("503")])
def test_a_network_failure(flaky: str, machine: Machine, error: Exception) -> None:
    a = machine("a", flaky)
    save(a, 10, 20)

    def fail(operation: str, path: str) -> None:
        raise error

    FlakySystem.problem = fail
    for call in (a.send, a.fetch, a.delete, lambda key: a.trained([key]), lambda key: a.identifier(create=True)):
        with pytest.raises(StoreUnreachable, match=r"cannot be reached .* check the address and the network"):
            call(KEY)
    assert files(a) == {checkpoint(10): "10", checkpoint(20): "20"}
    FlakySystem.problem = None
    a.send(KEY)
    assert stored(flaky) == files(a)


def test_training_deletes_a_file_before_it_is_sent(flaky: str, machine: Machine) -> None:
    a = machine("a", flaky)
    save(a, 10, 20)
    a.send(KEY)
    save(a, 30, 40)
    FlakySystem.problem = lambda operation, path: finish(a)
    a.send(KEY)
    assert stored(flaky) == {checkpoint(10): "10", checkpoint(20): "20"}
    a.send(KEY)
    assert stored(flaky) == {WEIGHTS: "weights"}


def test_a_results_folder_that_is_gone_is_no_empty_one(tmp_path: Path, machine: Machine) -> None:
    """Such as a disk that is not mounted: the files on this machine are not deleted."""
    a = machine("a", f"file://{tmp_path}/bucket")
    save(a, 10)
    a.send(KEY)
    (tmp_path / "bucket").rename(tmp_path / "moved")
    for call in (a.fetch, lambda key: a.trained([key]), lambda key: a.trained([key, OTHER])):
        with pytest.raises(StoreError, match="results-id is missing"):
            call(KEY)
    assert files(a) == {checkpoint(10): "10"}


class NoCredentialsError(Exception):
    """As botocore has it."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Forbidden"), r"refuses access \(.*Forbidden.*\); give this machine the credentials"),
        (
            NoCredentialsError("Unable to locate credentials\nand more"),
            r"refuses access \(Unable to locate credentials\)",
        ),
        (FileNotFoundError("no bucket"), r"cannot hold the files of runs \(no bucket\); .* create its bucket"),
        (
            OSError(28, "No space left on device"),
            r"cannot hold the files of runs \(.*No space left.*; .* or make space",
        ),
        (OSError("https://user:hunter2@proxy is gone"), r"cannot be reached \(\*\*\* is gone\)"),
    ],
)
def test_errors_are_explained(flaky: str, machine: Machine, error: Exception, message: str) -> None:
    a = machine("a", flaky)

    def fail(operation: str, path: str) -> None:
        raise error

    save(a, 10)
    FlakySystem.problem = fail
    with pytest.raises(StoreError, match=message) as caught:
        a.send(KEY)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "s4://bucket/x",
            r"s4://bucket/x cannot be a results folder \(Protocol not known: s4.*; write an address such as",
        ),
        ("memory://", "memory:// cannot be a results folder .it has no bucket or folder"),
        ("file:///proc/version/x", r"cannot hold the files of runs \(.*; correct the address"),
    ],
)
def test_addresses_that_cannot_be_used(address: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_results(address, store=f"sqlite:///{tmp_path}/x.db")
    assert not isinstance(caught.value, StoreUnreachable), "a worker would wait for an hour"


@pytest.mark.parametrize(("protocol", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_package_is_named(protocol: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreError, match=rf"{protocol}:// needs another package; .*pip install '\.\[{extra}\]'"):
        open_results(f"{protocol}://bucket/folder", store=f"sqlite:///{tmp_path}/x.db")
    assert list(tmp_path.iterdir()) == [], "no database was created"


@pytest.mark.parametrize(
    "address", ["s3://key:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "zip://x::s3://hunter2"]
)
def test_credentials_in_an_address_are_refused(address: str, tmp_path: Path) -> None:
    for call in (open_folder, lambda where: open_results(where, store=f"sqlite:///{tmp_path}/x.db")):
        with pytest.raises(ConfigError, match="without credentials") as caught:
            call(address)
        assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_address_needs_a_database_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="add --store postgresql://user@host/name"):
        open_results(f"file://{tmp_path}/results")
    assert list(tmp_path.iterdir()) == []


def test_a_working_folder_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.touch()
    monkeypatch.setenv("LENGTHWISE_CACHE", str(cache))
    with pytest.raises(StoreError, match=r"need a working folder, but .*File exists.* set LENGTHWISE_CACHE"):
        open_folder(f"file://{tmp_path}/results").fetch(KEY)


def test_nothing_is_asked_if_nothing_has_changed(flaky: str, machine: Machine) -> None:
    a = machine("a", flaky)
    save(a, 10, 20)
    (a.run_folder(KEY) / "error.txt").write_text("error")
    a.send(KEY)
    assert stored(flaky) == files(a)
    operations: list[str] = []
    FlakySystem.problem = lambda operation, path: operations.append(operation)
    a.send(KEY)
    assert operations == []
    save(a, 30)
    a.send(KEY)
    assert operations == ["put_file", "rm_file"]
    operations.clear()
    a.fetch(KEY)
    assert "get_file" not in operations
