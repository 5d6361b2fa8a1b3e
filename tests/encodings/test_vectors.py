"""The reference values are what their scripts say, and the scripts can know nothing of what they judge."""

import ast
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.conformance.vectors import FOLDER, load
from lengthwise.encodings import ENCODINGS, T5, ALiBi

VECTORS = Path(__file__).parent.parent / "vectors"
_spec = importlib.util.spec_from_file_location("make_vectors", VECTORS / "make.py")
assert _spec
assert _spec.loader
make_vectors = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_vectors)

SCRIPTS = make_vectors.scripts()


def test_the_suite_reads_this_folder() -> None:
    assert FOLDER == VECTORS


def test_every_encoding_has_vectors() -> None:
    for make in ENCODINGS:
        if make.__module__.startswith("lengthwise."):
            assert load(make), make.__name__


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_committed_values_are_what_the_script_says(script: Path) -> None:
    committed = json.loads(script.with_suffix(".json").read_text(encoding="utf-8"))
    assert alike(make_vectors.run(script), committed), (
        f"run python tests/vectors/make.py, and look at what changed in {script.stem}"
    )
    assert committed["how"].strip(), "a file says how it was made"
    assert {case["from"] for case in committed["cases"]} <= {"formula", "computed", "printed"}
    for case in committed["cases"]:
        assert ("source" in case) == (case["from"] == "printed"), f"{case['name']}: printed where?"


def alike(one: Any, other: Any) -> bool:
    """Equal, numbers up to what mathematical libraries differ in."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, float) and isinstance(other, (float, int)):
        return math.isclose(one, other, rel_tol=1e-13, abs_tol=1e-15)
    return bool(one == other)


@pytest.mark.parametrize("script", [*SCRIPTS, VECTORS / "shared.py"], ids=lambda path: path.stem)
def test_a_script_imports_only_the_standard_library(script: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    assert names <= {"cmath", "decimal", "json", "math", "shared"}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["torch", "lengthwise", "numpy"])
def test_the_interpreter_of_the_scripts_has_no_other(name: str, tmp_path: Path) -> None:
    """Or else the test above would be the only guard."""
    script = tmp_path / "peek.py"
    script.write_text(f"import {name}\nprint('{{}}')\n")
    with pytest.raises(RuntimeError, match="No module named"):
        make_vectors.run(script)
    assert subprocess.run([sys.executable, "-c", f"import {name}"], check=False).returncode == 0


def made(origin: str) -> set[str]:
    return {make.__name__ for make in ENCODINGS if any(case["from"] == origin for case in load(make))}


def test_only_digits_that_a_public_source_prints_are_called_printed() -> None:
    assert made("printed") == {"ALiBi", "T5", "Llama3", "LongRoPE"}
    printed = {case["name"] for make in (T5, ALiBi) for case in load(make) if case["from"] == "printed"}
    assert printed == {"B 5, D 6: the printed matrix", "8 heads"}


def test_digits_of_a_second_program() -> None:
    """The methods of the four papers are held against another program, not only against the script."""
    papers = {
        "NoPE",
        "Sinusoidal",
        "RoPE",
        "ALiBi",
        "T5",
        "KerpleLog",
        "KerplePower",
        "FIRE",
        "Sandwich",
        "XPos",
        "YaRN",
    }
    assert papers <= made("computed")
