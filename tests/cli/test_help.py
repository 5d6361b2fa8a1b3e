"""The help of all commands."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.cli.app import COMMANDS
from lengthwise.cli.export import app as export
from lengthwise.measurements import PROBES
from lengthwise.store import open_store

Call = Callable[..., Any]


EXPORTS = [name for name in export if not name.startswith("-")]


@pytest.mark.parametrize("verb", [*COMMANDS, *(f"export {part}" for part in EXPORTS)])
def test_every_verb_has_help_with_an_example(here: Call, verb: str) -> None:
    ran = here(*verb.split(), "--help")
    assert ran.code == 0
    assert f"Example: lengthwise {verb}" in ran.out
    require_words(ran.out)


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_has_help_with_its_options(here: Call, name: str) -> None:
    ran = here("probe", name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: lengthwise probe {name} ")
    options = {"length": "lengths"}
    for part in PROBES[name].Options.fields():
        assert f"│ --{options.get(part.name, part.name)} " in ran.out
    assert ("│ --against " in ran.out) == PROBES[name].compares
    require_words(ran.out)


def require_words(help: str) -> None:
    """Every option has a description."""
    for option in help.split("Parameters")[-1].splitlines():
        assert not option.startswith("│ --") or len(option.split()) > 4, f"no words about {option}"


def test_help_lists_every_verb(here: Call) -> None:
    ran = here("--help")
    assert ran.code == 0
    for verb in COMMANDS:
        assert f"│ {verb} " in ran.out
    assert here().out == ran.out
    assert here("--version").out.strip() == lengthwise.__version__


@pytest.mark.medium
def test_what_only_reads_results_imports_no_torch(finished: Path, tmp_path: Path) -> None:
    with open_store(finished, create=False) as store:
        key = store.runs()[0].key
    reading = [
        ["list", "runs"],
        ["list", "studies"],
        ["show", key],
        ["claims"],
        ["report", "--output", str(tmp_path / "page.html")],
    ]
    commands = [["--help"], ["run", "--help"], *([*words, "--results", str(finished)] for words in reading)]
    code = """
import json, sys
from lengthwise.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    print(code, sorted({m.split(".")[0] for m in sys.modules} & {"torch", "sqlalchemy"}), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines() == ["0 []"] * 2 + ["0 ['sqlalchemy']"] * 5
