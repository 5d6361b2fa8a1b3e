"""The cache folder: where it is, whose files are used, and that its files are whole."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lengthwise import cache_folder
from lengthwise.cache_folder import CacheError
from lengthwise.native import building

SOURCE = Path(cache_folder.__file__).parents[1]
OTHER, VICTIM = 65534, 54321  # user IDs
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as several users"
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


def test_folders_above_are_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "x" / "y"))
    before = os.umask(0)
    try:
        cache_folder.store("a", b"1")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "x", tmp_path / "x" / "y")} == {0o700}
    assert stat.S_IMODE((tmp_path / "x" / "y" / "a").stat().st_mode) == 0o644


def test_the_disk_has_the_file_before_its_name_and_then_the_folder(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    def renamed(*paths: str) -> None:
        done.append("name")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    cache.mkdir()
    cache_folder.write(cache / "a", b"123")
    assert done == ["3 bytes", "name", "folder"]


def test_a_write_that_fails_leaves_what_was_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "draft")

    cache_folder.store("a", b"1")
    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="draft: No space left on device"):
        cache_folder.store("a", b"2")
    assert cache_folder.load("a") == b"1" and [path.name for path in cache.iterdir()] == ["a"]


def test_drafts_of_killed_processes_are_removed_and_those_of_others_stay(cache: Path) -> None:
    cache.mkdir()
    for name, age in ((".lengthwise-old", 7200), (".lengthwise-new", 60), ("mine", 7200)):
        (cache / name).touch()
        os.utime(cache / name, (time.time() - age,) * 2)
    cache_folder.store("a", b"1")
    assert sorted(path.name for path in cache.iterdir()) == [".lengthwise-new", "a", "mine"]


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


# ---- whose it is


def refused(words: str) -> None:
    """Nothing is loaded and nothing stored, and one warning says why."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert cache_folder.load("a") is None
        cache_folder.store("a", b"mine")
    (said,) = [str(one.message) for one in seen]
    assert re.search(words, said) and "\n" not in said, said


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no such permissions here")


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to(cache: Path, mode: int) -> None:
    cache_folder.store("a", b"1")
    cache.chmod(mode)
    before = (cache / "a").read_bytes()
    refused(rf"other users may write to .*cache \(mode {mode:o}\)")
    assert (cache / "a").read_bytes() == before


@posix
def test_a_folder_above_that_others_may_write_to(tmp_path: Path, cache: Path) -> None:
    cache_folder.store("a", b"1")
    tmp_path.chmod(0o777)
    refused(rf"other users may write to {tmp_path} ")
    tmp_path.chmod(0o1777)  # as /tmp is: others cannot rename what is not theirs
    assert cache_folder.load("a") == b"1"


