#!/usr/bin/env python3
"""Set up Lengthwise in this folder and run it: python3 dev.py COMMAND [OPTIONS] [ARGUMENTS]

The first call creates a virtual environment, .venv in this folder, and installs the tested set of packages
(constraints.txt) with uv if it is on PATH, otherwise with pip. Later calls start at once. ARGUMENTS are passed on to
the program that the command runs.
"""

# Only the standard library and syntax of Python 3.8, so that an old Python can print what it lacks.
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
OLDEST, NEWEST = (3, 11), (3, 14)  # the Python versions that the pinned torch supports
FACTS = {"root", "python", "torch", "extras", "inputs"}
STAMP = "lengthwise-dev.json"  # in the environment: what was installed, complete only after it succeeded
BORROWED = "lengthwise-installed-torch.pth"  # in site-packages: the package folders of the Python whose torch is used
TORCH_INDEX = "https://download.pytorch.org/whl/"  # PyTorch's own index; used only with --torch cpu or --torch cuda
TORCH_BUILDS = {"cpu": "cpu", "cuda": "cu130"}

COMMANDS = {  # name: (required extras, description)
    "demo": (["lab"], "train seven encodings and write a report: lengthwise run quickstart"),
    "test": (["lab", "test"], "run the quick tests with pytest: five minutes on two cores (--types: check types)"),
    "test-medium": (["lab", "test"], "run the tests that take seconds: browsers, several processes, training"),
    "test-slow": (["lab", "test"], "run the slow tests: kills, every setting on every backend, large shapes"),
    "test-newest": (["lab", "outside", "test"], "run the tests of other libraries' newest releases, in .venv-newest"),
    "mutants": (["lab", "test"], "break the source in many small ways and see whether the tests notice (--help)"),
    "check": (["dev", "lab", "test"], "check lint, formatting and types with ruff and mypy"),
    "bench": (["lab"], "run one script of benchmarks/ by its name; without a name, list them"),
    "outside": (["lab", "outside"], "compare encodings with those of other libraries: comparisons/README.md"),
    "docs": (["lab"], "check that links and commands in the documentation exist"),
}
LIBRARIES = ["transformers", "x-transformers", "fla-core", "peft"]  # test-newest upgrades them and torch
TESTS_OF_LIBRARIES = ["tests/huggingface", "tests/reach", "tests/extend", "tests/cli/test_model.py",
                      "tests/models/test_layer_settings.py", "tests/evaluation", "tests/comparisons"]  # fmt: skip
OPTIONS = """\
options (stored in the environment and used again by later calls):
  --torch cpu            on Linux: PyTorch's CPU build from PyTorch's own index, about 200 MB instead of gigabytes
  --torch cuda           PyTorch's CUDA build from PyTorch's own index (on Linux, PyPI has the CUDA build too)
  --torch default        the build that pip finds with its own configuration
  --use-installed-torch  use the torch of the Python that runs dev.py (alias: --system-torch)

environment variables:
  LENGTHWISE_VENV        folder of the environment [default: .venv]; test-newest appends -newest
  LENGTHWISE_INSTALLER   pip or uv [default: uv if it is on PATH, otherwise pip]"""


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
    """If this Python is too old, run dev.py with a newer one from PATH, or stop with a message."""
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
    if os.name == "nt":  # on Windows, exec returns to the shell while the new process still runs
        raise SystemExit(subprocess.call(command, cwd=ROOT, env=env))
    os.chdir(ROOT)
    os.execve(command[0], command, env)


# ---- the environment -------------------------------------------------------------------------------------------


class Environment:
    """The virtual environment in `folder`, and what is installed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")
        self.version, self.packages = self._query_python()

    def _query_python(self) -> tuple[str, Path | None]:
        """Return the version of its Python and its site-packages, or an empty version if it has no working Python."""
        code = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_path('purelib'), sep='|')"
        try:
            out = subprocess.run([str(self.python), "-I", "-c", code], stdout=subprocess.PIPE, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return "", None
        version, packages = out.decode().strip().split("|", 1)
        return version, Path(packages)

    def known(self) -> dict[str, Any]:
        """Return what the last installation has stored."""
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
        """Create a new, empty environment."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            if not (self.folder / "pyvenv.cfg").exists():
                stop(f"{self.folder} is not empty and not a Python environment; set LENGTHWISE_VENV to another folder")
            if Path(sys.prefix).resolve() == self.folder.resolve():
                stop(f"{self.folder} must be created again; run dev.py with a Python outside it")
        say(f"creating {self.folder} with Python {dotted(sys.version_info[:3])}")
        uv = find_uv()
        if uv:
            command = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder)]
        elif importlib.util.find_spec("venv"):
            # pip is installed later: Debian's Python has venv, but may lack the ensurepip that venv would call
            command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(self.folder)]
        else:
            stop(f"this Python ({sys.executable}) has no venv module: {HOW_TO_GET_PIP}")
        if subprocess.call(command) != 0:
            stop(f"could not create {self.folder}: {' '.join(command)} failed, see its output above")
        self.version, self.packages = self._query_python()
        if not self.version:
            stop(f"{self.python} does not start; delete {self.folder} and run the command again")

    def has_torch(self) -> bool:
        return self.packages is not None and any(self.packages.glob("torch-*.dist-info"))


