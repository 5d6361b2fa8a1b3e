"""What the documents say is there is there, and what is there is documented."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import nn

from lengthwise import encodings
from lengthwise.analysis import reading
from lengthwise.cli import main
from lengthwise.encodings import ENCODINGS, RotaryEncoding
from lengthwise.metrics import EXACT_MATCH
from lengthwise.tasks import TASKS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST_README = 900  # words
LONGEST_ARCHITECTURE = 160  # lines, three screens


def test_links_and_commands_in_the_documents_exist():
    result = subprocess.run([sys.executable, ROOT / "docs" / "check.py"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_readme_is_short():
    assert len(README.split()) <= LONGEST_README


def test_every_verb_is_documented_and_has_an_example(capsys):
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert main(["--help"]) == 0
    verbs = re.findall(r"^│ ([a-z][a-z-]*) ", capsys.readouterr().out, flags=re.M)
    assert len(verbs) >= 7
    for verb in verbs:
        assert f"lengthwise {verb}" in commands, verb
        assert main([verb, "--help"]) == 0
        assert re.search(rf"lengthwise {verb} \S", capsys.readouterr().out), f"{verb} --help has no example"


@pytest.mark.parametrize("make", list(ENCODINGS), ids=lambda make: make.__name__)
def test_an_encoding_says_where_it_comes_from_and_what_it_does_beyond(make):
    text = inspect.getdoc(make) or ""
    assert "Source:" in text
    assert re.search(r"[Bb]eyond the\s+training length", text)
    assert ">>>" in text
    assert make.__name__ in encodings.__all__


def test_the_readme_leads_to_a_page_for_every_encoding():
    """The pages are made from the list; the README names none that would have to be added by hand."""
    assert "docs/encodings/README.md" in README
    index = (ROOT / "docs" / "encodings" / "README.md").read_text(encoding="utf-8")
    for make in ENCODINGS:
        assert f"[{make.__name__}](" in index, make.__name__


WITH_EXAMPLES = [make for make in (*ENCODINGS, *TASKS) if ">>>" in (make.__doc__ or "")]


@pytest.mark.parametrize("make", WITH_EXAMPLES, ids=lambda make: make.__name__)
def test_the_examples_in_docstrings_are_true(make):
    torch.manual_seed(0)
    known = {**vars(encodings), **vars(importlib.import_module(make.__module__)), "torch": torch, "nn": nn}
    finder, runner = (
        doctest.DocTestFinder(recurse=False),
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL),
    )
    for test in finder.find(make, make.__name__, globs=known):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


def test_the_readmes_python_runs():
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", README, flags=re.S) if "lengthwise.attend" in c)
    space: dict[str, object] = {}
    exec(code, space)
    assert isinstance(space["out"], torch.Tensor)
    assert isinstance(space["rope"], RotaryEncoding)


def test_the_architecture_lists_every_package_and_names_what_exists():
    """The tree has every package and top-level module, and every file that the page names exists."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "lengthwise"
    name = r"[\w/.-]+(?:/|\.(?:py|md|h|cpp)\b)"  # of a folder or a file
    before, tree, after = re.split(r"```\nsrc/lengthwise/\n(.*?)```", text, flags=re.S)
    entries, folders = set(), [source]
    for indent, names, description in re.findall(r"^( +)(\S+(?:, \S+)*)  +(.+)$", tree, flags=re.M):
        folders[len(indent) // 2 :] = [folders[len(indent) // 2 - 1] / names]
        entries |= {folders[-2] / entry for entry in names.split(", ")}
        for file in re.findall(name, description):
            assert (folders[-1] / file).exists(), (names, file)
    assert len(tree.splitlines()) == len(re.findall(r"^ +\S", tree, flags=re.M))
    assert [entry for entry in entries if not entry.exists()] == []
    packages = {path.parent for path in source.rglob("__init__.py")} - {source}
    modules = {path for path in source.glob("*.py") if not path.name.startswith("__")}
    assert packages | modules <= entries, (packages | modules) - entries
    for file in re.findall(rf"`({name})`", before + after):
        assert "NAME" in file or (source / file).exists() or (ROOT / file).exists(), file
    assert len(text.splitlines()) <= LONGEST_ARCHITECTURE


def test_the_glossary_explains_every_verdict():
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    sentences = reading.verdict_verbs(SimpleNamespace(metric=EXACT_MATCH))
    assert {*sentences, "unlearned", "unclear"} == set(get_args(reading.Verdict))
    for singular, _ in (*sentences.values(), reading.UNLEARNED, reading.UNCLEAR, reading.FAILED_SHIFTED_TEST):
        words = re.match(r"(?:has (?!not)|is )?(.+?)(?: at the training length)?(?: \(|:|$)", singular)[1]
        assert f"| {words} |" in glossary
