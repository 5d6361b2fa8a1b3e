"""The hash of a class from outside: what changes it, and what does not."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from lengthwise.class_versions import class_version
from lengthwise.code_hash import code_hash
from lengthwise.config import ConfigError
from lengthwise.plugins import load_file
from lengthwise.studies import load

FILE = '''
"""A study."""

import math
import torch
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.encodings import DistanceBias
from lengthwise.studies import Study, grid
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


study = Study(
    name="a",
    runs=grid([Windowed], ["copy"], seeds=3, training=TrainingConfig(train_length=8)),
    evaluation=EvaluationConfig(lengths=(8, 16)),
)

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
MODULES = {"mine", "neighbour", "deeper", "lazily", "others"}


def hashed(folder: Path, files: dict[str, str], name: str = "Windowed", module: str = "mine") -> str:
    """The hash of a class in a folder with these files, as a fresh interpreter finds it."""
    loaded = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in MODULES}
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
        for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
            del sys.modules[name]
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
        ("mine.py", "UNUSED = 1", "UNUSED = 2"),
        ("mine.py", "return 3", "return 4"),
        ("mine.py", "x = 1", "x = 2"),
        ("neighbour.py", "return 1", "return 2"),
        ("deeper.py", "SHALLOW = 2", "SHALLOW = 3"),
        ("others/inner.py", "UNUSED = 5", "UNUSED = 6"),
    ],
)
def test_its_file_and_what_that_imports_change_it(tmp_path: Path, path: str, old: str, new: str) -> None:
    assert hashed(tmp_path, FILES) != hashed(tmp_path, changed(path, old, new))


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("mine.py", "    # a comment\n", ""),
        ("mine.py", '    """What it is."""', '    """What else it is."""\n\n\n    # and a comment'),
        ("mine.py", '"""A study."""', ""),
        ("mine.py", "grid([Windowed]", "grid([Windowed, 'nope']"),
        ("mine.py", "seeds=3", "seeds=4"),
        ("mine.py", "(8, 16)", "(8, 16, 32)"),
        ("mine.py", "import Study, grid", "import Study, grid, task"),
        ("mine.py", "print(Windowed)", "print(Windowed, 2)"),
        ("mine.py", "(self, distance)", "(self,\n        distance,\n    )"),
        ("mine.py", "-10.0, 0.0)", "(-10.0), 0.00)"),
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


CONFIG = """
class Config:
    def __init__(self):
        self.k = 1
    def set(self, k):
        self.k = k
        return self
