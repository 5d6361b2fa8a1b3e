"""dev.py: what it installs and when, what it remembers, and its plain words; without network and without installing."""

import ast
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Installs:
    """Stands in for pip: takes down what would be installed, and fails when told to."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fail = False

    def __call__(self, command: list[str], what: list[str]) -> None:
        self.asked.append(what)
        if self.fail:
            raise KeyboardInterrupt


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    module = load(ROOT / "dev.py")
    monkeypatch.setenv("LENGTHWISE_VENV", str(tmp_path / "venv"))
    monkeypatch.setenv("LENGTHWISE_INSTALLER", "pip")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "install", Installs())
    monkeypatch.setattr(module, "installer", lambda environment, torch: ["pip"])
    monkeypatch.setattr(module, "hint", lambda environment, torch: None)
    return module


# ---- set-up ----------------------------------------------------------------------------------------------------


def test_installs_once_against_the_pinned_set(dev: Any) -> None:
    environment = dev.set_up(["lab"], None)
    assert environment.python.exists()
    assert dev.install.asked == [["-c", str(dev.ROOT / "constraints.txt"), "-e", ".[lab]"]]
    dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 1


def test_extras_add_up(dev: Any) -> None:
    dev.set_up(["lab"], None)
    dev.set_up(["test"], None)
    dev.set_up(["lab"], None)
    assert [what[-1] for what in dev.install.asked] == [".[lab]", ".[lab,test]"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_installs_again_when_what_it_reads_changed(dev: Any, name: str) -> None:
    dev.set_up(["lab"], None)
    with (dev.ROOT / name).open("a") as file:
        file.write("# changed\n")
    dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 2


def test_installs_again_after_the_clone_was_moved(dev: Any, tmp_path: Path) -> None:
    dev.set_up(["lab"], None)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (moved / name).write_bytes((tmp_path / name).read_bytes())
    dev.ROOT = moved
    dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 2


def test_an_interrupted_installation_is_repeated_with_the_same_choices(dev: Any) -> None:
    dev.install.fail = True
    with pytest.raises(KeyboardInterrupt):
        dev.set_up(["lab"], "cpu")
    dev.install.fail = False
    dev.set_up(["lab"], None)
    torch, package = dev.install.asked[1:]
    assert torch[:2] == ["--index-url", "https://download.pytorch.org/whl/cpu"]
    assert torch[2:] == ["--no-deps", "torch==" + dev.pinned("torch")]
    assert package[-1] == ".[lab]"
    dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 3


def test_pytorch_index_is_never_asked_by_itself(dev: Any) -> None:
    dev.set_up(["lab"], None)
    assert "--index-url" not in dev.install.asked[0]


def test_another_torch_makes_the_environment_anew(dev: Any) -> None:
    environment = dev.set_up(["lab"], None)
    (environment.folder / "old").write_text("")
    dev.set_up(["lab"], "cpu")
    assert not (environment.folder / "old").exists()
    assert json.loads((environment.folder / dev.STAMP).read_text())["torch"] == "cpu"


def test_a_damaged_note_is_no_note(dev: Any) -> None:
    environment = dev.set_up(["lab"], None)
    for text in ("", "[]", '{"torch": "cpu"}', "\0"):
        (environment.folder / dev.STAMP).write_text(text)
        dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 5


def test_an_environment_whose_python_is_gone_is_made_anew(dev: Any) -> None:
    environment = dev.set_up(["lab"], None)
    environment.python.unlink()
    assert dev.set_up(["lab"], None).python.exists()
    assert len(dev.install.asked) == 2


def test_never_empties_a_folder_that_is_no_environment(dev: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.tex").write_text("years of work")
    with pytest.raises(SystemExit) as stopped:
        dev.set_up(["lab"], None)
    assert stopped.value.code == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "venv" / "thesis.tex").exists()


def test_installed_torch_is_seen_and_kept(dev: Any) -> None:
    """From a Python that lives in an environment itself, as here."""
    environment = dev.set_up(["lab"], "installed")
    code = "import importlib.metadata as m; print(m.version('torch'))"
    ran = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == importlib.metadata.version("torch")
    constraints = Path(dev.install.asked[0][1]).read_text()
    assert f"torch=={importlib.metadata.version('torch')}\n" in constraints
    assert "numpy==" not in constraints  # this Python has one, which stays
    dev.set_up(["lab"], None)
    assert len(dev.install.asked) == 1


@pytest.mark.parametrize(("version", "words"), [("", "no torch"), ("2.9.1+cu128", "torch 2.9.1+cu128")])
def test_installed_torch_must_be_new_enough(
    dev: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, version: str, words: str
) -> None:
    monkeypatch.setattr(dev, "installed_torch", lambda: version)
    with pytest.raises(SystemExit):
        dev.set_up(["lab"], "installed")
    assert f"has {words}; --use-installed-torch needs 2.11 or newer" in capsys.readouterr().err


def test_versions_are_compared_as_numbers(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, fits in {"2.11.0": True, "2.9.0": False, "10.0": True, "2.100.0a0+git": True, "": False}.items():
        monkeypatch.setattr(dev, "installed_torch", lambda version=version: version)
        assert dev.borrowable() is fits, version


# ---- installers ------------------------------------------------------------------------------------------------


def test_uv_gets_what_pip_is_configured_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dev: Any = load(ROOT / "dev.py")
    monkeypatch.setattr(dev, "find_uv", lambda: "/bin/uv")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels/a /wheels/b")
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\nfind-links = /wheels/c\n")
    command = dev.installer(dev.Environment(tmp_path / "none"), "default")
    links = [command[n + 1] for n, word in enumerate(command) if word == "--find-links"]
    assert {"/wheels/a", "/wheels/b"} <= set(links)
    assert command[command.index("--default-index") + 1] == "https://mirror.example/simple"
    assert command[:3] == ["/bin/uv", "pip", "install"]


def test_without_pip_and_ensurepip_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dev: Any = load(ROOT / "dev.py")
    monkeypatch.setattr(dev, "find_uv", lambda: None)
    monkeypatch.setattr(dev, "quiet", lambda command: False)
    said: list[str] = []

    def stop(message: str) -> None:
        said.append(message)
        raise SystemExit(2)

    monkeypatch.setattr(dev, "stop", stop)
    with pytest.raises(SystemExit):
        dev.installer(dev.Environment(tmp_path / "none"), "default")
    assert "apt install python3-venv" in said[0]


def test_pip_from_outside_serves_an_environment_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dev: Any = load(ROOT / "dev.py")
    monkeypatch.setattr(dev, "find_uv", lambda: None)
    monkeypatch.setattr(dev, "quiet", lambda command: command[0] == sys.executable)
    command = dev.installer(dev.Environment(tmp_path / "none"), "default")
    assert command[0] == sys.executable
    assert command[command.index("--python") + 1].startswith(str(tmp_path))


def test_a_failed_installation_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    dev: Any = load(ROOT / "dev.py")
    with pytest.raises(SystemExit) as stopped:
        dev.install([sys.executable, "-c", "raise SystemExit(3)"], [])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("dev.py: pip could not install (exit code 3)")
    assert error.count("\n") == 1


# ---- the command line ------------------------------------------------------------------------------------------


def test_old_pythons_can_read_it_and_it_needs_nothing() -> None:
    tree = ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_old_python_gets_a_plain_message(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    dev: Any = load(ROOT / "dev.py")
    monkeypatch.setattr(dev.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(dev.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        dev.main(["test"])
    assert stopped.value.code == 2
    assert "needs Python 3.11 or newer, this is 3.9.2" in capsys.readouterr().err


def test_an_old_python_hands_over_to_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dev: Any = load(ROOT / "dev.py")
    monkeypatch.setattr(dev.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(dev.shutil, "which", lambda name: sys.executable if name == "python3.12" else None)
    monkeypatch.setattr(dev.sys, "argv", ["dev.py", "test", "-x"])

    def become(command: list[str]) -> None:
        raise SystemExit(str(command[2:]))

    monkeypatch.setattr(dev, "become", become)
    with pytest.raises(SystemExit, match=re.escape("['test', '-x']")):
        dev.main(["test"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["test", "-k", "fire"], ("test", None, ["-k", "fire"])),
        (["--use-installed-torch", "demo"], ("demo", "installed", [])),
        (["demo", "--torch=default", "--seeds", "2"], ("demo", "default", ["--seeds", "2"])),
        (["test", "--", "--torch", "x"], ("test", None, ["--torch", "x"])),
        (["test", "--help"], ("test", None, ["--help"])),
        ([], ("help", None, [])),
    ],
)
def test_its_own_options_are_taken_out(words: list[str], expected: tuple[str, str | None, list[str]]) -> None:
    assert load(ROOT / "dev.py").parse(words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tests"], "there is no command 'tests'; did you mean test"),
        (["--torhc", "cpu", "demo"], "there is no option --torhc"),
        (["demo", "--torch", "rocm"], "--torch must be cpu, cuda or default, got 'rocm'"),
        (["bench", "no-such-benchmark"], "there is no benchmark 'no-such-benchmark'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    ran = subprocess.run([sys.executable, ROOT / "dev.py", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_help_names_every_command_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_VENV", str(tmp_path / "venv"))
    ran = subprocess.run([sys.executable, ROOT / "dev.py", "--help"], capture_output=True, text=True, check=True)
    for command in load(ROOT / "dev.py").COMMANDS:
        assert re.search(rf"^  {command} +\w", ran.stdout, re.M)
    assert not (tmp_path / "venv").exists()


def test_a_repeated_call_goes_on_at_once(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def become(command: list[str], env: dict[str, str]) -> None:
        raise SystemExit(" ".join(command[1:]))

    monkeypatch.setattr(dev, "become", become)
    dev.set_up(["lab"], None)
    start = time.perf_counter()
    with pytest.raises(SystemExit, match=r"-m lengthwise run quickstart --steps 5"):
        dev.main(["demo", "--steps", "5"])
    assert time.perf_counter() - start < 2
    assert len(dev.install.asked) == 1


def test_other_libraries_are_installed_only_to_be_asked(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def become(command: list[str], env: dict[str, str]) -> None:
        raise SystemExit(" ".join(command[1:]))

    monkeypatch.setattr(dev, "become", become)
    with pytest.raises(SystemExit, match="-m comparisons alibi --json"):
        dev.main(["outside", "alibi", "--json"])
    assert dev.install.asked[0][-1] == ".[lab,outside]"
    asking = [name for name, (extras, _) in dev.COMMANDS.items() if "outside" in extras]
    assert asking == ["test-newest", "outside"]


def test_newest_releases_have_an_environment_of_their_own(
    dev: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is pinned there, and each call looks for newer releases of torch and of libraries beyond pyproject.toml's
    ranges.
    """
    ran: list[list[str]] = []

    def become(command: list[str], env: dict[str, str]) -> None:
        ran.append(command)
        raise SystemExit

    monkeypatch.setattr(dev, "become", become)
    dev.set_up(["lab"], None)
    index = ["--index-url", "https://download.pytorch.org/whl/cpu", "--no-deps"]
    upgraded = [[*index, "--upgrade", "torch"], ["--upgrade", "transformers", "x-transformers", "fla-core", "peft"]]
    expected = [[*index, "torch"], ["-e", ".[lab,outside,test]"], *upgraded]
    for arguments in (["test-newest", "--torch", "cpu"], ["test-newest", "-k", "fox"]):
        with pytest.raises(SystemExit):
            dev.main(arguments)
        assert dev.install.asked[1:] == expected
        assert ran[-1][0] == str(dev.Environment(tmp_path / "venv-newest").python)
        expected += upgraded
    assert ran[-1][-2:] == ["-k", "fox"]
    assert [part for part in dev.TESTS_OF_LIBRARIES if not (ROOT / part).exists()] == []
    assert json.loads((tmp_path / "venv" / dev.STAMP).read_text())["extras"] == ["lab"]


