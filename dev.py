#!/usr/bin/env python3
"""Set up Lengthwise in this folder and run it: python3 dev.py COMMAND [OPTIONS] [ARGUMENTS]

The first call makes an environment, .venv beside this file, and installs the tested set of packages (constraints.txt)
with pip, or with uv where that is on PATH. Later calls start at once. Arguments go on to what the command runs.
"""

# The standard library alone, and nothing newer than Python 3.8, so that an old Python can still say what it lacks.
from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterable, NoReturn

ROOT = Path(__file__).resolve().parent
OLDEST, NEWEST = (3, 11), (3, 14)  # the Pythons that the pinned torch is built for
FACTS = {"root", "python", "torch", "extras", "inputs"}
STAMP = "lengthwise-dev.json"  # in the environment: what was installed, complete only after it succeeded
BORROWED = "lengthwise-installed-torch.pth"  # in its site-packages: the folders of the Python whose torch is used
TORCH_INDEX = "https://download.pytorch.org/whl/"  # PyTorch's own; asked only after --torch cpu or --torch cuda
TORCH_BUILDS = {"cpu": "cpu", "cuda": "cu130"}

COMMANDS = {  # name: (extras it needs, what it does)
    "demo": (["lab"], "train short, test long on real text: lengthwise run studies/quickstart.py"),
    "test": (["lab", "test"], "run the tests with pytest"),
    "test-slow": (["lab", "test"], "run the slow tests, which `test` leaves out"),
    "check": (["dev", "lab", "test"], "lint, formatting and types: ruff and mypy"),
    "bench": (["lab"], "run one script of benchmarks/ by its name; without a name, list them"),
    "outside": (["lab", "outside"], "ask the position encodings of other libraries: lengthwise check --outside"),
    "docs": (["lab"], "check that links and commands named in the documentation exist"),
}
OPTIONS = """\
options (remembered by the environment until another is given):
  --torch cpu            on Linux: PyTorch's CPU build from PyTorch's own index, about 200 MB instead of gigabytes
  --torch cuda           PyTorch's CUDA build from PyTorch's own index (PyPI's is it already on Linux, not on Windows)
  --torch default        whatever pip finds as configured
  --use-installed-torch  keep the torch of the Python that runs dev.py (alias: --system-torch)

environment variables:
  LENGTHWISE_VENV        folder of the environment instead of .venv
  LENGTHWISE_INSTALLER   pip or uv; without it uv where it is on PATH, otherwise pip"""