HOW_TO_GET_PIP = "on Debian and Ubuntu run `apt install python3-venv`, or put uv on PATH; then run the command again"


def find_uv() -> str | None:
    setting = os.environ.get("LENGTHWISE_INSTALLER", "")
    if setting not in ("", "pip", "uv"):
        stop(f"LENGTHWISE_INSTALLER must be pip or uv, got {setting!r}")
    uv = None if setting == "pip" else shutil.which("uv")
    if setting == "uv" and not uv:
        stop("LENGTHWISE_INSTALLER is uv, but no uv is on PATH; install it or unset the variable")
    return uv


# ---- installing ------------------------------------------------------------------------------------------------


def quiet(command: list[str]) -> bool:
    """Run `command` without its output, and return whether it succeeded."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def pip_settings() -> dict[str, list[str]]:
    """Return pip's configured find-links and index-url for uv, which does not read pip's configuration."""
    settings: dict[str, list[str]] = {"find-links": [], "index-url": []}
    output = subprocess.run([sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=False,
                            stderr=subprocess.DEVNULL).stdout.decode()  # fmt: skip
    lines = [line.partition("=") for line in output.splitlines()]
    lines += [("." + key, "=", repr(os.environ.get(name, ""))) for key, name in
              (("find-links", "PIP_FIND_LINKS"), ("index-url", "PIP_INDEX_URL"))]  # fmt: skip
    for name, _, value in lines:
        key = name.rpartition(".")[2]
        if key in settings:
            for address in ast.literal_eval(value).split():
                if address not in settings[key]:
                    settings[key].append(address)
    return settings


def installer(environment: Environment, torch: str) -> list[str]:
    """Return the command that installs into the environment; the requirements follow it."""
    python = str(environment.python)
    uv = find_uv()
    if uv and torch != "installed":  # uv ignores packages from a .pth file, and would install torch again
        settings = pip_settings()
        links = [argument for link in settings["find-links"] for argument in ("--find-links", link)]
        index = settings["index-url"][-1:] if "UV_DEFAULT_INDEX" not in os.environ else []
        return [uv, "pip", "install", "--python", python, *links, *(a for i in index for a in ("--default-index", i))]
    pip = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = ["install", "--no-warn-script-location"]
    if not quiet([python, "-m", "pip", "--version"]):
        quiet([python, "-m", "ensurepip", "--upgrade", "--default-pip"])
    if quiet([python, "-m", "pip", "--version"]):
        return [python, *pip, *install]
    if quiet([sys.executable, "-m", "pip", "--python", python, "--version"]):  # pip 22.3 and newer
        return [sys.executable, *pip, "--python", python, *install]
    stop(f"this Python ({sys.executable}) has neither pip nor ensurepip: {HOW_TO_GET_PIP}")


def install(command: list[str], requirements: list[str]) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("PIP_USER", "PIP_TARGET", "PIP_PREFIX")}
    code = subprocess.call([*command, *requirements], cwd=ROOT, env=env)
    if code == 0:
        return
    tool = "uv" if Path(command[0]).stem == "uv" else "pip"
    reason = "The usual reasons are no network and a full disk"
    if sys.version_info[:2] > NEWEST:
        reason = (
            f"The pinned packages are for Python {dotted(OLDEST)} to {dotted(NEWEST)}, run dev.py with one of these"
        )
    stop(
        f"{tool} could not install (exit code {code}); see its output above. {reason}; run the command again to "
        "continue"
    )


def pinned(name: str) -> str:
    match = re.search(rf"^{name}==([^\s;]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert match, f"constraints.txt does not pin {name}"
    return match[1]


def upgrade(command: list[str], torch: str) -> None:
    """Install the newest releases of LIBRARIES, beyond pyproject.toml's ranges, and of torch unless it is borrowed."""
    if torch in TORCH_BUILDS:
        install(command, ["--index-url", TORCH_INDEX + TORCH_BUILDS[torch], "--no-deps", "--upgrade", "torch"])
    install(command, ["--upgrade", *LIBRARIES, *(["torch"] if torch == "default" else [])])


