"""The cache folder: where it is, that its files are whole, and what happens where it cannot be used."""

import os
import re
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from lengthwise import cache_folder
from lengthwise.cache_folder import CacheError

SOURCE = Path(cache_folder.__file__).parents[1]
STRANGER = 54321  # user ID
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_folder, "_warned", set())
    return tmp_path / "cache"


# ---- where it is


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folders of Linux")
def test_location(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for own, xdg, wanted in (
        ("/own", "/xdg", "/own"),
        ("~/own", "/xdg", "/home/me/own"),
        ("", "/xdg", "/xdg/lengthwise"),
        ("", "", "/home/me/.cache/lengthwise"),
        ("", "relative", "/home/me/.cache/lengthwise"),  # the specification says so
        ("", "./relative", "/home/me/.cache/lengthwise"),
    ):
        monkeypatch.setenv("LENGTHWISE_CACHE", own)
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache_folder.location() == Path(wanted), (own, xdg)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LENGTHWISE_CACHE", "mine")
    assert cache_folder.location() == tmp_path / "mine"


@pytest.mark.parametrize("home", ["", "relative", None])
def test_without_a_home_there_is_one_warning_and_no_error(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LENGTHWISE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    pwd = pytest.importorskip("pwd")

    def nobody(user: object) -> None:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    refused(r"no home folder.*LENGTHWISE_CACHE")


def test_a_home_that_is_named_and_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", "~nobody-has-this-name/cache")
    with pytest.raises(CacheError, match="no such home folder"):
        cache_folder.location()


# ---- files


def test_what_is_stored_is_loaded(cache: Path) -> None:
    assert cache_folder.load("a") is None and not cache.exists()
    cache_folder.store("a", b"1\n2")
    assert cache_folder.load("a") == b"1\n2" and cache_folder.load("b") is None
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [path.name for path in cache.iterdir()] == ["a"]


@pytest.mark.parametrize("damage", [b"", b"\n", b"1", b"\x80\n1", "cut", "changed"])
def test_what_is_damaged_counts_as_none(cache: Path, damage: bytes | str) -> None:
    cache_folder.store("a", b"12345")
    whole = (cache / "a").read_bytes()
    bad = {"cut": whole[:-1], "changed": whole[:-1] + b"6"}.get(str(damage), damage)
    assert isinstance(bad, bytes)
    (cache / "a").write_bytes(bad)
    assert cache_folder.load("a") is None


def test_folders_above_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "x" / "y"))
    cache_folder.store("a", b"1")
    assert cache_folder.load("a") == b"1" and (tmp_path / "x" / "y" / "a").exists()


def test_the_disk_has_the_file_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    def renamed(*paths: str) -> None:
        done.append("name")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    cache_folder.write(tmp_path / "a", b"123")
    assert done == ["3 bytes", "name"]


def test_a_write_that_fails_leaves_what_was_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "draft")

    cache_folder.store("a", b"1")
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="cache: No space left on device"):
        cache_folder.store("a", b"2")
    assert cache_folder.load("a") == b"1" and [path.name for path in cache.iterdir()] == ["a"]


def test_a_lock_is_waited_for_but_not_for_ever(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir()
    with cache_folder.locked(cache / "lock", 0, what="busy") as first:
        started = time.monotonic()
        with cache_folder.locked(cache / "lock", 0.2, what="busy") as second:
            pass
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", "lengthwise: waiting for another process, which is busy\n")
        assert (first, second) == (True, False) and time.monotonic() - started >= 0.2
    with cache_folder.locked(cache / "lock", 0, what="busy") as third:
        assert third
    assert capsys.readouterr() == ("", "")


# ---- where it cannot be used


def refused(words: str) -> None:
    """Nothing is loaded and nothing stored, and one warning says why."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert cache_folder.load("a") is None
        cache_folder.store("a", b"mine")
    (said,) = [str(one.message) for one in seen]
    assert re.search(words, said) and "\n" not in said, said


def test_a_file_in_place_of_the_folder(cache: Path) -> None:
    cache.touch()
    with pytest.warns(UserWarning, match=r"cache: (File exists|Not a directory).*Set LENGTHWISE_CACHE to a folder"):
        cache_folder.store("a", b"1")
    assert cache.read_bytes() == b""


def run_as(user: int, code: str, imports: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without a name, a group or a home, from the imports on: Python itself may lie where only
    root reads."""
    become = f"import os; os.setgroups([]); os.setgid({user}); os.setuid({user})"
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", f"import lengthwise.cache_folder as c\n{imports}\n{become}\n{code}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **env},
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


@as_root
def test_a_folder_that_this_user_cannot_write_to(cache: Path) -> None:
    """Read-only file systems and the home folders of others."""
    cache_folder.store("a", b"1")
    for path in (cache, *cache.parents[:-2]):
        path.chmod(0o755)
    done = run_as(STRANGER, "print(c.load('a')); c.store('a', b'2'); c.store('b', b'2')", LENGTHWISE_CACHE=str(cache))
    assert done.stdout == "b'1'\n" and [path.name for path in cache.iterdir()] == ["a"], done.stderr
    assert "Permission denied. Set LENGTHWISE_CACHE to a folder that you can write to" in done.stderr


@pytest.mark.medium
@as_root
def test_without_a_home_and_without_a_name() -> None:
    """The kernel lies beside its source, so only the extracted text has a warning."""
    imports = """
import sysconfig, pydoc_data.topics, torch, lengthwise
from lengthwise.native import library
from lengthwise.corpora import stdlib
sysconfig.get_config_vars()
lengthwise.attend, lengthwise.encodings.FIRE(num_heads=1)
"""
    code = """
q = torch.ones(1, 1, 4, 8)
print(lengthwise.attend(q, q, q, lengthwise.encodings.FIRE(num_heads=1)).shape)
print(len(stdlib.read(('manual',))[1]) > 0)
"""
    done = run_as(STRANGER, code, imports)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "torch.Size([1, 1, 4, 8])\nTrue\n"
    assert done.stderr.count("no home folder") == 1, done.stderr


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_written_file_has_the_permissions_that_the_umask_leaves(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        cache_folder.write(tmp_path / "a", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