@pytest.mark.parametrize(("torch", "further"), [("default", ["torch"]), ("installed", [])])
def test_the_newest_torch_is_that_of_the_options(dev: Any, torch: str, further: list[str]) -> None:
    dev.set_up(["lab"], torch, newest=True)
    assert dev.install.asked == [["-e", ".[lab]"], ["--upgrade", *dev.LIBRARIES, *further]]


def test_benchmarks_are_listed(dev: Any, capsys: Any) -> None:
    (dev.ROOT / "benchmarks").mkdir()
    (dev.ROOT / "benchmarks" / "speed.py").write_text(
        '"""How fast.\n\nMore."""\nif __name__ == "__main__":\n    pass\n'
    )
    (dev.ROOT / "benchmarks" / "part.py").write_text('"""Imported by the others."""\n')
    assert dev.main(["bench"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1) == ["speed", "How fast.\n"]
    assert dev.install.asked == []


# ---- the pinned set --------------------------------------------------------------------------------------------

PINNED = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def requirements() -> list[Requirement]:
    """What pyproject.toml asks for, with every extra that is part of the pinned set.

    The storage services cannot be: botocore, which s3fs brings along, needs python-dateutil < 3. lm-eval brings 30
    packages, and the trackers some 20 each, except for TensorBoard.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left_out = ("s3", "gcs", "lm-eval", "wandb", "mlflow", "trackio")
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in left_out]
    return [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]


def test_every_pin_is_one_plain_version() -> None:
    for pin in PINNED:
        assert re.fullmatch(r"==[^+*,]+", str(pin.specifier)), f"{pin}: neither a local version nor a range"
        assert pin.url is None
    assert len({canonicalize_name(pin.name) for pin in PINNED}) == len(PINNED)
    assert not re.search(r"^\s*-|://", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)


def test_the_pinned_set_is_complete() -> None:
    """Everything that Lengthwise and its extras bring along, as far as it is installed here."""
    pinned = {canonicalize_name(pin.name): pin for pin in PINNED}
    queue = requirements()
    seen = {"lengthwise"}
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or re.match("(nvidia|cuda)-", name):
            continue
        seen.add(name)
        assert name in pinned, f"constraints.txt lacks {name}"
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        further = [Requirement(line) for line in needs]
        queue += [r for r in further if r.marker is None or r.marker.evaluate({"extra": ""})]


def test_the_pins_fit_the_ranges() -> None:
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in PINNED}
    for requirement in requirements():
        if requirement.name != "lengthwise":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), str(requirement)


# ---- documentation ---------------------------------------------------------------------------------------------


def test_broken_links_are_found(tmp_path: Path) -> None:
    check = load(ROOT / "docs" / "check.py")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# One, two\n```\n# no heading\n[x](nowhere)\n```\n[up](../README.md)\n")
    (tmp_path / "README.md").write_text(
        "[a](docs/a.md#one-two) [b](docs/b.md) [c](docs/a.md#no-heading) [d](https://example.org/x)\n"
        '<img src="docs/picture.png"> `[e](missing)`\n'
    )
    assert check.broken_links(tmp_path) == [
        "README.md: docs/b.md: no such file",
        "README.md: docs/a.md#no-heading: no such heading",
        "README.md: docs/picture.png: no such file",
    ]


def test_uneven_tables_are_found(tmp_path: Path) -> None:
    check = load(ROOT / "docs" / "check.py")
    (tmp_path / "docs").mkdir()
    table, code = "| a | b |\n|---|---|\n| 1 | \\|x\\| |\n| 2 |\n", "```\n| a |\n| b | c |\n```\n"
    (tmp_path / "README.md").write_text(f"{table}\n| c |\n|---|\n{code}")
    found = ["README.md: not as many cells as in the row above: | 2 |"]
    assert check.uneven_tables(tmp_path) == found


def test_named_commands_are_found(tmp_path: Path) -> None:
    check = load(ROOT / "docs" / "check.py")
    text = (
        "Run `lengthwise compare a b`, or\n```\n$ lengthwise run x.py\n    lengthwise show ab\n```\nlengthwise.attend\n"
    )
    (tmp_path / "README.md").write_text(text)
    assert set(check.named_commands(tmp_path, "lengthwise")) == {"compare", "run", "show"}


def test_links_of_our_pages_lead_somewhere() -> None:
    assert load(ROOT / "docs" / "check.py").broken_links(ROOT) == []