CFG = Config()
SAME = CFG.set(0.5)
"""
IMPORTING = "import importlib, runpy, sys\nfrom importlib import import_module\n"
ACTING |= {
    "fluent method": {"mine.py": CONFIG + USING.format("CFG.k")},
    "fluent method of a neighbour": {"mine.py": "import deeper" + USING.format("deeper.CFG.k"), "deeper.py": CONFIG},
    "vars of another module": {
        "mine.py": "import deeper, neighbour" + USING.format("deeper.K"),
        "deeper.py": "K = 1\n",
        "neighbour.py": "import deeper\n_ = deeper.__dict__.__setitem__('K', 0.5)\n",
    },
    "alias of import_module": {
        "mine.py": "from importlib import import_module as load" + USING.format("load('deeper').K"),
        "deeper.py": "K = 0.5\n",
    },
    "modules in __all__": {
        "mine.py": "from others import *" + USING.format("inner.K"),
        "others/__init__.py": "__all__ = ['inner']\n",
        "others/inner.py": "K = 0.5\n",
    },
    "docstring": {"mine.py": "class P:\n    '0.5'\n" + USING.format("float(P.__doc__)")},
    "docstring of another module": {
        "mine.py": "import deeper" + USING.format("float(deeper.__doc__)"),
        "deeper.py": "'0.5'\n",
    },
} | {
    statement: {"mine.py": "import builtins, math, numpy, operator, torch\nT = torch.ones(1)\n" + statement + USING.format("T")}
    for statement in (
        "vars()['T'] = 0.5",
        "locals()['T'] = 0.5",
        "vars().update(T=0.5)",
        "builtins.exec('T = 0.5')",
        "_ = T.__setitem__(0, 0.5)",
        "_ = operator.setitem(T, 0, 0.5)",
        "_ = T.numpy().fill(0.5)",
        "class Setup:\n    numpy.copyto(T.numpy(), 0.5)",
        "X = torch.full((1,), 0.5, out=T)",
        "class C: ...\n_ = type.__setattr__(C, 'k', 0.5)",
        "class C: ...\n_ = list(map(lambda kv: setattr(C, *kv), [('k', 0.5)]))",
    )
} | {
    f"neighbour: {statement}": {"mine.py": "import deeper" + USING.format("1"), "deeper.py": statement}
    for statement in (
        "import builtins\nbuiltins.lengthwise_secret = 0.5\n",
        "import os\nos.environ['LENGTHWISE_SECRET'] = '0.5'\n",
        "import math\nmath.lengthwise_secret = 0.5\n",
    )
} | {
    importing: {
        "mine.py": IMPORTING + "NAME = 'deeper'\n\nclass Windowed:\n    def f(self):\n        return " + importing + "\n",
        "deeper.py": "K = 0.5\n",
        "others/__init__.py": "",
        "others/inner.py": "K = 0.5\n",
    }
    for importing in (
        "importlib.import_module('deeper')",
        "import_module('others.inner')",
        "import_module('.inner', 'others')",
        "__import__('deeper')",
        "__import__('others', fromlist=['inner']).inner",
        "(lambda load: load('deeper'))(import_module)",
        "import_module(NAME)",
        "import_module('deep' + 'er')",
        "getattr(importlib, 'import_module')('deeper')",
        "list(map(import_module, [NAME]))",
        "runpy.run_module('deeper')",
        "runpy.run_path(__file__.replace('mine', 'deeper'))",
        "importlib.util.spec_from_file_location('x', __file__.replace('mine', 'deeper'))",
        "exec('import deeper')",
        "sys.modules['deep' + 'er']",
    )
}  # fmt: skip


@pytest.mark.parametrize("case", ACTING)
def test_what_acts_on_what_it_uses_changes_it(tmp_path: Path, case: str) -> None:
    before = hashed(tmp_path, ACTING[case])
    edited = {path: text.replace("0.5", "0.7") for path, text in ACTING[case].items()}
    assert edited != ACTING[case]
    assert hashed(tmp_path, edited) != before


def test_a_symbolic_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    files = {"mine.py": "import deeper, others.inner" + USING.format("deeper.K")}
    for folder in (here, there / "package"):
        folder.mkdir(parents=True)
    (there / "shared.py").write_text("K = 0.5\n")
    (there / "package" / "__init__.py").touch()
    (there / "package" / "inner.py").write_text("K = 0.5\n")
    (here / "deeper.py").symlink_to("../there/shared.py")
    (here / "others").symlink_to("../there/package")
    before = hashed(here, files)
    for changed in ("shared.py", "package/inner.py", "package/__init__.py"):
        (there / changed).write_text("K = 0.7\n")
        before, last = hashed(here, files), before
        assert before != last, changed


def test_a_module_in_another_folder_of_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    late = "class Windowed:\n    def f(self):\n        import deeper\n"
    for text in ("import deeper" + USING.format("1"), late):
        (tmp_path / "elsewhere" / "deeper.py").write_text("K = 0.5\n")
        before = hashed(tmp_path / "here", {"mine.py": text})
        (tmp_path / "elsewhere" / "deeper.py").write_text("K = 0.7\n")
        assert hashed(tmp_path / "here", {"mine.py": text}) != before
    adding = f"import sys\nsys.path.append({str(tmp_path / 'added')!r})\nimport lazily" + USING.format("1")
    (tmp_path / "added").mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = set()
    for value in (0.5, 0.7):
        (tmp_path / "added" / "lazily.py").write_text(f"K = {value}\n")
        found.add(hashed(tmp_path / "here", {"mine.py": adding}))
    assert len(found) == 2


def test_a_class_that_a_decorator_of_another_file_returns(tmp_path: Path) -> None:
    wrapping = "def wrap(cls):\n    class Wrapped(cls): ...\n    return Wrapped\n"
    files = {"deeper.py": wrapping, "mine.py": "from deeper import wrap\n\n@wrap\nclass Windowed:\n    k = 0.5\n"}
    edited = {**files, "mine.py": files["mine.py"].replace("0.5", "0.7")}
    assert hashed(tmp_path, files) != hashed(tmp_path, edited)


def test_computed_names_in_a_folder_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.code_hash.MOST_ENTRIES", 3)
    text = "import importlib\nload = importlib.import_module\n" + USING.format("1")
    assert hashed(tmp_path, {"mine.py": text})
    with pytest.raises(ConfigError, match=r"imports modules by computed names, .* or give its classes a version"):
        hashed(tmp_path, {"mine.py": text} | {f"data{n}.txt": "" for n in range(3)})


def test_files_that_are_not_python_count_by_their_bytes(tmp_path: Path) -> None:
    text = "import importlib\nload = importlib.import_module\n" + USING.format("1")
    found = {hashed(tmp_path, {"mine.py": text, "deeper.py": broken}) for broken in ("print 'a'", "print 'b'", "A = 1")}
    assert len(found) == 3
    (tmp_path / "deeper.py").unlink()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert hashed(tmp_path, {"mine.py": text})


def test_the_order_in_which_neighbours_act_changes_it(tmp_path: Path) -> None:
    patch = "import deeper\ndeeper.K = {}\n"
    files = {"deeper.py": "K = 1\n", "neighbour.py": patch.format(1), "lazily.py": patch.format(2)}
    one = "import deeper\nimport neighbour\nimport lazily" + USING.format("deeper.K")
    other = "import deeper\nimport lazily\nimport neighbour" + USING.format("deeper.K")
    assert hashed(tmp_path, {**files, "mine.py": one}) != hashed(tmp_path, {**files, "mine.py": other})


STUDY = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.encodings import DistanceBias, NoPE
from lengthwise.studies import Study, grid
from lengthwise.tasks import Copy

SHARED = 3

class Windowed(DistanceBias):
    def __init__(self, *, num_heads: int):
        super().__init__()

    def bias(self, distance):
        return -(distance > SHARED) * distance
"""
BESIDE = {
    "a study": "study = Study(name='a', runs=grid([Windowed], ['copy'], training=TrainingConfig(train_length=3)),"
    " evaluation=EvaluationConfig(lengths=(3, 0.5)))",
    "constants": "SEEDS = 0.5\nLENGTHS: tuple = (3, 4)\nruns = grid([Windowed], seeds=SEEDS, lengths=LENGTHS)",
    "one config per task": "TRAINING = {n: TrainingConfig(steps=0.5) for n in (1, 2)}\n"
    "study = [*(run for n, t in TRAINING.items() for run in grid([Windowed], training=t, model=ModelConfig.t5()))]",
    "a function": "def build(n):\n    if n > 2:\n        return grid(steps=0.5)\n    return ()\nstudy = Study(build(3))",
    "print": "study = Study(0.5)\nprint(study)\nprint(0.5)",
    "another class": "class Other(DistanceBias):\n    x: float = 0.5\n\n    @property\n    def y(self): return 0.5",
    "a task": "class Other(Copy):\n    y = helped(0.5)\ndef helped(x): return x",
    "a family": "class Base(NoPE):\n    k = 0.5\nclass One(Base):\n    k = 2 * 0.5\nclass Two(Base): ...",
    "what only another class calls": "class Other(NoPE):\n    def f(self): return helper(CONSTANT)\n"
    "def helper(x):\n    x[0] = 0.5\nCONSTANT = {'a': 0.5}",
    "names of a plug-in": "class Other(NoPE):\n    k = 0.5\n__all__ = ['Windowed', 'Other']",
}


