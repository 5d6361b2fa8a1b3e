"""What a run's key contains of a class: its version, or the hash of its source files."""

import importlib
import sys
import types
import zipfile
from pathlib import Path

import pytest

from lengthwise.config import ConfigError, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE, RoPE
from lengthwise.studies import load
from lengthwise.tasks import Copy
from lengthwise.user_classes import defined_in
from lengthwise.versions import class_version

FILES = {
    "mine.py": "import torch\nfrom neighbour import helper\nimport others.inner\n# a comment\nclass Windowed: ...\n",
    "neighbour.py": "import mine\nfrom deeper import *\n\ndef helper():\n    from lazily import LAZY\n",
    "deeper.py": "DEEP = 1\n",
    "lazily.py": "LAZY = 1\n",
    "others/__init__.py": "",
    "others/inner.py": "from . import relative\nfrom ... import outside\n",
    "others/relative.py": "",
    "others/unused.py": "",
    "unused.py": "",
    "../outside.py": "",
    "../../__init__.py": "",
}
PACKAGE = {
    "package/__init__.py": "",
    "package/inner/__init__.py": "",
    "package/inner/encodings/__init__.py": "",
    "package/inner/encodings/mine.py": (
        "from ..helpers import bend\nfrom .near import K\nimport package.far\nfrom package import deep\nimport torch\n"
    ),
    "package/inner/encodings/near.py": "",
    "package/inner/encodings/unused.py": "",
    "package/inner/helpers.py": "",
    "package/far.py": "",
    "package/deep/__init__.py": "from package import deepest\n",
    "package/deepest.py": "",
    "package/unused.py": "",
    "torch.py": "",
    "far.py": "",
}


def source_hash(folder: Path, files: dict[str, str], file: str = "mine.py") -> str:
    """Return the hash of a class that a file in this folder defines. The file is not run."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    module = types.ModuleType("not_run")
    module.__file__ = str(folder / file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "not_run", module)
        identity = class_version(type("Windowed", (), {"__module__": "not_run"}))
    assert set(identity) == {"code"}
    return str(identity["code"])


@pytest.mark.parametrize("path", FILES)
def test_every_edit_of_its_file_and_of_what_that_imports_from_its_folder_counts(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "around" / "own"
    before = source_hash(folder, FILES)
    after = source_hash(folder, {**FILES, path: FILES[path] + "# another comment\n"})
    assert (before == after) == (path.endswith("unused.py") or path.startswith("../"))


@pytest.mark.parametrize("path", PACKAGE)
def test_the_own_folder_of_a_class_in_a_package_is_the_package(tmp_path: Path, path: str) -> None:
    mine = "package/inner/encodings/mine.py"
    before = source_hash(tmp_path, PACKAGE, mine)
    after = source_hash(tmp_path, {**PACKAGE, path: PACKAGE[path] + "# a comment\n"}, mine)
    assert (before == after) == (path.endswith("unused.py") or not path.startswith("package/"))


def test_a_package_counts_only_if_something_in_it_is_imported(tmp_path: Path) -> None:
    files = {"package/__init__.py": "", "package/mine.py": "import torch\n"}
    edited = {**files, "package/__init__.py": "K = 1\n"}
    assert source_hash(tmp_path, files, "package/mine.py") == source_hash(tmp_path, edited, "package/mine.py")


def test_it_is_the_same_in_another_folder_and_under_another_name(tmp_path: Path) -> None:
    files = {("yours.py" if path == "mine.py" else path): text for path, text in FILES.items()}
    assert source_hash(tmp_path / "a" / "b" / "c", FILES) == source_hash(tmp_path / "d" / "e", files, "yours.py")


def test_two_modules_that_exchange_their_content_are_a_change(tmp_path: Path) -> None:
    files = {"mine.py": "import one\nimport two\n", "one.py": "K = 1\n", "two.py": "K = 2\n"}
    assert source_hash(tmp_path, files) != source_hash(tmp_path, {**files, "one.py": "K = 2\n", "two.py": "K = 1\n"})


@pytest.mark.parametrize(("folder", "module"), [("site-packages", "torch"), ("src", "lengthwise")])
def test_installed_packages_and_lengthwise_do_not_count(tmp_path: Path, folder: str, module: str) -> None:
    files = {"mine.py": f"import {module}\nfrom {module} import inner\n", f"{module}/__init__.py": ""}
    before = source_hash(tmp_path / folder, files)
    assert before == source_hash(tmp_path / folder, {**files, f"{module}/__init__.py": "K = 1\n"})
    assert before != source_hash(tmp_path / folder, {**files, "mine.py": "K = 1\n"})


def test_a_neighbour_that_is_not_python_counts_by_its_bytes(tmp_path: Path) -> None:
    files = {"mine.py": "def f(): import broken\n", "broken.py": "print 'a'\n"}
    assert source_hash(tmp_path, files) != source_hash(tmp_path, {**files, "broken.py": "print 'b'\n"})


WINDOWED = """
from lengthwise.encodings import DistanceBias