def set_up(extras: list[str], torch: str | None, newest: bool = False) -> Environment:
    """Return the environment with `extras` installed. Do nothing if its stamp shows that they already are.

    `newest`: in an environment of its own and without constraints.txt, with newer releases of LIBRARIES and torch if
    there are.
    """
    folder = Path(os.environ.get("LENGTHWISE_VENV") or ROOT / ".venv").expanduser().absolute()
    environment = Environment(folder.with_name(folder.name + "-newest") if newest else folder)
    known = environment.known()
    torch = torch or known.get("torch", "default")
    extras = sorted({*extras, *known.get("extras", [])})
    if environment.version and known == environment.facts(extras, torch):
        if newest:
            upgrade(installer(environment, torch), torch)
        return environment
    if environment.version and tuple(map(int, environment.version.split("."))) < OLDEST:
        stop(
            f"{environment.folder} has Python {environment.version}, which is too old; delete it or set LENGTHWISE_VENV"
        )
    if torch == "installed" and not borrowable():
        version = f"torch {installed_torch()}" if installed_torch() else "no torch"
        stop(f"{sys.executable} has {version}; --use-installed-torch needs {dotted(oldest_torch())} or newer")
    if not environment.version or (known and (known["torch"], known["python"]) != (torch, environment.version)):
        environment.make()
    facts = environment.facts(extras, torch)
    environment.remember({**facts, "inputs": "unfinished"})  # after an interruption, continue with the same options
    if torch == "installed":
        borrow(environment)
    hint(environment, torch)
    command = installer(environment, torch)
    say(f"installing lengthwise[{','.join(extras)}] into {environment.folder} (the first time takes minutes)")
    if torch in TORCH_BUILDS and not environment.has_torch():
        # As an extra index, it would be searched for all other packages too.
        wanted = "torch" if newest else "torch==" + pinned("torch")
        install(command, ["--index-url", TORCH_INDEX + TORCH_BUILDS[torch], "--no-deps", wanted])
    constraints = environment.folder / "constraints.txt" if torch == "installed" else ROOT / "constraints.txt"
    install(command, [*([] if newest else ["-c", str(constraints)]), "-e", f".[{','.join(extras)}]"])
    if newest:
        upgrade(command, torch)
    environment.remember(facts)
    return environment


# ---- torch -----------------------------------------------------------------------------------------------------


