"""Builds driver.cpp with the kernel's C++ sources in one of several ways, and runs it: the kernel alone, without torch.

    python tests/native/run.py                             # the ways that there are
    python tests/native/run.py g++ --seed 1 --cases 10000  # one of them

Says what ran and what the driver found. Exit status: the driver's; 77 where the machine lacks what a way needs, and
says what that is. The flags are those of building.py, which makes the library that is used, and warnings are errors.
"""

import argparse
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "src" / "lengthwise" / "native"
CSRC = NATIVE / "csrc"
LACKING = 77
LIBRARIES = ("-pthread", "-lgomp")

_spec = importlib.util.spec_from_file_location("building", NATIVE / "building.py")
assert _spec and _spec.loader
building = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(building)

SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
# Asserted: that no vector is read past its end within what it has taken.
ADDRESS = (*SANITIZED, "-fsanitize=address,undefined", "-D_GLIBCXX_ASSERTIONS")

# Valgrind knows no AVX-512, and says so to the program, which then leaves it out. The threads of OpenMP and of the pool
# sleep until the process ends, and valgrind calls their memory "possibly lost": only memory that nothing points at is a
# leak here.
LEAKS = ("--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite")
VALGRIND = ("valgrind", "--quiet", *LEAKS, "--error-exitcode=9")


@dataclass(frozen=True)
class Way:
    """A compiler, what is added to the library's flags, and what the program runs under."""

    compiler: str
    flags: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    arm: bool = False


WAYS = {
    "g++": Way("g++"),
    "clang++": Way("clang++"),
    "g++-address": Way("g++", ADDRESS),
    "clang++-address": Way("clang++", ADDRESS),
    "g++-thread": Way("g++", (*SANITIZED, "-fsanitize=thread")),
    "clang++-thread": Way("clang++", (*SANITIZED, "-fsanitize=thread")),
    "valgrind": Way("g++", ("-O1", "-g"), VALGRIND),
    "aarch64": Way("aarch64-linux-gnu-g++", ("-static",), ("qemu-aarch64",), arm=True),
}


class Lacking(Exception):
    """What the machine does not have; one line."""


def built(way: Way, folder: Path) -> Path:
    """The driver, built into a folder."""
    _probe(way, folder)
    flags = [f for f in building.FLAGS if f != "-w"] + ["-Wall", "-Wextra", "-Werror", *way.flags]
    targets = building.OTHER if way.arm else building.targets()
    jobs, objects = [], []

    def compile_(name: str, source: Path, *given: str) -> None:
        objects.append(str(folder / f"{name}.o"))
        jobs.append(subprocess.Popen([way.compiler, *flags, *given, "-c", str(source), "-o", objects[-1]]))

    memory = ["-include", str(HERE / "memory.h")]
    compile_("test_driver", HERE / "driver.cpp", "-I", str(CSRC))
    for source in building.COMPILED_ONCE:
        compile_(source, CSRC / source, *building.defines(targets), *(memory if source == "driver.cpp" else []))
    for target, own in targets.items():
        given = [*own, *memory, f"-DLENGTHWISE_TARGET={target}"]
        if "-mavx512f" in own and way.compiler == "g++":
            given += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]  # GCC warns of its own header there
        compile_(target, CSRC / building.KERNEL, *given)
    statuses = [job.wait() for job in jobs]
    if any(statuses):
        raise SystemExit(f"{way.compiler} does not build the driver")
    program = folder / "driver"
    subprocess.run([way.compiler, *flags, *objects, *LIBRARIES, "-o", str(program)], check=True)
    return program


def _probe(way: Way, folder: Path) -> None:
    """`Lacking` where not even an empty program can be built and run in this way."""
    if not way.arm and platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        raise Lacking(f"this is a {platform.machine()}")
    for program in (way.compiler, *way.under[:1]):
        if not shutil.which(program):
            raise Lacking(f"{program} is not on PATH")
    source, program = folder / "empty.cpp", str(folder / "empty")
    source.write_text("#include <vector>\nint main() { return 0; }\n")
    for command in ([way.compiler, *way.flags, str(source), *LIBRARIES, "-o", program], [*way.under, program]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Lacking(f"{command[0]} {' '.join(way.flags)} does not work: {said[-1] if said else done.returncode}")


def version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", nargs="?", choices=WAYS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    given = parser.parse_args()
    if given.way is None:
        print("\n".join(f"{name:16} {' '.join((w.compiler, *w.flags, *w.under))}" for name, w in WAYS.items()))
        return 0
    way = WAYS[given.way]
    try:
        with tempfile.TemporaryDirectory(prefix="lengthwise-") as made:
            program = built(way, Path(made))
            print("; ".join(version(p) for p in (way.compiler, *way.under[:1])), flush=True)
            return subprocess.run([*way.under, str(program), str(given.seed), str(given.cases)], check=False).returncode
    except Lacking as error:
        print(error)
        return LACKING


if __name__ == "__main__":
    sys.exit(main())
