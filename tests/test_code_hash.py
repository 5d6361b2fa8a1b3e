"""The hash of a class from outside: what changes it, and what does not."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from lengthwise.class_versions import class_version, defined_in
from lengthwise.code_hash import code_hash
from lengthwise.config import ConfigError, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE, RoPE
from lengthwise.plugins import load_file
from lengthwise.tasks import Copy

FILE = '''
"""A study."""

import math
import torch
from lengthwise.encodings import DistanceBias
from neighbour import helper, Base
import others.inner

SCALE = 2.0
UNUSED = 1
TABLE = {}
TABLE["a"] = 1


def slope(h):
    # a comment
    return SCALE * math.log(h + 2)


def unused():
    return 3


def decorated(cls):
    return cls


@decorated
class Windowed(Base):
    """What it is."""

    def __init__(self, *, num_heads: int, size: int = 16):
        super().__init__()
        self.num_heads, self.size = num_heads, size

    def bias(self, distance):
        table = TABLE["a"] + helper(1) + others.inner.CONSTANT
        return torch.where(distance > self.size, -10.0, 0.0).expand(self.num_heads, -1) * slope(1) * table


class Unrelated:
    x = 1


study = ("a", Windowed, 3)

if __name__ == "__main__":
    print(Windowed)
'''
NEIGHBOUR = """
from lengthwise.encodings import DistanceBias
from deeper import DEEP

def helper(x):
    from lazily import LAZY
    return x + DEEP + LAZY

def not_used():
    return 1

class Base(DistanceBias):
    reach = 3