def installed_torch() -> str:
    """Return the version of this Python's torch, or an empty string."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def oldest_torch() -> tuple[int, ...]:
    match = re.search(r'"torch>=(\d+)\.(\d+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert match, "pyproject.toml does not require a version of torch"
    return int(match[1]), int(match[2])


def borrowable() -> bool:
    match = re.match(r"(\d+)\.(\d+)", installed_torch())
    return match is not None and (int(match[1]), int(match[2])) >= oldest_torch()


def borrow(environment: Environment) -> None:
    """Make this Python's packages visible in the environment, and pin nothing that this Python already has.

    This uses a .pth file rather than --system-site-packages. If this Python runs in an environment itself, as on many
    GPU images, --system-site-packages would show the packages of its base installation instead.
    """
    assert environment.packages is not None
    path = environment.packages / BORROWED
    if Path(sys.prefix).resolve() != environment.folder.resolve():  # otherwise the file already exists
        folders = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
        path.write_text("\n".join(folders) + "\n", encoding="utf-8")
    folders = path.read_text(encoding="utf-8").split("\n")
    distributions = importlib.metadata.distributions(path=[f for f in folders if f])
    installed = {normalized(d.metadata["Name"]) for d in distributions if d.metadata["Name"]}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    missing = [line for line in lines if normalized(re.split("[=;]", line)[0]) not in installed]
    text = "\n".join([*missing, "torch==" + installed_torch()]) + "\n"
    (environment.folder / "constraints.txt").write_text(text, encoding="utf-8")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hint(environment: Environment, torch: str) -> None:
    """Print a hint before a large download of torch that could be avoided."""
    if torch != "default" or environment.has_torch():
        return
    if borrowable():
        say(f"this Python already has torch {installed_torch()}; to use it, run the command with --use-installed-torch")
        return
    nvidia = os.path.exists("/proc/driver/nvidia/version") or shutil.which("nvidia-smi")
    if sys.platform != "linux" or nvidia:
        return
    links = [Path(re.sub("^file://", "", link)) for link in pip_settings()["find-links"]]
    if not any(link.is_dir() and any(link.glob("torch-*.whl")) for link in links):
        say("there is no NVIDIA driver, and PyPI's torch for Linux includes gigabytes of CUDA; for PyTorch's CPU build "
            "press Ctrl-C and run the command with --torch cpu")  # fmt: skip


# ---- the commands ----------------------------------------------------------------------------------------------


def variables(environment: Environment, **more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"}
    path = str(environment.bin) + os.pathsep + env.get("PATH", "")
    return {**env, "VIRTUAL_ENV": str(environment.folder), "PATH": path, **more}


# With --types, tests check types and shapes at run time in these parts. Elsewhere tests pass wrong types on purpose,
# which the code itself must reject.
SHAPED = [f"lengthwise.{part}" for part in ("span", "forms", "encodings", "positions", "attention", "models")]


def pytest(environment: Environment, markers: str, arguments: list[str]) -> NoReturn:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, 4) + 1  # one more uses the cores while a test waits for other processes
    # "worksteal" gives neighbouring tests to the same worker, so that what the tests of a file share is made once.
    command = [str(environment.python), "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-m", markers,
               "--timeout", "300"]  # fmt: skip
    if "--types" in arguments:
        command.append("--jaxtyping-packages=" + ",".join((*SHAPED, "beartype.beartype")))
    command += [argument for argument in arguments if argument != "--types"]
    env = variables(environment, OMP_NUM_THREADS="1")
    # The workers and the hundreds of processes that tests start would each compile the tests and the package again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    become(command, env)


def check(environment: Environment) -> int:
    failed = []
    for command in ("ruff check .", "ruff format --check .", "mypy src"):
        say(command)
        if subprocess.call([str(environment.python), "-m", *command.split()], cwd=ROOT) != 0:
            failed.append(command)
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def benchmarks() -> dict[str, str]:
    """Return the scripts in benchmarks/ with the first line of their docstrings, without modules that they import."""
    scripts = {}
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            scripts[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return scripts


# ---- the command line ------------------------------------------------------------------------------------------


def help_text() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {description}" for name, (_, description) in COMMANDS.items())
    return f"{__doc__}\ncommands:\n{commands}\n\n{OPTIONS}"


def parse(argv: list[str]) -> tuple[str, str | None, list[str]]:
    """Return the command, the torch option, and the arguments for the program that the command runs."""
    command, torch, rest = "", None, []
    remaining = list(argv)
    while remaining:
        argument = remaining.pop(0)
        if argument in ("--use-installed-torch", "--system-torch"):
            torch = "installed"
        elif argument == "--torch" or argument.startswith("--torch="):
            torch = argument[8:] if "=" in argument else remaining.pop(0) if remaining else ""
            if torch not in (*TORCH_BUILDS, "default"):
                stop(f"--torch must be cpu, cuda or default, got {torch!r}")
        elif argument == "--":
            rest += remaining
            break
        elif not command and argument in ("-h", "--help", "help"):
            command = "help"
        elif not command and argument.startswith("-"):
            stop(f"there is no option {argument}; see python3 dev.py --help")
        elif not command:
            command = argument
        else:
            rest.append(argument)
    if torch == "cuda" and sys.platform == "darwin":
        stop("--torch cuda: there is no CUDA on macOS; omit the option")
    if torch == "cpu" and sys.platform != "linux":
        torch = "default"  # PyPI's build is the CPU build on other systems
    return command or "help", torch, rest


def main(argv: list[str]) -> int:
    require_python()
    command, torch, rest = parse(argv)
    if command == "help":
        print(help_text())
        return 0
    if command not in COMMANDS:
        stop(f"there is no command {command!r}{near(command, COMMANDS)}; available: {', '.join(COMMANDS)}")
    if command == "bench" and (not rest or rest[0] not in benchmarks()):
        scripts = benchmarks()
        if rest:
            stop(
                f"there is no benchmark {rest[0]!r}{near(rest[0], scripts)}; available: {', '.join(scripts) or 'none'}"
            )
        print(
            "\n".join(f"{name:20} {description}" for name, description in scripts.items()) or "there are no benchmarks"
        )
        return 0
    environment = set_up(COMMANDS[command][0], torch, newest=command == "test-newest")
    python = str(environment.python)
    if command == "demo":
        become([python, "-m", "lengthwise", "run", "quickstart", *rest], variables(environment))
    if command == "bench":
        become([python, f"benchmarks/{rest[0]}.py", *rest[1:]], variables(environment))
    if command == "outside":
        become([python, "-m", "comparisons", *rest], variables(environment))
    if command == "test":
        pytest(environment, "not medium and not slow and not gpu", rest)
    if command == "test-medium":
        pytest(environment, "medium and not slow and not gpu", rest)
    if command == "test-slow":
        pytest(environment, "slow and not gpu", rest)
    if command == "test-newest":
        pytest(environment, "not gpu", [*TESTS_OF_LIBRARIES, *rest])
    if command == "mutants":
        become([python, "tests/mutants.py", *rest], variables(environment))
    if command == "docs":
        become([python, "docs/check.py", *rest], variables(environment))
    return check(environment)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ndev.py: interrupted; run the same command again to continue", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        stop(str(error))