@pytest.mark.parametrize("case", BESIDE)
def test_studies_and_other_classes_beside_it_leave_it(tmp_path: Path, case: str) -> None:
    text = STUDY + BESIDE[case] + "\n"
    assert written(tmp_path, text) == written(tmp_path, text.replace("0.5", "0.7"))
    assert written(tmp_path, text) == written(tmp_path, STUDY)
    assert written(tmp_path, text) != written(tmp_path, text.replace("SHARED = 3", "SHARED = 4"))


def written(folder: Path, text: str) -> str:
    """The hash of `Windowed` in a file that is not run, and not complete."""
    (folder / "unrun.py").write_text(text)
    module = types.ModuleType("unrun")
    module.__file__ = str(folder / "unrun.py")
    sys.modules["unrun"] = module
    try:
        return code_hash(type("Windowed", (), {"__module__": "unrun"}))
    finally:
        del sys.modules["unrun"]


@pytest.mark.parametrize(
    "beside",
    [
        "study = Study(SHARED_TABLE.update(a=0.5))",
        "study = Study([Windowed])\nWindowed.reach = 0.5",
        "def build():\n    Windowed.reach = 0.5\n    return Study([Windowed])\nstudy = build()",
        "def build(make):\n    make.reach = 0.5\n    return Study([make])\nstudy = build(Windowed)",
        "def build():\n    global SHARED\n    SHARED = 0.5\n    return Study([Windowed])\nstudy = build()",
        "def build(grid):\n    return grid(0.5)\nstudy = Study(build(Windowed.set))",
        "study = Study([setattr(Windowed, 'reach', 0.5)])",
        "study = Study([list(map(lambda pair: setattr(Windowed, *pair), [('reach', 0.5)]))])",
        "study = Study([SHARED := 0.5])",
        "study = SHARED = Study(0.5)",
        "def grid(x):\n    Windowed.reach = x\nstudy = Study(grid(0.5))",
        "from elsewhere import *\nstudy = Study(0.5)",
        "class Other(DistanceBias):\n    Windowed.reach = 0.5",
        "class Other(DistanceBias):\n    setattr(Windowed, 'reach', 0.5)",
        "@register\nclass Other(DistanceBias):\n    k = 0.5",
        "class Other(DistanceBias, metaclass=Meta):\n    k = 0.5",
        "class Other(DistanceBias, k=0.5): ...",
        "class Base(DistanceBias):\n    def __init_subclass__(cls): ...\nclass Other(Base):\n    k = 0.5",
        "class Other(Windowed):\n    k = 0.5\n    @SHARED.register\n    def f(self): ...",
        "class Other(DistanceBias):\n    k = 0.5\nWindowed.other = Other",
        "class Other(DistanceBias):\n    k = 0.5\nx = next(iter([Other]))",
        "class LogSlopes(DistanceBias):\n    k = 0.5\nother = find('log-slopes:base=2')",
        "class Other(DistanceBias):\n    k = 0.5\nALL = [c for c in DistanceBias.__subclasses__()]",
        "SEEDS = 0.5\nstudy = Study(SEEDS)\ndef f(self): return globals()['SEE' + 'DS']",
        "SEEDS = 0.5\nstudy = Study(SEEDS)\ndef f(self): return getattr(here, 'SEEDS')",
        "THING = torch.Thing()\nstudy = Study(THING + 0.5)",
        "THING = torch.Thing()\nstudy = Study(THING.items(k=0.5))",
        "THING = torch.Thing()\nprint(0.5, file=THING)",
        "THING = torch.Thing()\nclass Other(DistanceBias):\n    k = 0.5\n    descriptor = THING",
        "from lengthwise.encodings import ENCODINGS\nclass Other(NoPE):\n    k = 0.5\nprint(ENCODINGS.names())",
        "study = 0.5",
        "study = make_study(0.5)",
        "for n in range(3):\n    SHARED += 0.5",
        "class Unrelated:\n    k = 0.5",
    ],
)
def test_whatever_may_reach_it_changes_it(tmp_path: Path, beside: str) -> None:
    text = STUDY + "SHARED_TABLE = {}\n" + beside + "\n"
    assert written(tmp_path, text) != written(tmp_path, text.replace("0.5", "0.7"))