"""
RICH = r'''
from __future__ import annotations
import math, os.path as p
from typing import Generic, TypeVar
T = TypeVar("T")
A: int = -1_000
X = {k: v for k, v in zip("ab", [1, 2.5])}
async def g(x): return [i async for i in x]
class Base(Generic[T]):
    y: T | None = None
class Small(Base[int]):
    """Doc."""
    z = [A for _ in range(3)]
    def f(self, x: int = -1, *a, k=(lambda q: q + A), **kw) -> str:
        match x:
            case {"a": 1, **rest}: return rest
            case [1, *_] | 2j: pass
            case None: ...
        if (n := x) > 1e-7: del n
        try:
            yield from X
        except* ValueError as e:
            raise KeyError from e
        with open(p.join("a", f"{x!r:>{A}} {'q'} é")) as fh, g(1): print(__class__, b"\xff", u"x", ...)
        async def h():
            return await super().f() @ math.pi, not x, 10**30, 0x1F, True
        return f"a" "b" f"{x=}"
'''
FILES = {
    "mine.py": FILE,
    "neighbour.py": NEIGHBOUR,
    "deeper.py": "DEEP = 1\nSHALLOW = 2\n",
    "lazily.py": "LAZY = 0\n",
    "others/__init__.py": "",
    "others/inner.py": "CONSTANT = 4\nUNUSED = 5\n",
}


def hashed(folder: Path, files: dict[str, str], name: str = "Windowed", module: str = "mine") -> str:
    """The hash of a class in a folder with these files, as a fresh interpreter finds it."""
    loaded = {
        m: sys.modules.pop(m)
        for m in list(sys.modules)
        if m in {"mine", "neighbour", "deeper", "lazily", "others", "others.inner"}
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        import importlib

        importlib.invalidate_caches()
        return code_hash(getattr(importlib.import_module(module), name))
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = before
        for m in ("mine", "neighbour", "deeper", "lazily", "others", "others.inner"):
            sys.modules.pop(m, None)
        sys.modules.update(loaded)


def changed(path: str, old: str, new: str) -> dict[str, str]:
    assert old in FILES[path], old
    return {**FILES, path: FILES[path].replace(old, new)}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("mine.py", "-10.0", "10.0"),
        ("mine.py", "size: int = 16", "size: int = 17"),
        ("mine.py", "SCALE = 2.0", "SCALE = 3.0"),
        ("mine.py", "h + 2", "h + 3"),
        ("mine.py", "math.log(", "math.exp("),
        ("mine.py", "import torch\n", "import torch as other, numpy as torch\n"),
        ("mine.py", 'TABLE["a"] = 1', 'TABLE["a"] = 2'),
        ("mine.py", "class Unrelated", "TABLE.clear()\n\nclass Unrelated"),
        ("mine.py", "class Unrelated", "Windowed.reach = 2\n\nclass Unrelated"),
        ("mine.py", "class Unrelated", "others.inner.CONSTANT = 2\n\nclass Unrelated"),
        ("mine.py", "    return cls", "    cls.reach = 2\n    return cls"),
        ("neighbour.py", "x + DEEP", "x - DEEP"),
        ("neighbour.py", "reach = 3", "reach = 4"),
        ("deeper.py", "DEEP = 1", "DEEP = 2"),
        ("lazily.py", "LAZY = 0", "LAZY = 1"),
        ("others/inner.py", "CONSTANT = 4", "CONSTANT = 5"),
    ],
)
def test_what_the_class_depends_on_changes_it(tmp_path: Path, path: str, old: str, new: str) -> None:
    assert hashed(tmp_path, FILES) != hashed(tmp_path, changed(path, old, new))


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("mine.py", "    # a comment\n", ""),
        ("mine.py", '    """What it is."""', '    """What else it is."""\n\n\n    # and a comment'),
        ("mine.py", '"""A study."""', ""),
        ("mine.py", "UNUSED = 1", "UNUSED = 2"),
        ("mine.py", "return 3", "return 4"),
        ("mine.py", "x = 1", "x = 2"),
        ("mine.py", '("a", Windowed, 3)', '("b", Windowed, 4)'),
        ("mine.py", "print(Windowed)", "print(Windowed, 2)"),
        ("mine.py", "(self, distance)", "(self,\n        distance,\n    )"),
        ("mine.py", "-10.0, 0.0)", "(-10.0), 0.00)"),
        ("mine.py", "class Unrelated", "class Another:\n    pass\n\n\nclass Unrelated"),
        ("neighbour.py", "return 1", "return 2"),
        ("deeper.py", "SHALLOW = 2", "SHALLOW = 3"),
        ("others/inner.py", "UNUSED = 5", "UNUSED = 6"),
    ],
)
def test_what_it_does_not_depend_on_leaves_it(tmp_path: Path, path: str, old: str, new: str) -> None:
    assert hashed(tmp_path, FILES) == hashed(tmp_path, changed(path, old, new))


USING = "\n\nclass Windowed:\n    def bias(self, distance):\n        return distance * {}\n"
REGISTRY = """
T = {}
def reg(name):
    def add(f):
        T[name] = f
        return f
    return add
@reg("a")
def fa(d):
    return d * 0.5
"""
SUBCLASSES = """
class Base:
    T = {}
    def __init_subclass__(cls):
        Base.T[cls.__name__] = cls
class Curve(Base):
    k = 0.5
"""
META = """
T = {}
class Meta(type):
    def __init__(cls, *given):
        T[cls.__name__] = cls
class Base(metaclass=Meta):
    pass
class Curve(Base):
    k = 0.5