def stop(message: str) -> NoReturn:
    print(f"dev.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def say(message: str) -> None:
    print(f"dev.py: {message}", flush=True)


def near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


# ---- the Python that runs this file ----------------------------------------------------------------------------


def require_python() -> None:
    """Go on with a newer Python from PATH when this one is too old, or say so."""
    if sys.version_info[:2] >= OLDEST:
        return
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        newer = shutil.which(f"python3.{minor}")
        if newer and subprocess.run([newer, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            become([newer, str(ROOT / "dev.py"), *sys.argv[1:]])
    here = f"{dotted(sys.version_info[:3])} ({sys.executable})"
    stop(f"Lengthwise needs Python {dotted(OLDEST)} or newer, this is {here}; install one and repeat")


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def become(command: list[str], env: dict[str, str] | None = None) -> NoReturn:
    """Run `command` in the repository's folder in place of this process."""
    sys.stdout.flush()
    env = dict(os.environ) if env is None else env
    if os.name == "nt":  # there exec returns to the shell while the new process still runs
        raise SystemExit(subprocess.call(command, cwd=ROOT, env=env))
    os.chdir(ROOT)
    os.execve(command[0], command, env)


# ---- the environment -------------------------------------------------------------------------------------------


class Environment:
    """The virtual environment in `folder`: what is there, and what is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")
        self.version, self.packages = self._ask()

    def _ask(self) -> tuple[str, Path | None]:
        """Its Python's version and its site-packages, or an empty version where no Python answers."""
        ask = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_path('purelib'), sep='|')"
        try:
            out = subprocess.run([str(self.python), "-I", "-c", ask], stdout=subprocess.PIPE, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return "", None
        version, packages = out.decode().strip().split("|", 1)
        return version, Path(packages)

    def known(self) -> dict[str, Any]:
        """What the last installation wrote down."""
        try:
            known = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) and set(known) >= FACTS else {}

    def remember(self, facts: dict[str, Any]) -> None:
        new = self.folder / (STAMP + ".new")
        new.write_text(json.dumps(facts, indent=1), encoding="utf-8")
        os.replace(new, self.folder / STAMP)

    def facts(self, extras: list[str], torch: str) -> dict[str, Any]:
        inputs = hashlib.sha256()
        for name in ("pyproject.toml", "constraints.txt"):
            inputs.update((ROOT / name).read_bytes())
        inputs_hash = inputs.hexdigest()
        return {"root": str(ROOT), "python": self.version, "torch": torch, "extras": extras, "inputs": inputs_hash}

    def make(self) -> None:
        """A fresh environment with nothing in it."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            if not (self.folder / "pyvenv.cfg").exists():
                stop(f"{self.folder} is not empty and no Python environment; name another folder in LENGTHWISE_VENV")
            if Path(sys.prefix).resolve() == self.folder.resolve():
                stop(f"{self.folder} must be made anew; run dev.py with a Python outside it")
        say(f"making {self.folder} with Python {dotted(sys.version_info[:3])}")
        uv = find_uv()
        if uv:
            command = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder)]
        elif importlib.util.find_spec("venv"):
            # pip comes later: Debian's Python has venv, but may lack the ensurepip that venv would call
            command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(self.folder)]
        else:
            stop(f"this Python ({sys.executable}) has no venv module: {HOW_TO_GET_PIP}")
        if subprocess.call(command) != 0:
            stop(f"could not make {self.folder}: {' '.join(command)} failed, as said above")
        self.version, self.packages = self._ask()
        if not self.version:
            stop(f"{self.python} does not start; delete {self.folder} and repeat")

    def has_torch(self) -> bool:
        return self.packages is not None and any(self.packages.glob("torch-*.dist-info"))


HOW_TO_GET_PIP = "on Debian and Ubuntu `apt install python3-venv` brings it, or put uv on PATH; then repeat"


def find_uv() -> str | None:
    wish = os.environ.get("LENGTHWISE_INSTALLER", "")
    if wish not in ("", "pip", "uv"):
        stop(f"LENGTHWISE_INSTALLER is {wish!r}; it can be pip or uv")
    uv = None if wish == "pip" else shutil.which("uv")
    if wish == "uv" and not uv:
        stop("LENGTHWISE_INSTALLER is uv, but no uv is on PATH; install it or unset the variable")
    return uv


# ---- installing ------------------------------------------------------------------------------------------------


def quiet(command: list[str]) -> bool:
    """Whether `command` succeeds; what it prints is nobody's business."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def pip_settings() -> dict[str, list[str]]:
    """pip's find-links and index-url as configured, for uv, which does not read pip's configuration."""
    found: dict[str, list[str]] = {"find-links": [], "index-url": []}
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=False,
                            stderr=subprocess.DEVNULL).stdout.decode()  # fmt: skip
    lines = [line.partition("=") for line in listed.splitlines()]
    lines += [("." + key, "=", repr(os.environ.get(name, ""))) for key, name in
              (("find-links", "PIP_FIND_LINKS"), ("index-url", "PIP_INDEX_URL"))]  # fmt: skip
    for name, _, value in lines:
        key = name.rpartition(".")[2]
        if key in found:
            for one in ast.literal_eval(value).split():
                if one not in found[key]:
                    found[key].append(one)
    return found


def installer(environment: Environment, torch: str) -> list[str]:
    """The command that installs into the environment, to which requirements are added."""
    python = str(environment.python)
    uv = find_uv()
    if uv and torch != "installed":  # uv does not see packages that a .pth file brings in, and would install torch anew
        settings = pip_settings()
        links = [word for link in settings["find-links"] for word in ("--find-links", link)]
        index = settings["index-url"][-1:] if "UV_DEFAULT_INDEX" not in os.environ else []
        return [uv, "pip", "install", "--python", python, *links, *(w for i in index for w in ("--default-index", i))]
    pip = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = ["install", "--no-warn-script-location"]
    if not quiet([python, "-m", "pip", "--version"]):
        quiet([python, "-m", "ensurepip", "--upgrade", "--default-pip"])
    if quiet([python, "-m", "pip", "--version"]):
        return [python, *pip, *install]
    if quiet([sys.executable, "-m", "pip", "--python", python, "--version"]):  # pip 22.3 and newer
        return [sys.executable, *pip, "--python", python, *install]
    stop(f"this Python ({sys.executable}) has neither pip nor ensurepip: {HOW_TO_GET_PIP}")


def install(command: list[str], what: list[str]) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("PIP_USER", "PIP_TARGET", "PIP_PREFIX")}
    code = subprocess.call([*command, *what], cwd=ROOT, env=env)
    if code == 0:
        return
    tool = "uv" if Path(command[0]).stem == "uv" else "pip"
    reason = "Usually there is no network or no space left on the disk"
    if sys.version_info[:2] > NEWEST:
        reason = f"the pinned set is for Python {dotted(OLDEST)} to {dotted(NEWEST)}, run dev.py with one of these"
    stop(f"{tool} could not install (exit code {code}); its own words are above. {reason}; repeat to go on")


