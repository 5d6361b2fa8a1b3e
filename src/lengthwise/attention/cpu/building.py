"""Compiles attention.cpp and pieces.cpp into a shared library, once for each machine and version of the files.

The library is called `attention-<hash>.so`, the hash being of the sources, the flags and the platform: one that was made
from something else is never found. It is looked for beside the source and then in the user's cache folder
(`$XDG_CACHE_HOME/lengthwise` or `~/.cache/lengthwise`). Installing makes it beside the source (hatch_build.py at the root
of the repository, for wheels and for editable installs); where it is in neither place, as in a bare clone, the first use
makes it in the first of the two that can be written. That takes about ten seconds and any C++17 compiler: `$CXX`, or
`c++`, `g++`, `clang++` on PATH. It needs neither headers of Python nor of torch, and serves every version of both.

Linux is tested. On macOS and other systems with such a compiler it is made in the same way. On Windows, and wherever it does
not compile, `CannotBuild` says why, and attention is served without it.

The standard library alone, and no import from the package: the build hook loads this file where nothing is installed.
"""

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

SOURCE = Path(__file__).with_name("attention.cpp")
PIECES = SOURCE.with_name("pieces.cpp")
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=fast", "-w"]  # fmt: skip
# attention.cpp is compiled once for each of these; which one runs is asked of the processor at run time.
X86 = {
    "portable": ["-DLENGTHWISE_ENTRY", "-DLENGTHWISE_X86"],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma"],
}
OTHER = {"portable": ["-DLENGTHWISE_ENTRY"]}


class CannotBuild(Exception):
    """Why there is no library; one line."""


def targets() -> dict[str, list[str]]:
    return X86 if platform.machine().lower() in ("x86_64", "amd64") else OTHER


def name() -> str:
    """The file name of the library that belongs to these sources on this platform."""
    made_of = hashlib.sha256(SOURCE.read_bytes())
    made_of.update(PIECES.read_bytes())
    made_of.update(repr((FLAGS, targets(), sysconfig.get_platform())).encode())
    return f"attention-{made_of.hexdigest()[:16]}.so"


def places() -> list[Path]:
    """The folders where the library may lie, the first before the second."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [SOURCE.parent, Path(cache) / "lengthwise"]


def find() -> Path | None:
    """The library, where there is one."""
    return next((path for place in places() if (path := place / name()).is_file()), None)


def find_or_build() -> Path:
    """The library; made in the first place that can be written, where there is none. `CannotBuild` where it cannot be."""
    if found := find():
        return found
    refusals = []
    for place in places():
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = open(place / ".attention.lock", "w")  # noqa: SIM115
        except OSError as error:
            refusals.append(f"{place} ({error.strerror or error})")
            continue
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)
            _wait_for(lock)
            if found := find():  # another process was faster
                return found
            print("lengthwise: compiling its attention kernel, once (about ten seconds)", file=sys.stderr, flush=True)
            library = stack.enter_context(_compiled())
            try:
                return _put(library, place)
            except OSError as error:
                refusals.append(f"{place} ({error.strerror or error})")
    raise CannotBuild(f"there is no place to keep it: {', nor '.join(refusals)}")


def build(folder: Path) -> Path:
    """Compile the library into `folder`. It appears there whole or not at all; two processes may do so at once.
    `CannotBuild` where it does not compile, `OSError` where the folder does not take it."""
    with _compiled() as library:
        return _put(library, folder)


@contextlib.contextmanager
def _compiled() -> Iterator[Path]:
    """The library in a folder of its own, which is gone afterwards."""
    if os.name == "nt":
        raise CannotBuild("the attention kernel is not made for Windows")
    compiler = _compiler()
    try:
        folder = tempfile.TemporaryDirectory(prefix="lengthwise-")
    except OSError as error:
        raise CannotBuild(f"there is no folder for temporary files: {error}") from None
    with folder as made:
        steps = [[*compiler, *FLAGS, "-c", str(PIECES), "-o", str(Path(made, "pieces.o"))]]
        for target, flags in targets().items():
            out = str(Path(made, f"{target}.o"))
            steps.append([*compiler, *FLAGS, *flags, f"-DLENGTHWISE_TARGET={target}", "-c", str(SOURCE), "-o", out])
        _run(steps)
        library, objects = Path(made, "library"), [step[-1] for step in steps]
        _run([[*compiler, "-shared", "-o", str(library), *objects, "-pthread"]])
        yield library


def _put(library: Path, folder: Path) -> Path:
    """A library that was compiled where it is looked for."""
    handle, new = tempfile.mkstemp(dir=folder, prefix=".attention-", suffix=".new")
    try:
        os.close(handle)
        shutil.copyfile(library, new)
        os.chmod(new, 0o755)
        os.replace(new, folder / name())
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
    if folder == SOURCE.parent:  # what is left of an older source, which was here before
        for old in folder.glob("attention-*.so"):
            if old.name != name():
                with contextlib.suppress(OSError):
                    old.unlink(missing_ok=True)
    return folder / name()


def _compiler() -> list[str]:
    try:
        if given := shlex.split(os.environ.get("CXX", "")):
            return given
    except ValueError as error:
        raise CannotBuild(f"CXX is {os.environ['CXX']!r}: {error}") from None
    for known in ("c++", "g++", "clang++"):
        if found := shutil.which(known):
            return [found]
    raise CannotBuild("there is no C++ compiler on PATH (c++, g++ or clang++) and none named in CXX")


def _run(commands: list[list[str]]) -> None:
    """All at once."""
    try:
        jobs = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    except OSError as error:
        raise CannotBuild(f"{commands[0][0]} does not start: {error}") from None
    said = [job.communicate()[0] for job in jobs]
    for job, words in zip(jobs, said, strict=True):
        if job.returncode:
            first = next((line for line in words.splitlines() if "error" in line), words.strip()[:200])
            raise CannotBuild(f"{commands[0][0]} failed: {first or f'exit status {job.returncode}, without a word'}")


def _wait_for(lock: TextIO) -> None:
    """One process at a time compiles into a folder, where the system has such locks; the others wait."""
    try:
        import fcntl
    except ImportError:
        return
    with contextlib.suppress(OSError):  # some network file systems have no locks: then both compile
        fcntl.flock(lock, fcntl.LOCK_EX)
