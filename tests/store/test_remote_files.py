"""A results folder at an address: copies of the files of runs on two machines, interruptions, and errors in one line."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.store import StoreError, StoreUnreachable, open_folder, open_results
from lengthwise.store.remote_files import RECORD, RemoteFolder
from tests.store.remote_system import FlakySystem

KEY = f"{7:016x}"
WEIGHTS = "weights.safetensors"


@pytest.fixture(params=["file", "flaky"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The folder at the address `there.address`. One file system shows incomplete files, the other one does not."""
    folder = tmp_path / "bucket" / "folder"
    folder.parent.mkdir()
    yield folder
    FlakySystem.problem = None


@pytest.fixture
def machine(
    there: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], RemoteFolder]:
    """`machine("a")` is the results folder on a machine with its own cache folder."""
    protocol = request.node.callspec.params["there"]
    first = RemoteFolder(f"{protocol}://{there}")
    if protocol == "flaky":
        there.mkdir()
    assert first.identifier(create=True)

    def on(name: str) -> RemoteFolder:
        monkeypatch.setenv("LENGTHWISE_CACHE", str(there.parent.parent / name))
        folder = open_folder(f"{protocol}://{there}/")
        assert isinstance(folder, RemoteFolder) and folder.path.is_dir()
        return folder

    return on


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


def files(folder: RemoteFolder | Path) -> dict[str, str]:
    run = folder / "runs" / KEY if isinstance(folder, Path) else folder.run_folder(KEY)
    return {path.name: path.read_text() for path in sorted(run.glob("*")) if path.name != RECORD}