def pinned(name: str) -> str:
    found = re.search(rf"^{name}==([^\s;]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert found, f"constraints.txt does not pin {name}"
    return found[1]


def set_up(extras: list[str], torch: str | None) -> Environment:
    """The environment with `extras` installed; does nothing where the stamp says that they are."""
    environment = Environment(Path(os.environ.get("LENGTHWISE_VENV") or ROOT / ".venv").expanduser().absolute())
    known = environment.known()
    torch = torch or known.get("torch", "default")
    extras = sorted({*extras, *known.get("extras", [])})
    if environment.version and known == environment.facts(extras, torch):
        return environment
    if environment.version and tuple(map(int, environment.version.split("."))) < OLDEST:
        stop(f"{environment.folder} has Python {environment.version}, too old; delete it or set LENGTHWISE_VENV")
    if torch == "installed" and not borrowable():
        have = f"torch {installed_torch()}" if installed_torch() else "no torch"
        stop(f"{sys.executable} has {have}; --use-installed-torch needs {dotted(oldest_torch())} or newer")
    if not environment.version or (known and (known["torch"], known["python"]) != (torch, environment.version)):
        environment.make()
    facts = environment.facts(extras, torch)
    environment.remember({**facts, "inputs": "unfinished"})  # interrupted, it starts from here with the same choices
    if torch == "installed":
        borrow(environment)
    hint(environment, torch)
    command = installer(environment, torch)
    say(f"installing lengthwise[{','.join(extras)}] into {environment.folder} (the first time takes minutes)")
    if torch in TORCH_BUILDS and not environment.has_torch():
        # One index for one package: as an extra index it would be asked for every other package too.
        install(command, ["--index-url", TORCH_INDEX + TORCH_BUILDS[torch], "--no-deps", "torch==" + pinned("torch")])
    constraints = environment.folder / "constraints.txt" if torch == "installed" else ROOT / "constraints.txt"
    install(command, ["-c", str(constraints), "-e", f".[{','.join(extras)}]"])
    environment.remember(facts)
    return environment


# ---- torch -----------------------------------------------------------------------------------------------------


def installed_torch() -> str:
    """The version of this Python's torch, or an empty string."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def oldest_torch() -> tuple[int, ...]:
    found = re.search(r'"torch>=(\d+)\.(\d+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found, "pyproject.toml does not say which torch it needs"
    return int(found[1]), int(found[2])


def borrowable() -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", installed_torch())
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= oldest_torch()


def borrow(environment: Environment) -> None:
    """Let the environment see this Python's packages, and pin nothing that this Python already has.

    A .pth file does it and not --system-site-packages, because that looks past the Python that runs us where that one
    lives in an environment itself, as it does on many GPU images.
    """
    assert environment.packages is not None
    path = environment.packages / BORROWED
    if Path(sys.prefix).resolve() != environment.folder.resolve():  # otherwise the file is there and stays as it is
        folders = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
        path.write_text("\n".join(folders) + "\n", encoding="utf-8")
    folders = path.read_text(encoding="utf-8").split("\n")
    distributions = importlib.metadata.distributions(path=[f for f in folders if f])
    has = {plain(d.metadata["Name"]) for d in distributions if d.metadata["Name"]}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if plain(re.split("[=;]", line)[0]) not in has]
    text = "\n".join([*kept, "torch==" + installed_torch()]) + "\n"
    (environment.folder / "constraints.txt").write_text(text, encoding="utf-8")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hint(environment: Environment, torch: str) -> None:
    """One line about torch before a large download that could be spared."""
    if torch != "default" or environment.has_torch():
        return
    if borrowable():
        say(f"this Python already has torch {installed_torch()}; to use it instead, repeat with --use-installed-torch")
        return
    nvidia = os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")
    if sys.platform != "linux" or nvidia:
        return
    links = [Path(re.sub("^file://", "", link)) for link in pip_settings()["find-links"]]
    if not any(link.is_dir() and any(link.glob("torch-*.whl")) for link in links):
        say("no NVIDIA driver here, and PyPI's torch for Linux brings gigabytes of CUDA; for PyTorch's CPU build "
            "press Ctrl-C and repeat with --torch cpu")  # fmt: skip


# ---- the commands ----------------------------------------------------------------------------------------------


def variables(environment: Environment, **more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"}
    path = str(environment.bin) + os.pathsep + env.get("PATH", "")
    return {**env, "VIRTUAL_ENV": str(environment.folder), "PATH": path, **more}


# The parts whose signatures have shapes: there types are checked while testing. Elsewhere wrong types are a user's, and
# answered by the code itself.
SHAPED = [f"lengthwise.{part}" for part in ("span", "forms", "encodings", "positions", "attention", "models")]


def pytest(environment: Environment, which: str, arguments: list[str]) -> NoReturn:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    command = [str(environment.python), "-m", "pytest", "-n", str(min(cores, 4)), "-m", which, "--timeout", "300",
               "--jaxtyping-packages=" + ",".join((*SHAPED, "beartype.beartype")), *arguments]  # fmt: skip
    become(command, variables(environment, OMP_NUM_THREADS="1"))


def check(environment: Environment) -> int:
    failed = []
    for words in ("ruff check .", "ruff format --check .", "mypy src"):
        say(words)
        if subprocess.call([str(environment.python), "-m", *words.split()], cwd=ROOT) != 0:
            failed.append(words)
    say(f"failed: {', '.join(failed)}" if failed else "nothing to complain about")
    return 1 if failed else 0


def benchmarks() -> dict[str, str]:
    """The scripts in benchmarks/ and the first line of what each says of itself; what only they import is left out."""
    found = {}
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


# ---- the command line ------------------------------------------------------------------------------------------


def help_text() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {what}" for name, (_, what) in COMMANDS.items())
    return f"{__doc__}\ncommands:\n{commands}\n\n{OPTIONS}"


def parse(argv: list[str]) -> tuple[str, str | None, list[str]]:
    """The command, the wish for torch, and the arguments that go on."""
    command, torch, rest = "", None, []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word in ("--use-installed-torch", "--system-torch"):
            torch = "installed"
        elif word == "--torch" or word.startswith("--torch="):
            torch = word[8:] if "=" in word else words.pop(0) if words else ""
            if torch not in (*TORCH_BUILDS, "default"):
                stop(f"--torch is {torch!r}; it can be cpu, cuda or default")
        elif word == "--":
            rest += words
            break
        elif not command and word in ("-h", "--help", "help"):
            command = "help"
        elif not command and word.startswith("-"):
            stop(f"there is no option {word}; see python3 dev.py --help")
        elif not command:
            command = word
        else:
            rest.append(word)
    if torch == "cuda" and sys.platform == "darwin":
        stop("--torch cuda: there is no CUDA on macOS; leave the option out")
    if torch == "cpu" and sys.platform != "linux":
        torch = "default"  # there PyPI's build is the CPU build
    return command or "help", torch, rest


def main(argv: list[str]) -> int:
    require_python()
    command, torch, rest = parse(argv)
    if command == "help":
        print(help_text())
        return 0
    if command not in COMMANDS:
        stop(f"there is no command {command!r}{near(command, COMMANDS)}; there are: {', '.join(COMMANDS)}")
    if command == "bench" and (not rest or rest[0] not in benchmarks()):
        there = benchmarks()
        if rest:
            stop(f"there is no benchmark {rest[0]!r}{near(rest[0], there)}; there are: {', '.join(there) or 'none'}")
        print("\n".join(f"{name:20} {what}" for name, what in there.items()) or "there are no benchmarks yet")
        return 0
    environment = set_up(COMMANDS[command][0], torch)
    python = str(environment.python)
    if command == "demo":
        become([python, "-m", "lengthwise", "run", "studies/quickstart.py", *rest], variables(environment))
    if command == "bench":
        become([python, f"benchmarks/{rest[0]}.py", *rest[1:]], variables(environment))
    if command == "outside":
        become([python, "-m", "lengthwise", "check", "--outside", *rest], variables(environment))
    if command == "test":
        pytest(environment, "not slow and not gpu", rest)
    if command == "test-slow":
        pytest(environment, "slow and not gpu", rest)
    if command == "docs":
        become([python, "docs/check.py", *rest], variables(environment))
    return check(environment)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ndev.py: interrupted; repeat the command to go on", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        stop(str(error))