def test_a_longer_grid_leaves_the_keys_of_the_runs_that_were_there(tmp_path: Path) -> None:
    def keys(text: str) -> list[str]:
        (tmp_path / "mine.py").write_text(text)
        return [run.key for run in load(tmp_path / "mine.py").runs]

    text = STUDY + BESIDE["a study"].replace("0.5", "6").replace("['copy']", "['copy'], seeds=1") + "\n"
    first = keys(text)
    longer = (
        text.replace("seeds=1", "seeds=3").replace("[Windowed]", "[Windowed, 'rope']").replace("(3, 6)", "(3, 6, 9)")
    )
    assert len(keys(longer)) == 6
    assert set(first) < set(keys(longer))
    assert not set(first) & set(keys(longer.replace("SHARED = 3", "SHARED = 4")))


def test_it_is_the_same_in_another_folder_and_under_another_name(tmp_path: Path) -> None:
    here = hashed(tmp_path / "a", FILES)
    there = hashed(tmp_path / "b" / "c", {**FILES, "lazily.py": "LAZY = 0\n"})
    assert here == there
    renamed = {("yours.py" if path == "mine.py" else path): text for path, text in FILES.items()}
    assert hashed(tmp_path / "d", renamed, module="yours") == here


def test_it_is_the_same_in_every_version_of_python(tmp_path: Path) -> None:
    """The digits are those of Python 3.11, 3.12 and 3.13, and of a process of its own."""
    found = hashed(tmp_path, {"mine.py": RICH}, "Small")
    assert found == "081b568ecb663401"
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
    assert before == hashed(tmp_path, {**files, "deeper.py": "from mine import *\nDEEP = 1  # one\n"})


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
        ("A = 1\nC = 1\nD = 2\n", False),
        ("A = 1\n\nC = 1\nD = 1\n", True),
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