def test_another_machine_continues(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a, b = machine("a"), machine("b")
    assert a.path != b.path and a.identifier(create=False) == b.identifier(create=True)
    a.fetch(KEY)
    assert files(a) == {}
    save(a, 10, 20)
    a.send(KEY)
    save(a, 30)
    a.send(KEY)
    assert files(there) == files(a) == {checkpoint(20): "20", checkpoint(30): "30"}
    b.fetch(KEY)
    assert files(b) == files(a)
    save(a, 35)  # which is never sent
    save(b, 40, 50)
    b.send(KEY)
    assert a.trained([KEY]) == set()
    a.fetch(KEY)
    assert files(a) == files(there) == {checkpoint(40): "40", checkpoint(50): "50"}
    finish(a)
    a.send(KEY)
    assert files(there) == {WEIGHTS: "weights"}
    assert b.trained([KEY]) == b.trained([KEY, f"{8:016x}"]) == {KEY}
    b.fetch(KEY)
    assert files(b) == {WEIGHTS: "weights"}


def test_what_was_not_sent_counts_if_nobody_else_continued(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a = machine("a")
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
    assert files(there)[WEIGHTS] == "weights of a second training"


def test_a_lost_or_damaged_working_folder(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a = machine("a")
    save(a, 10, 20)
    a.send(KEY)
    for lost in ([20], [10], [10, 20]):
        for step in lost:
            (a.run_folder(KEY) / checkpoint(step)).unlink()
        a.send(KEY)  # a file that is missing here is no reason to delete the newest one there
        a.fetch(KEY)
        assert checkpoint(20) in files(a)
        assert files(a) == files(there)
        save(a, 10)
        a.send(KEY)
    for text in ("", "[]", '{"x": 1}', "[" * 5000):
        (a.run_folder(KEY) / RECORD).write_text(text)
        (a.run_folder(KEY) / checkpoint(20)).write_text("rotten")
        a.fetch(KEY)
        assert files(a) == files(there) == {checkpoint(10): "10", checkpoint(20): "20"}
    b = machine("b")
    b.fetch(KEY)
    assert files(b) == files(a)


def test_weights_are_never_deleted_there_by_sending(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a = machine("a")
    finish(a)
    a.send(KEY)
    (a.run_folder(KEY) / WEIGHTS).unlink()
    save(a, 10)
    a.send(KEY)
    assert files(there) == {WEIGHTS: "weights", checkpoint(10): "10"}


def test_a_run_is_deleted_in_both_places(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a, b = machine("a"), machine("b")
    save(a, 10, 20)
    a.send(KEY)
    b.fetch(KEY)
    b.delete(KEY)
    b.delete(KEY)
    assert not (there / "runs" / KEY).exists() and not b.run_folder(KEY).exists()
    a.fetch(KEY)
    assert files(a) == {}


def test_only_known_names_are_copied(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a = machine("a")
    run = there / "runs" / KEY
    run.mkdir(parents=True)
    secret = there.parent / "secret"
    secret.write_text("secret")
    for name in (RECORD, ".hidden", "checkpoint-00000010.safetensors.exe", "checkpoint-1.safetensors", "x.py",
                 "checkpoint-٠٠٠٠٠٠٠١.safetensors", "checkpoint-00000001.safetensors\n"):  # fmt: skip
        (run / name).write_text("{}")
    (run / checkpoint(10)).mkdir()
    (run / checkpoint(20)).symlink_to(secret)
    (run / checkpoint(30)).write_text("30")
    (run / "error.txt").write_text("error")
    a.fetch(KEY)
    assert files(a) == {checkpoint(30): "30"}
    for key in ("../x", "x", "", "A" * 16):
        for call in (a.fetch, a.send, a.delete, a.run_folder):
            with pytest.raises(StoreError):
                call(key)
    assert secret.read_text() == "secret"


def test_more_checkpoints_than_two(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a, b = machine("a"), machine("b")
    save(a, 10, 20, 30, keep=3)
    a.send(KEY)
    b.fetch(KEY)
    assert files(b) == {checkpoint(20): "20", checkpoint(30): "30"}
    b.fetch(KEY)
    save(b, 40)
    b.send(KEY)
    assert files(there) == {checkpoint(30): "30", checkpoint(40): "40"}
    finish(a)  # which did not notice that the other machine had continued
    a.send(KEY)
    assert files(there) == {WEIGHTS: "weights"}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("there", ["flaky"], indirect=True)
@pytest.mark.parametrize("machine_after", ["a", "b"])
def test_a_kill_at_any_moment(there: Path, machine: Callable[[str], RemoteFolder], machine_after: str) -> None:
    """Whatever the last operation was, the next machine has the newest checkpoint or the one before it, and they are complete."""
    for moment in range(40):
        operations = 0

        def kill(operation: str, path: str, moment: int = moment) -> None:
            nonlocal operations
            operations += 1
            if operations > moment:
                raise Killed

        a = machine("a")
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
        after = machine(machine_after)
        after.fetch(KEY)
        found = files(after)
        assert found.get(WEIGHTS) == "weights" or checkpoint(30) in found or checkpoint(20) in found, (moment, found)
        for name, text in found.items():
            assert text == ("weights" if name == WEIGHTS else str(int(name[11:19])))
        save(after, 40)
        finish(after)
        after.send(KEY)
        assert files(there) == {WEIGHTS: "weights"}, moment
        if operations <= moment:
            return
    raise AssertionError("the number of operations is larger than expected")


@pytest.mark.parametrize("there", ["flaky"], indirect=True)
@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), TimeoutError(), OSError(5, "timed out"), RuntimeError("503")]
)
def test_a_network_failure(there: Path, machine: Callable[[str], RemoteFolder], error: Exception) -> None:
    a = machine("a")
    save(a, 10, 20)

    def fail(operation: str, path: str) -> None:
        raise error

    FlakySystem.problem = fail
    for call in (a.send, a.fetch, lambda key: a.identifier(create=True)):
        with pytest.raises(StoreUnreachable, match=r"cannot be reached .* check the address and the network"):
            call(KEY)
    with pytest.raises(StoreUnreachable):
        a.delete(KEY)
    assert files(a) == {checkpoint(10): "10", checkpoint(20): "20"}
    FlakySystem.problem = None
    a.send(KEY)
    assert files(there) == files(a)


@pytest.mark.parametrize("there", ["flaky"], indirect=True)
def test_an_incomplete_copy_is_noticed(
    there: Path, machine: Callable[[str], RemoteFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = machine("a"), machine("b")
    save(a, 1000, 2000)
    complete = FlakySystem.put_file, FlakySystem.get_file

    def shortened(method: Any, which: int) -> Any:
        def copy(self: Any, one: str, two: str) -> None:
            method(self, one, two)
            os.truncate(two, 2)

        return copy

    monkeypatch.setattr(FlakySystem, "put_file", shortened(complete[0], 1))
    with pytest.raises(StoreUnreachable, match="was not written completely"):
        a.send(KEY)
    monkeypatch.setattr(FlakySystem, "put_file", complete[0])
    a.send(KEY)
    monkeypatch.setattr(FlakySystem, "get_file", shortened(complete[1], 1))
    with pytest.raises(StoreUnreachable, match="changed while it was copied"):
        b.fetch(KEY)
    assert files(b) == {}
    monkeypatch.setattr(FlakySystem, "get_file", complete[1])
    b.fetch(KEY)
    assert files(b) == files(a)


@pytest.mark.parametrize("there", ["file"], indirect=True)
def test_a_results_folder_that_is_gone_is_no_empty_one(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a = machine("a")
    save(a, 10)
    a.send(KEY)
    there.rename(there.with_name("moved"))
    for call in (a.fetch, lambda key: a.trained([key]), lambda key: a.trained([key, f"{8:016x}"])):
        with pytest.raises(StoreError, match="results-id is missing"):
            call(KEY)
    assert files(a) == {checkpoint(10): "10"}


class NoCredentialsError(Exception):
    """As botocore has it."""


@pytest.mark.parametrize("there", ["flaky"], indirect=True)
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied", "/folder/x"),
            r"refuses access \(.*denied: .*\); change its permissions",
        ),
        (PermissionError(13, "Forbidden"), r"refuses access \(.*Forbidden.*\); make credentials known"),
        (
            NoCredentialsError("Unable to locate credentials\nand more"),
            r"refuses access \(Unable to locate credentials\)",
        ),
        (NotImplementedError(), "cannot be written; give an address such as"),
        (OSError(28, "No space left on device"), r"cannot be copied \(.*No space left"),
        (OSError("https://user:hunter2@proxy is gone"), r"cannot be reached \(\*\*\* is gone\)"),
    ],
)
def test_lasting_errors_are_explained(
    there: Path, machine: Callable[[str], RemoteFolder], error: Exception, message: str
) -> None:
    a = machine("a")

    def fail(operation: str, path: str) -> None:
        raise error

    FlakySystem.problem = fail
    with pytest.raises(StoreError, match=message) as caught:
        a.fetch(KEY)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s4://bucket/x", "unknown protocol, s4://"),
        ("flaky:///nowhere/x", "is in no bucket or folder that exists"),
        ("memory://", "memory:// cannot be a results folder .it has no bucket or folder"),
        ("file:///", "file:// cannot be a results folder .it has no bucket or folder"),
        ("file://relative/x", "file://relative/x cannot be a results folder .* must begin with a slash"),
        ("file://~/x", "must begin with a slash"),
        ("memory://bucket/x", "each process has its own memory"),
        ("reference://x", "reference://x cannot be a results folder .*missing 1 required"),
        ("file:///proc/version", "file:///proc/version cannot have the files of runs .*Not a directory"),
        ("file:///proc/version/x", r"Not a directory.*; correct the address"),
    ],
)
def test_addresses_that_cannot_be_used(
    address: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=message) as caught:
        open_results(address, store=f"sqlite:///{tmp_path}/x.db")
    assert not isinstance(caught.value, StoreUnreachable), "a worker would wait for an hour"
    assert {path.name for path in tmp_path.iterdir()} <= {"x.db"}


@pytest.mark.parametrize(("protocol", "extra"), [("s3", "s3"), ("gs", "gcs"), ("gcs", "gcs")])
def test_a_missing_package_is_named(protocol: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreError, match=rf"{protocol}:// needs another package; .*pip install '\.\[{extra}\]'"):
        open_results(f"{protocol}://bucket/folder", store=f"sqlite:///{tmp_path}/x.db")


@pytest.mark.parametrize(
    "address", ["s3://key:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "s3://bucket/x#hunter2", "zip://x::s3://hunter2",
                "s3://bucket/hunter2\n", "s3://bucket\\hunter2"]
)  # fmt: skip
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


def test_the_results_folder_is_the_one_of_the_first_caller(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/x.db"
    for _ in range(2):
        with open_results(f"file://{tmp_path}/one", store=database) as store:
            assert str(store.files) == f"file://{tmp_path}/one"
            assert store.option == f" --store ADDRESS --results file://{tmp_path}/one"
    for other in (f"file://{tmp_path}/two", tmp_path / "two"):
        with pytest.raises(
            StoreError, match=r"two is not the results folder of .* give the folder that all machines share"
        ):
            open_results(other, store=database)
    with open_results(tmp_path / "one", store=database):  # the same folder, without an address
        pass


def test_a_working_folder_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.touch()
    monkeypatch.setenv("LENGTHWISE_CACHE", str(cache))
    with pytest.raises(StoreError, match=r"need a working folder, but .*File exists.* set LENGTHWISE_CACHE"):
        open_folder(f"file://{tmp_path}/results").fetch(KEY)


@pytest.mark.parametrize("there", ["flaky"], indirect=True)
def test_nothing_is_asked_if_nothing_has_changed(there: Path, machine: Callable[[str], RemoteFolder]) -> None:
    a, b = machine("a"), machine("b")
    save(a, 10, 20)
    (a.run_folder(KEY) / "error.txt").write_text("error")
    a.send(KEY)
    b.fetch(KEY)
    assert "error.txt" in files(there) and "error.txt" not in files(b)
    (b.run_folder(KEY) / checkpoint(20)).rename(b.run_folder(KEY) / f"{checkpoint(20)}.damaged")
    b.send(KEY)
    assert list(files(there)) == [checkpoint(10), checkpoint(20)], "the error is over, and no newer checkpoint is there"
    operations: list[str] = []
    FlakySystem.problem = lambda operation, path: operations.append(operation)
    for folder in (a, b):
        folder.send(KEY)
    assert operations == []
    save(b, 30, keep=3)  # the damaged one counts
    b.send(KEY)
    assert list(files(there)) == [checkpoint(10), checkpoint(30)]
    assert operations == ["put_file", "ls", "rm_file"]