@posix
def test_a_group_of_one_user_is_no_other_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many systems make folders that such a group may write to."""
    import grp
    import pwd

    cache_folder.store("a", b"1")
    tmp_path.chmod(0o770)
    name = pwd.getpwuid(os.geteuid()).pw_name
    for group, members, loaded in ((name, [], b"1"), (name, ["another"], None), ("users", [], None)):
        monkeypatch.setattr(grp, "getgrgid", lambda _, g=group, m=members: grp.struct_group((g, "x", 1, m)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert cache_folder.load("a") == loaded, group


@posix
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_to_is_made_again(cache: Path, mode: int) -> None:
    cache_folder.store("a", b"1")
    (cache / "a").chmod(mode)
    with pytest.warns(UserWarning, match="other users may write to .*cache/a"):
        assert cache_folder.load("a") is None
    cache_folder.store("a", b"2")
    assert cache_folder.load("a") == b"2"


@posix
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file(cache: Path, tmp_path: Path, kind: str) -> None:
    cache_folder.store("a", b"1")
    path = cache / "a"
    real = path.rename(tmp_path / "elsewhere")
    make: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(real),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[kind]()
    words = {"link": "symbolic link", "pipe": "not a regular file", "folder": "Is a directory"}[kind]
    with pytest.warns(UserWarning, match=words):
        assert cache_folder.load("a") is None


@posix
def test_a_link_above_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home folders often have their cache on another disk; who else may write there is asked of that place."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "link" / "cache"))
    cache_folder.store("a", b"1")
    assert cache_folder.folder() == tmp_path / "disk" / "cache" and cache_folder.load("a") == b"1"
    (tmp_path / "disk").chmod(0o777)
    refused(rf"other users may write to {tmp_path / 'disk'} ")


@as_root
def test_what_belongs_to_another_user(cache: Path, tmp_path: Path) -> None:
    cache_folder.store("a", b"1")
    for path, words in ((cache / "a", "cache/a"), (cache, "cache"), (tmp_path, tmp_path.name)):
        os.chown(path, OTHER, OTHER)
        cache_folder._warned.clear()
        with pytest.warns(UserWarning, match=rf"{words} belongs to another user \(user ID {OTHER}\)"):
            assert cache_folder.load("a") is None
        os.chown(path, 0, 0)
    assert cache_folder.load("a") == b"1"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may write to, and all may reach."""
    folder = Path(tempfile.mkdtemp(prefix="lengthwise-shared-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def run_as(user: int, code: str, imports: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user without a name, a group or a home, from the imports on: Python itself may lie where only root
    reads."""
    become = f"import os; os.setgroups([]); os.setgid({user}); os.setuid({user})"
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", f"import lengthwise.cache_folder as c\n{imports}\n{become}\n{code}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **env},
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


@as_root
def test_as_two_users(shared: Path) -> None:
    """What one left in a place that all share is not used by another, nor by root."""
    planted = run_as(OTHER, "c.store('a', b'1')", LENGTHWISE_CACHE=str(shared / "lengthwise"))
    assert f"other users may write to {shared} " in planted.stderr and not (shared / "lengthwise" / "a").exists()
    shared.chmod(0o1777)
    run_as(OTHER, "c.store('a', b'1'); c.folder().chmod(0o755)", XDG_CACHE_HOME=str(shared))
    assert run_as(OTHER, "print(c.load('a'))", XDG_CACHE_HOME=str(shared)).stdout == "b'1'\n"
    for user in (VICTIM, 0):
        done = run_as(user, "print(c.load('a'))", XDG_CACHE_HOME=str(shared))
        assert done.stdout == "None\n"
        assert "belongs to another user (user ID 65534)" in done.stderr


@as_root
def test_a_kernel_that_another_user_left_is_not_loaded(shared: Path) -> None:
    """Its constructor would run as the user who asks for attention."""
    shared.chmod(0o1777)
    (shared / "evil.cpp").write_text(
        '#include <unistd.h>\n__attribute__((constructor)) void f() { write(1, "evil\\n", 5); }\n'
    )
    subprocess.run(
        [*building.compiler(), "-shared", "-fPIC", "-o", shared / "evil.so", shared / "evil.cpp"], check=True
    )
    evil = (shared / "evil.so").read_bytes()
    folder = shared / "lengthwise"
    folder.mkdir()
    (folder / building.name(evil)).write_bytes(evil)
    imports = "from lengthwise import native\nfrom lengthwise.native import library"
    code = """
library.beside = lambda: c.Path('/nowhere')
def no_compiler(): raise library.CannotBuild('nothing was compiled')
library.building.compiled = no_compiler
print(native.missing())
"""
    for owner, said in ((VICTIM, "evil\n"), (OTHER, "")):  # the first to see that the second is stopped by its owner
        for path in (folder, folder / building.name(evil)):
            os.chown(path, owner, owner)
        done = run_as(VICTIM, code, imports, XDG_CACHE_HOME=str(shared))
        assert done.stdout == f"{said}its compiled kernel is not available: nothing was compiled\n", done.stderr


@pytest.mark.medium
@as_root
def test_without_a_home_and_without_a_name() -> None:
    """The kernel lies beside its source, so only the extracted text has a warning."""
    imports = """
import sysconfig, pydoc_data.topics, torch, lengthwise
from lengthwise.native import library
from lengthwise.corpora import stdlib
sysconfig.get_config_vars()
"""
    code = """
q = torch.ones(1, 1, 4, 8)
print(lengthwise.attend(q, q, q, lengthwise.encodings.FIRE(num_heads=1)).shape)
print(len(stdlib.read(('manual',))[1]) > 0)
"""
    done = run_as(VICTIM, code, imports)
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