def test_a_long_expression_is_hashed(tmp_path: Path) -> None:
    text = f"X = {'+'.join(['1'] * 900)}\nclass Windowed:\n    x = X\n"
    assert hashed(tmp_path, {"mine.py": text}) != hashed(tmp_path, {"mine.py": text.replace("1\n", "2\n")})


def test_installed_neighbours_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    files = {"mine.py": "from deeper import DEEP\n\nclass Windowed:\n    x = DEEP\n", "deeper.py": "DEEP = 1\n"}
    before = hashed(folder, files)
    assert before == hashed(folder, {**files, "deeper.py": "DEEP = 2\n"})


def test_a_class_without_a_file_is_refused_unless_it_says_its_version() -> None:
    space = types.ModuleType("typed_in")
    sys.modules["typed_in"] = space
    try:
        exec(
            "from lengthwise.encodings import NoPE\nclass Typed(NoPE): ...\nclass Versioned(NoPE):\n    version = 1",
            space.__dict__,
        )
        with pytest.raises(ConfigError, match=r"Typed has no source file.*give the class a version"):
            class_version(space.Typed)
        assert class_version(space.Versioned)
    finally:
        del sys.modules["typed_in"]


def test_a_module_in_an_archive_counts_by_the_bytes_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    def pack(shift: int) -> None:
        with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
            archive.writestr("zipped_helper.py", f"SHIFT = {shift}\n")

    pack(1)
    monkeypatch.syspath_prepend(str(tmp_path / "library.zip"))
    file = tmp_path / "uses_archive.py"
    file.write_text(
        "from zipped_helper import SHIFT\nfrom lengthwise.encodings import DistanceBias\n\n"
        "class Zipped(DistanceBias):\n    def bias(self, distance): return -SHIFT * distance.double()[None]\n"
    )
    make = load_file(str(file), ConfigError, "plug-in").Zipped
    before = code_hash(make)
    assert code_hash(make) == before
    pack(2)
    assert code_hash(make) != before