class Windowed(DistanceBias):
    def __init__(self, *, num_heads: int):
        super().__init__()

    def bias(self, distance):
        return -(distance > 3) * distance
"""
STUDY = """
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="a",
    runs=grid([Windowed], ["copy"], seeds=1, training=TrainingConfig(train_length=3)),
    evaluation=EvaluationConfig(lengths=(3, 6)),
)
"""


def test_a_longer_study_keeps_the_keys_of_its_runs_if_the_class_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))

    def keys(text: str) -> set[str]:
        monkeypatch.delitem(sys.modules, "windowed_apart", raising=False)
        (tmp_path / "study.py").write_text(text)
        return {run.key for run in load(tmp_path / "study.py").runs}

    (tmp_path / "windowed_apart.py").write_text(WINDOWED)
    apart, together = "from windowed_apart import Windowed\n" + STUDY, WINDOWED + STUDY
    assert keys(apart) < keys(apart.replace("seeds=1", "seeds=3").replace("[Windowed]", "[Windowed, 'rope']"))
    assert not keys(together) & keys(together.replace("seeds=1", "seeds=3"))
    before = keys(apart)
    (tmp_path / "windowed_apart.py").write_text(WINDOWED.replace("> 3", "> 4"))
    assert not before & keys(apart)


def test_the_hash_is_that_of_the_code_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edited_later.py").write_text("class Windowed: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    make = importlib.import_module("edited_later").Windowed
    before = class_version(make)
    (tmp_path / "edited_later.py").write_text("class Windowed:\n    k = 2\n")
    assert class_version(make) == before


def test_without_a_file_the_text_of_the_class_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
        for name, value in (("zipped_a", 1), ("zipped_b", 1), ("zipped_c", 2)):
            archive.writestr(f"{name}.py", f"class Windowed:\n    k = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library.zip"))
    a, b, c = (class_version(importlib.import_module(f"zipped_{name}").Windowed) for name in "abc")
    assert a == b != c


def test_a_class_without_source_has_to_declare_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", module)
    exec("class Typed: ...\nclass Versioned:\n    version = 1", module.__dict__)
    with pytest.raises(ConfigError, match=r"Typed has no source file.*declare version = 1 in the class"):
        class_version(module.Typed)
    assert class_version(module.Versioned) == {"version": 1, "module": "typed_in"}


class Derived(RoPE):
    pass


class Declared(NoPE):
    version = 3


class OfOurs(RoPE):
    version = 1


class Inherits(Declared):
    pass


class Wrong(NoPE):
    version = "2"


def key(make: type) -> str:
    return Run(encoding=choose(make), task=choose(Copy), training=TrainingConfig(train_length=8)).key


def test_a_declared_version_replaces_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_version(Declared) == {"version": 3, "module": "test_class_versions"}
    before = key(Declared)
    monkeypatch.setattr(Declared, "version", 4)
    assert key(Declared) != before
    assert set(class_version(Inherits)) == {"code"}, "an inherited version says nothing about what was added"
    for version, got in (("2", "'2'"), (0, "0"), (True, "True")):
        monkeypatch.setattr(Wrong, "version", version)
        with pytest.raises(ConfigError, match=rf"Wrong\.version must be a whole number of at least 1, got {got}"):
            key(Wrong)


@pytest.mark.parametrize("make", [Derived, OfOurs])
def test_a_raised_version_of_our_base_changes_what_derives_from_it(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(make)
    monkeypatch.setattr(RoPE, "version", RoPE.version + 1)
    assert key(make) != before


def test_ours_have_a_version_and_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_version(RoPE) == {"version": RoPE.version}
    assert defined_in(RoPE) is None
    for make in (RoPE, Copy):
        run = Run(encoding=choose(RoPE), task=choose(Copy), training=TrainingConfig(train_length=8))
        before = run.key
        monkeypatch.setattr(make, "version", 99, raising=False)
        assert run.key != before
