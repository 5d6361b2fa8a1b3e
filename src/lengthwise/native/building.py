"""Compiles the C++ sources in csrc/ into a shared library. library.py finds it, keeps it and loads it.

The file is called `attention-<sources>-<content>.so`. The first hash is of all files in csrc/, the flags and the
platform, so a library that was made from something else is never found. The second is of the file's own content, so one
that was cut short or changed is recognised before it is loaded: the system would end the process with SIGBUS.

Compilation needs a C++17 compiler: `$CXX`, or `c++`, `g++` or `clang++` on PATH. It took 10 s on an idle machine with
two cores and 50 s on a busy one. It needs no headers of Python or torch, and the library works with every version of
both.

Linux is tested. On macOS and other systems with such a compiler it is made in the same way. On Windows, and wherever it
does not compile, `CannotBuild` says why, and attention is served without it.

The standard library alone, and no import from the package: the build hook loads this file where nothing is installed.
"""

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).parent
CSRC = FOLDER / "csrc"
KERNEL = "attention.cpp"  # compiled once for each target
COMPILED_ONCE = ("driver.cpp", "segments.cpp", "threads.cpp")
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=fast", "-w"]  # fmt: skip
# The targets and their flags. At run time the library chooses the best target that the processor supports.
X86 = {
    "portable": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma"],
}
OTHER: dict[str, list[str]] = {"portable": []}


class CannotBuild(Exception):
    """Why there is no library; one line."""


def targets() -> dict[str, list[str]]:
    return X86 if platform.machine().lower() in ("x86_64", "amd64") else OTHER


def defines(targets: Iterable[str]) -> list[str]:
    """Return the flags that say to the sources that are compiled once which targets there are."""
    return [f"-DLENGTHWISE_{target.upper()}" for target in targets]


def sources() -> list[Path]:
    """Return every C++ file in csrc/, headers included, sorted by name."""
    return sorted(path for path in CSRC.iterdir() if path.suffix in (".cpp", ".h") and not path.name.startswith("."))


def stem() -> str:
    """Return what the names of all libraries that belong to these sources on this platform begin with."""
    digest = hashlib.sha256()
    for path in sources():
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    digest.update(repr((FLAGS, targets(), sysconfig.get_platform())).encode())
    return f"attention-{digest.hexdigest()[:16]}-"


def name(library: bytes) -> str:
    """Return the file name of a library with this content."""
    return f"{stem()}{hashlib.sha256(library).hexdigest()[:16]}.so"


def candidates(folder: Path) -> list[Path]:
    """Return the libraries of these sources in a folder, intact or not."""
    return sorted(folder.glob(f"{stem()}*.so"))


def remove_outdated(folder: Path) -> None:
    """Delete the libraries that were made from other sources, which were here before."""
    for old in set(folder.glob("attention-*.so")) - set(candidates(folder)):
        with contextlib.suppress(OSError):
            old.unlink(missing_ok=True)


def compiled() -> bytes:
    """Compile the library and return its content. Raise `CannotBuild` where it does not compile."""
    command = compiler()
    units = [(CSRC / source, Path(source).stem, defines(targets())) for source in COMPILED_ONCE]
    units += [(CSRC / KERNEL, t, [*target_flags, f"-DLENGTHWISE_TARGET={t}"]) for t, target_flags in targets().items()]
    try:
        with tempfile.TemporaryDirectory(prefix="lengthwise-") as folder:
            steps = [
                [*command, *FLAGS, *target_flags, "-c", str(source), "-o", str(Path(folder, f"{unit}.o"))]
                for source, unit, target_flags in units
            ]
            _run(steps)
            library, objects = Path(folder, "library"), [step[-1] for step in steps]
            _run([[*command, "-shared", "-o", str(library), *objects, "-pthread"]])
            return library.read_bytes()
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot compile the attention kernel: {error}") from None


def compiler() -> list[str]:
    """Return the command of the C++ compiler. Raise `CannotBuild` where there is none."""
    if os.name == "nt":
        raise CannotBuild("the attention kernel is not made for Windows")
    try:
        command = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise CannotBuild(f"CXX is {os.environ['CXX']!r}: {error}") from None
    if command:
        if shutil.which(command[0]) is None:
            raise CannotBuild(f"CXX names the C++ compiler {command[0]}, which does not exist; correct it and restart")
        return command
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return [path]
    raise CannotBuild(
        "there is no C++ compiler, neither on PATH (c++, g++ or clang++) nor named in CXX; install one (Debian and "
        "Ubuntu: apt install g++) and restart"
    )


def _run(commands: list[list[str]]) -> None:
    """Run compilers, all at once. If this process is killed, they end when their file is compiled."""
    run = partial(subprocess.run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with ThreadPoolExecutor(len(commands)) as pool:
        finished = list(pool.map(run, commands))
    for job in finished:
        if job.returncode:
            first = next((line for line in job.stdout.splitlines() if "error" in line), job.stdout.strip()[:200])
            raise CannotBuild(f"{commands[0][0]} failed: {first or f'exit status {job.returncode}, without a word'}")