"""
ACTING = {
    "decorator": {"mine.py": REGISTRY + USING.format('T["a"](1)')},
    "decorator in a neighbour": {"mine.py": "from deeper import T" + USING.format('T["a"](1)'), "deeper.py": REGISTRY},
    "method as decorator": {
        "mine.py": "class R:\n    d = {}\n    def add(self, f):\n        self.d[f.__name__] = f\n        return f\nr = R()\n"
        "@r.add\ndef fa(d): return d * 0.5" + USING.format('r.d["fa"](1)')
    },
    "singledispatch": {
        "mine.py": "import functools\n@functools.singledispatch\ndef f(x): return x\n"
        "@f.register\ndef _(x: int): return x * 0.5" + USING.format("f(1)")
    },
    "__init_subclass__": {"mine.py": SUBCLASSES + USING.format('Base.T["Curve"].k')},
    "__init_subclass__ into another table": {
        "mine.py": "T = {}"
        + SUBCLASSES.replace("    T = {}\n", "").replace("Base.T", "T")
        + USING.format('T["Curve"].k')
    },
    "__subclasses__": {
        "mine.py": "class Base: pass\nclass Curve(Base):\n    k = 0.5" + USING.format("Base.__subclasses__()[0].k")
    },
    "metaclass": {"mine.py": META + USING.format('T["Curve"].k')},
    "call": {"mine.py": 'T = {}\ndef setup(): T["k"] = 0.5\nsetup()' + USING.format('T["k"]')},
    "call for a value": {"mine.py": 'T = {}\ndef setup(): T["k"] = 0.5\nx = setup()' + USING.format('T["k"]')},
    "call through others": {
        "mine.py": "T = {}\ndef setup(): inner()\ndef inner(): T.update(k=0.5)\nsetup()" + USING.format('T["k"]')
    },
    "setdefault": {"mine.py": 'T = {}\nx = T.setdefault("k", 0.5)' + USING.format('T["k"]')},
    "alias": {"mine.py": 'T = {}\nALL = [T]\nALL[0]["k"] = 0.5' + USING.format('T["k"]')},
    "class body": {"mine.py": 'T = {}\nclass Filling:\n    T["k"] = 0.5' + USING.format('T["k"]')},
    "call of a method for a value": {"mine.py": "T = [0.5, 1]\n_ = T.reverse()" + USING.format("T[0]")},
    "in place": {"mine.py": "import torch\nT = torch.ones(1)\n_ = T.mul_(0.5)" + USING.format("T[0]")},
    "any name of a module": {
        "mine.py": "import sys\nK = 1\nsetattr(sys.modules[__name__], 'K', 0.5)" + USING.format("K")
    },
    "not as a script": {"mine.py": 'K = 1\nif __name__ != "__main__":\n    K = 0.5' + USING.format("K")},
    "otherwise than as a script": {
        "mine.py": 'if __name__ == "__main__":\n    K = 1\nelse:\n    K = 0.5' + USING.format("K")
    },
    "a name of everything": {
        "mine.py": "from neighbour import *" + USING.format("sum([1])"),
        "neighbour.py": "def sum(x): return 0.5\n",
    },
    "a folder without __init__": {
        "mine.py": "import lazily.inner" + USING.format("lazily.inner.K"),
        "lazily/inner.py": "K = 0.5\n",
    },
    "a folder without __init__, imported late": {
        "mine.py": "\n\nclass Windowed:\n    def bias(self, distance):\n        from lazily import inner\n        return inner.K\n",
        "lazily/inner.py": "K = 0.5\n",
    },
    "patched module": {
        "mine.py": "import deeper\nimport neighbour" + USING.format("deeper.K"),
        "deeper.py": "K = 1\n",
        "neighbour.py": "import deeper\ndeeper.K = 0.5\n",
    },
    "patched table": {
        "mine.py": "from deeper import T\nimport others" + USING.format('T["k"]'),
        "deeper.py": "T = {}\n",
        "others/__init__.py": "from . import inner\n",
        "others/inner.py": 'import deeper\ndeeper.T["k"] = 0.5\n',
    },
}


@pytest.mark.parametrize("case", ACTING)
def test_what_acts_on_what_it_uses_changes_it(tmp_path: Path, case: str) -> None:
    before = hashed(tmp_path, ACTING[case])
    edited = {path: text.replace("0.5", "0.7") for path, text in ACTING[case].items()}
    assert edited != ACTING[case]
    assert hashed(tmp_path, edited) != before


def test_the_order_in_which_neighbours_act_changes_it(tmp_path: Path) -> None:
    patch = "import deeper\ndeeper.K = {}\n"
    files = {"deeper.py": "K = 1\n", "neighbour.py": patch.format(1), "lazily.py": patch.format(2)}
    one = "import deeper\nimport neighbour\nimport lazily" + USING.format("deeper.K")
    other = "import deeper\nimport lazily\nimport neighbour" + USING.format("deeper.K")
    assert hashed(tmp_path, {**files, "mine.py": one}) != hashed(tmp_path, {**files, "mine.py": other})


@pytest.mark.parametrize(
    "beside",
    [
        "study = grid(encodings=[Windowed], steps=0.5)",
        "def build():\n    return grid(encodings=[Windowed], steps=0.5)\nstudy = build()",
        "study = grid(encodings=[Windowed], steps=0.5)\nprint(study)",
        "study = [Windowed, 0.5]\nstudy.append(1)",
        "@dataclass\nclass Other:\n    x: float = 0.5\n    y: object = Windowed",
        "class Other(Shared):\n    x = 0.5",
        "@no_grad()\ndef measured():\n    return Windowed().bias(1) * 0.5",
        "OTHERS = {}\ndef fill():\n    OTHERS['a'] = 0.5\nfill()",
    ],
)
def test_what_stands_beside_it_leaves_it(tmp_path: Path, beside: str) -> None:
    text = "from dataclasses import dataclass\nfrom torch import no_grad\n"
    text += "from builtins import dict as grid\nclass Shared:\n    k = 1\n"
    text += USING.format("1").replace("class Windowed", "class Windowed(Shared)")
    text += "        distance[0] = 1\n" + beside + "\n"
    assert hashed(tmp_path, {"mine.py": text}) == hashed(tmp_path, {"mine.py": text.replace("0.5", "0.7")})


def test_it_is_the_same_in_another_folder_and_under_another_name(tmp_path: Path) -> None:
    here = hashed(tmp_path / "a", FILES)
    there = hashed(tmp_path / "b" / "c", {**FILES, "lazily.py": "LAZY = 0\n"})
    assert here == there
    renamed = {("yours.py" if path == "mine.py" else path): text for path, text in FILES.items()}
    assert hashed(tmp_path / "d", renamed, module="yours") == here


def test_it_is_the_same_in_every_version_of_python(tmp_path: Path) -> None:
    """The digits are those of Python 3.11, 3.12 and 3.13, and of a process of its own."""
    found = hashed(tmp_path, {"mine.py": RICH}, "Small")
    assert found == "5711c5d19b7988a5"
    code = "import mine; from lengthwise.code_hash import code_hash; print(code_hash(mine.Small))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == found


def test_where_names_cannot_be_followed_the_whole_module_counts(tmp_path: Path) -> None:
    for text in (
        "OTHER = 1\n\ndef made():\n    class Windowed:\n        pass\n    return Windowed\n\nWindowed = made()\n",
        "OTHER = 1\n\nclass Windowed:\n    def f(self):\n        return globals()['OTH' + 'ER']\n",
        "import sys\n\nOTHER = 1\nsys.modules[__name__].HIDDEN = 2\n\nclass Windowed:\n    def f(self):\n        return HIDDEN\n",
    ):
        before = hashed(tmp_path, {"mine.py": text})
        assert before != hashed(tmp_path, {"mine.py": text.replace("OTHER = 1", "OTHER = 2")}), text
    handed_on = (
        "import others.inner\n\nclass Windowed:\n    def f(self, name):\n        return getattr(others.inner, name)\n"
    )
    files = {**FILES, "mine.py": handed_on}
    assert hashed(tmp_path, files) != hashed(tmp_path, {**files, "others/inner.py": "CONSTANT = 4\nUNUSED = 6\n"})


def test_modules_that_import_each_other_and_everything(tmp_path: Path) -> None:
    files = {
        "mine.py": "from deeper import *\n\nclass Windowed:\n    x = DEEP\n",
        "deeper.py": "from mine import *\nDEEP = 1\n",
    }
    before = hashed(tmp_path, files)
    assert before != hashed(tmp_path, {**files, "deeper.py": "from mine import *\nDEEP = 2\n"})
    assert before == hashed(tmp_path, {**files, "deeper.py": "from mine import *\nDEEP = 1\nSHALLOW = 2\n"})


def test_which_name_is_which_counts(tmp_path: Path) -> None:
    lines = ["from deeper import DEEP as a, SHALLOW as b", "import deeper as c, others.inner as d"]
    lines += [
        "from math import *",
        "from neighbour import *",
        "class Windowed:",
        "    x = a - b, c, d.CONSTANT, helper",
    ]
    text = "\n".join(lines)
    files = {**FILES, "mine.py": text, "neighbour.py": "helper = 1\n"}
    before = hashed(tmp_path, files)
    swapped = text.replace("DEEP as a, SHALLOW as b", "SHALLOW as a, DEEP as b")
    assert hashed(tmp_path, {**files, "mine.py": swapped}) != before
    assert hashed(tmp_path, {**files, "neighbour.py": "helper = 2\n"}) != before, (
        "a library's star hides no neighbour's"
    )


def test_relative_imports_in_a_package(tmp_path: Path) -> None:
    files = {
        "others/__init__.py": "from .inner import Windowed\n",
        "others/inner.py": "from . import deep\nfrom .deep import A as B\n\nclass Windowed:\n    x = B + deep.C\n",
        "others/deep.py": "A = 1\nC = 1\nD = 1\n",
    }
    before = hashed(tmp_path, files, module="others")
    for text, same in (
        ("A = 2\nC = 1\nD = 1\n", False),
        ("A = 1\nC = 2\nD = 1\n", False),
        ("A = 1\nC = 1\nD = 2\n", True),
    ):
        assert (hashed(tmp_path, {**files, "others/deep.py": text}, module="others") == before) == same, text


def test_a_file_that_was_loaded_by_its_path_follows_its_own_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ownpackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text("from ownpackage.helper import bend\nclass Windowed:\n    f = bend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hashes = []
    for value in (1, 2):
        (package / "helper.py").write_text(f"def bend(d): return {value}\n")
        module = load_file(str(package / "mine.py"), ConfigError, "plug-in")
        hashes.append(code_hash(module.Windowed))
        for name in ("ownpackage", "ownpackage.helper", module.__name__):
            sys.modules.pop(name)
    assert hashes[0] != hashes[1]


def test_an_expression_that_is_too_long_is_said_in_one_line(tmp_path: Path) -> None:
    text = f"X = {'+'.join(['1'] * 600)}\nclass Windowed:\n    x = X\n"
    with pytest.raises(ConfigError, match=r"the source of Windowed, .* too long .*; split it, or give"):
        hashed(tmp_path, {"mine.py": text})


def test_installed_neighbours_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    files = {"mine.py": "from deeper import DEEP\n\nclass Windowed:\n    x = DEEP\n", "deeper.py": "DEEP = 1\n"}
    before = hashed(folder, files)
    assert before == hashed(folder, {**files, "deeper.py": "DEEP = 2\n"})


def test_a_raised_version_of_our_base_changes_what_derives_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_hash(Derived)
    monkeypatch.setattr(RoPE, "version", 7, raising=False)
    assert code_hash(Derived) != before


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
    assert class_version(Declared) == {"version": 3, "module": "test_code_hash"}
    before = key(Declared)
    monkeypatch.setattr(Declared, "version", 4)
    assert key(Declared) != before
    assert set(class_version(Inherits)) == {"code"}, "an inherited version says nothing about what was added"
    with pytest.raises(ConfigError, match="Wrong: version must be a whole number of at least 1, got '2'"):
        key(Wrong)


def test_a_declared_version_leaves_the_versions_of_our_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(OfOurs)
    monkeypatch.setattr(RoPE, "version", RoPE.version + 1)
    assert key(OfOurs) != before


def test_ours_have_a_version_and_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert class_version(RoPE) == {"version": RoPE.version}
    assert defined_in(RoPE) is None
    for make in (RoPE, Copy):
        run = Run(encoding=choose(RoPE), task=choose(Copy), training=TrainingConfig(train_length=8))
        before = run.key
        monkeypatch.setattr(make, "version", 99, raising=False)
        assert run.key != before


def test_a_class_without_a_file_is_refused_unless_it_says_its_version() -> None:
    space = types.ModuleType("typed_in")
    sys.modules["typed_in"] = space
    try:
        exec(
            "from lengthwise.encodings import NoPE\nclass Typed(NoPE): ...\nclass Versioned(NoPE):\n    version = 1",
            space.__dict__,
        )
        with pytest.raises(ConfigError, match=r"Typed has no source file.*give the class a version"):
            key(space.Typed)
        assert key(space.Versioned)
    finally:
        del sys.modules["typed_in"]
