"""Imports go one way: the order of the parts, which of them never see torch, and what that means in a fresh process."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "lengthwise"

# A part may import the parts of earlier rows; parts in one row do not know each other. `measurements` has declarations,
# whose functions import PyTorch and later parts when they are called. `measurements.inside` is what they compute inside
# models.
ORDER = [
    {
        "values",
        "cache_folder",
        "child_processes",
        "machine_memory",
        "torchrun",
        "transformers_versions",
    },
    {"validation"},
    {"user_classes", "metrics", "new_folder"},
    {"versions"},
    {"errors"},
    {"config"},
    {"plugins"},
    {"measurements"},
    {"span", "baselines", "native", "corpora"},
    {"forms", "downstream"},
    {"encodings", "positions", "tasks"},
    {"attention"},
    {"inspection"},
    {"inspection_picture"},
    {"models"},
    {"training", "conformance"},
    {"evaluation"},
    {"measurements.inside"},
    {"store"},
    {"analysis"},
    {"report"},
    {"trackers"},
    {"studies", "serve", "exchange"},
    {"speed", "huggingface"},
    {"reach"},
    {"extend"},
    {"cli"},
    {"__main__"},
]
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}
WITHOUT_TORCH = {
    "validation",
    "values",
    "torchrun",
    "cache_folder",
    "child_processes",
    "machine_memory",
    "metrics",
    "user_classes",
    "versions",
    "errors",
    "config",
    "plugins",
    "corpora",
    "downstream",
    "measurements",
    "store",
    "analysis",
    "report",
    "trackers",
    "serve",
    "exchange",
}  # and so without every part that has torch
TORCH = {"torch", "triton", "safetensors.torch"}

FILES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to; an empty string for the package's own front."""
    parts = path.relative_to(SOURCE).parts
    return "" if parts[0] == "__init__.py" else part_of_module([part.removesuffix(".py") for part in parts])


def part_of_module(names: Sequence[str]) -> str:
    """The part of a module, given by its names below `lengthwise`."""
    return "measurements.inside" if list(names[:2]) == ["measurements", "inside"] else names[0]


def imported(path: Path) -> set[str]:
    """The full names of the modules that a file imports, wherever in the file it does so.

    Of the declarations of measurements, only what they import when they are loaded, without types.
    """
    package = ["lengthwise", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if part_of(path) == "measurements" else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} if module.count(".") else {f"{module}.{alias.name}" for alias in node.names} | {module}
    return found


def parts_imported(path: Path) -> set[str]:
    """The parts that a file imports."""
    parts = {part_of_module(name.split(".")[1:]) for name in imported(path) if name.startswith("lengthwise.")}
    return parts - {"__version__", part_of(path)}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", [f for f in FILES if part_of(f)], ids=name_of)
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    assert part in RANK, f"{part} has no place in ORDER: give it one"
    back = {other for other in parts_imported(path) if RANK.get(other, len(ORDER)) >= RANK[part]}
    assert not back, f"{name_of(path)} imports {', '.join(sorted(back))}, which may not be known to {part}"


@pytest.mark.parametrize("path", [f for f in FILES if part_of(f) in WITHOUT_TORCH], ids=name_of)
def test_no_torch_in_what_a_report_needs(path: Path) -> None:
    names = imported(path)
    torch = {name for name in names if name in TORCH or name.split(".")[0] in TORCH}
    assert not torch, f"{name_of(path)} imports {', '.join(sorted(torch))}"
    others = parts_imported(path) - WITHOUT_TORCH
    assert not others, f"{name_of(path)} imports {', '.join(sorted(others))}, which may import torch"


def test_relative_imports_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "store").mkdir()
    file = tmp_path / "store" / "rows.py"
    file.write_text(
        "from ..tasks.text import Text\nfrom . import tables\ndef f():\n    from lengthwise import models\n"
    )
    assert parts_imported(file) == {"tasks", "models"}
    assert part_of(file) == "store"


def test_parts_of_measurements() -> None:
    names = {"base.py": "measurements", "recency.py": "measurements", "inside/bias.py": "measurements.inside"}
    assert {name: part_of(SOURCE / "measurements" / name) for name in names} == names


MODULES = [
    "lengthwise",
    *(f"lengthwise.{part}" for part in sorted(WITHOUT_TORCH | {"cli"}) if not part.startswith("probes.")),
]


def test_imports_load_no_torch_and_no_altair() -> None:
    """One after the other, so that one process is enough."""
    slow = "{'torch', 'altair'} & set(sys.modules)"
    code = f"import importlib, sys\nfor m in {MODULES}: importlib.import_module(m); {slow} and sys.exit(m)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_each_import_by_itself_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"


def test_the_list_of_measurements_loads_nothing_else() -> None:
    code = "import sys, lengthwise.measurements; print(*sorted(m for m in sys.modules if m.startswith('lengthwise.')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    loaded = {part_of_module(name.split(".")[1:]) for name in ran.stdout.split()}
    assert loaded == {"measurements", "config", "user_classes", "validation", "values", "versions"}, ran.stderr


def test_touching_an_encoding_loads_torch() -> None:
    """Or else the tests above prove nothing."""
    code = "import sys, lengthwise; lengthwise.encodings; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "True", ran.stderr


@pytest.mark.medium
def test_importing_a_module_changes_no_other() -> None:
    code = """
import importlib, sys
import lengthwise.encodings, lengthwise.positions
for later in ("attention", "models", "conformance"):
    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "lengthwise"}
    before = {name: dict(vars(module)) for name, module in ours.items()}
    importlib.import_module(f"lengthwise.{later}")
    for name, module in ours.items():
        for key, value in vars(module).items():
            if sys.modules.get(f"{name}.{key}") is not value and before[name].get(key, before) is not value:
                print(later, name, key)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr + ran.stdout
