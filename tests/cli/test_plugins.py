"""A user's own encodings, tasks and position schemes: `--plugin` on every command, and changes of their code."""

import json
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.cli.app import COMMANDS
from lengthwise.encodings import ENCODINGS
from lengthwise.errors import error_in_user_file
from lengthwise.plugins import PluginError, load_plugins, loaded_plugins, plugins
from lengthwise.positions import POSITION_SCHEMES
from lengthwise.store import open_store
from lengthwise.tasks import TASKS
from lengthwise.user_classes import defined_in, shortened
from lengthwise.validation import from_json

Call = Callable[..., Any]

OWN = '''
import torch
from lengthwise.encodings import DistanceBias
from lengthwise.positions import PositionScheme
from lengthwise.tasks.sequences import Pairs, SequenceTask


class Windowed(DistanceBias):
    """Hides what is far away."""

    def __init__(self, *, num_heads: int, size: int = 3):
        super().__init__()
        self.num_heads, self.size = num_heads, size

    def bias(self, distance):
        return torch.where(distance > self.size, -10.0, 0.0).expand(self.num_heads, -1)


class Largest(SequenceTask):
    """Say the largest digit. `length` counts the digits."""

    unit = "digits"

    def __init__(self):
        super().__init__("0123456789")

    def draw(self, generator, count, length):
        digits = torch.randint(10, (count, length), generator=generator)
        return Pairs(digits, digits.max(1, keepdim=True).values)

    def widths(self, length):
        return length, 1

    def length_of(self, question, answer):
        return len(question)


class Doubled(PositionScheme):
    """0, 2, 4, ..."""

    def positions(self, inputs, documents, generator, training):
        return 2 * torch.arange(inputs.shape[1]).expand(inputs.shape[:2])

    def num_positions(self, tokens, training):
        return 2 * tokens
'''
STUDY = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="mine",
    runs=grid(ENCODINGS, ["copy"], model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
              training=TrainingConfig(train_length=4, steps=3, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
)
"""
COMPARE = ["compare", "nope", "windowed", "--task", "largest", "--positions", "doubled", "--train-length", 3,
           "--lengths", "3,6", "--steps", 3, "--d-model", 16, "--num-layers", 1, "--num-heads", 2, "--examples", 16,
           "--workers", 1]  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a plug-in, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where a plug-in's encoding, task and position scheme were compared with ours, once."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "mine.py").write_text(OWN)
    code = main([str(word) for word in (*COMPARE, "--plugin", folder / "mine.py", "--results", folder / "results")])
    assert code == 0
    return folder


def listed() -> dict[str, list[str]]:
    return {registry.kind: registry.names() for registry in (ENCODINGS, TASKS, POSITION_SCHEMES)}


def one_line(ran: Any, says: str) -> None:
    assert ran.code == 2, (ran.out, ran.err)
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err, ran.err
    assert "bug in lengthwise" not in ran.err


def one_line_of_a_class(ran: Any, says: str) -> None:
    """The error is raised in lengthwise, because a class does not do what its base class asks for."""
    assert ran.code == 2
    assert ran.err.startswith(f"lengthwise: {says}")
    assert "a class of your plug-in may not follow its base class" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.medium
def test_every_command_has_the_option(here: Call) -> None:
    for words in (*((verb,) for verb in COMMANDS), ("export", "scores"), ("probe", "recency")):
        assert "--plugin" in here(*words, "--help").out, words
    assert "Did you mean --plugin?" in here("list", "encodings", "--plugn", "mine.py").err


def test_what_takes_a_name_finds_them(here: Call, own: Path) -> None:
    before = listed()
    assert "Hides what is far away." in here("list", "encodings", "windowed", "--plugin", "mine.py").out
    assert "Largest" in here("list", "tasks", "--plugin", "mine.py").out
    assert "Doubled" in here("list", "positions", "--plugin", own / "mine.py").out
    assert "Hides what is far away." in here("inspect", "windowed:size=2", "--plugin", "mine.py").out
    ran = here("sample", "--plugin", "mine.py", "largest", "--length", 4)
    assert ran.code == 0, ran.err
    assert "Largest: length 4 digits, test, seed 0" in ran.out
    published = here("sample", "largest", "--length", 4, "--published", "repository", "--json", "--plugin", "mine.py")
    assert published.code == 0, published.err
    first = json.loads(published.out.splitlines()[0])
    assert first["target"] == max(first["prompt"].split())
    assert listed() == before, "a plug-in is there for one command"
    one_line(here("sample", "largest"), "there is no task 'largest'")


def test_a_module_is_a_plug_in_too(here: Call, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "a_package_of_mine").mkdir()
    (own / "a_package_of_mine" / "__init__.py").write_text("from .inner import Tilted\n")
    (own / "a_package_of_mine" / "inner.py").write_text(
        "from lengthwise.encodings import NoPE\nclass Tilted(NoPE): ...\n"
    )
    monkeypatch.syspath_prepend(str(own))
    assert "Tilted" in here("list", "encodings", "--plugin", "a_package_of_mine", "--plugin", "mine.py").out
    one_line(
        here("list", "tasks", "--plugin", "no_such_package.x"),
        "plug-in no_such_package.x: there is no module of this name",
    )
    one_line(here("list", "tasks", "--plugin", "mine.p"), "plug-in mine.p: there is no module of this name")


def test_all_names_what_is_listed(here: Call, own: Path) -> None:
    (own / "some.py").write_text(OWN + "\n__all__ = ['Doubled']\n")
    assert "Windowed" not in here("list", "encodings", "--plugin", "some.py").out
    assert "Doubled" in here("list", "positions", "--plugin", "some.py").out
    (own / "some.py").write_text(OWN + "\n__all__ = ['Dubbled']\n")
    one_line(
        here("list", "positions", "--plugin", "some.py"),
        "plug-in some.py: __all__ contains 'Dubbled', which the module does not define",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "plug-in bad.py has no encoding, task or position scheme; define a class in it that derives from"),
        ("x = 1\nnope\n", "bad.py, line 2: NameError: name 'nope' is not defined"),
        ("def f(:\n", "bad.py, line 1: SyntaxError"),
        (
            "from lengthwise.encodings import NoPE\nclass Rope(NoPE): ...\n",
            "its encoding Rope has the same name as RoPE of lengthwise",
        ),
    ],
)
def test_plug_ins_that_cannot_be(here: Call, own: Path, text: str, says: str) -> None:
    (own / "bad.py").write_text(text)
    before = listed()
    one_line(here("list", "encodings", "--plugin", "bad.py"), says)
    assert listed() == before


def test_paths_that_are_no_plug_in(here: Call, own: Path) -> None:
    one_line(here("list", "tasks", "--plugin", "mien.py"), "there is no file mien.py; did you mean 'mine.py'?")
    one_line(here("list", "tasks", "--plugin", "."), ". is a folder; name a plug-in file in it: mine.py")
    one_line(
        here("list", "tasks", "--plugin", ""), "the plug-in's path is empty; give the path of a plug-in, a Python file"
    )
    (own / "other.py").write_text(OWN)
    ran = here("list", "tasks", "--plugin", "mine.py", "--plugin", "other.py")
    one_line(
        ran, "plug-in other.py: its encoding Windowed has the same name as Windowed of lengthwise_file_mine; rename it"
    )
    (own / "deeper").mkdir()
    (own / "deeper" / "mine.py").write_text(OWN)
    one_line(
        here("list", "tasks", "--plugin", "mine.py", "--plugin", "deeper/mine.py"),
        "deeper/mine.py has the same name as the loaded file mine.py",
    )


def test_the_same_plug_in_twice_is_one(here: Call, own: Path) -> None:
    assert here("list", "tasks", "--plugin", "mine.py", "--plugin", "./mine.py").code == 0


MISTAKES = """
import torch
from lengthwise.encodings import DistanceBias


class Flat(DistanceBias):
    def __init__(self, *, num_heads: int):
        super().__init__()
        self.slopes = (1.0,) * num_heads

    def bias(self, distance):
        return -distance.double()


class Typo(Flat):
    def bias(self, distance):
        return torch.lg1p(distance)


class Number(Flat):
    def bias(self, distance):
        return 1.5


class Curved(Flat):
    def bias(self, distance):
        return -distance.double().log1p().expand(len(self.slopes), -1)
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "flat",
            "bad.py, line 11: Flat.bias must return a tensor of real numbers [heads, 2 distances], got torch.float64 "
            "of shape [2]",
        ),
        ("number", "Number.bias must return a tensor of real numbers [heads, 2 distances], got 1.5"),
        ("typo", "bad.py, line 17: AttributeError: module 'torch' has no attribute 'lg1p'"),
    ],
)
def test_a_mistake_in_its_code_is_named_with_its_line(here: Call, own: Path, name: str, says: str) -> None:
    (own / "bad.py").write_text(MISTAKES)
    one_line(here("inspect", name, "--num-heads", 4, "--plugin", "bad.py"), says)


def test_an_error_from_elsewhere_names_no_file_of_the_user() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert raised.tb is not None
    here = f"{shortened(__file__)}, line {raised.tb.tb_lineno}: JSONDecodeError: Expecting"
    assert str(error_in_user_file(raised.value)).startswith(here)
    assert error_in_user_file(raised.value.with_traceback(raised.tb.tb_next)) is None, "lines of Python's library alone"


def test_slopes_are_said_only_of_a_bias_that_has_them(here: Call, own: Path) -> None:
    (own / "bad.py").write_text(MISTAKES)
    assert "slopes" not in here("inspect", "curved", "--num-heads", 2, "--plugin", "bad.py").out
    assert "slopes, nats per token: 0.0625" in here("inspect", "alibi", "--num-heads", 2).out


def test_the_hint_for_an_unknown_name_fits_study_files(here: Call, own: Path) -> None:
    one_line(
        here("inspect", "curved"),
        "; for a class of your own, add --plugin FILE (in a study file, pass the class itself)",
    )
    near = here("list", "encodings", "log-slopes")  # the guide's example, without its plug-in
    one_line(near, "there is no encoding 'log-slopes'; for a class of your own, add --plugin FILE")


def test_an_incomplete_class_is_named_with_all_that_it_lacks(here: Call, own: Path) -> None:
    text = OWN.replace("    def widths(self, length):\n        return length, 1\n", "").replace(
        '    unit = "digits"\n', ""
    )
    (own / "mine.py").write_text(text)
    line = text[: text.index("class Largest")].count("\n") + 1
    says = (
        f"mine.py, line {line}: class Largest lacks the method widths and the class attribute unit of type str; "
        "define them"
    )
    one_line(here("sample", "largest", "--plugin", "mine.py"), says)
    assert here("inspect", "windowed", "--plugin", "mine.py").code == 0, "the others of the file are there"
    (own / "study.py").write_text(text + STUDY.replace('ENCODINGS, ["copy"]', '["nope"], [Largest]'))
    one_line(
        here("run", "study.py"), f"study.py, line {text.count(chr(10)) + 7}: study.py, line {line}: class Largest lacks"
    )


@pytest.mark.parametrize(
    ("body", "lacks"),
    [("metric = 'beauty'", "metric of type Metric"), ("unit = None", "unit of type str")],
)
def test_a_metric_that_is_a_name_and_a_unit_that_is_none(here: Call, own: Path, body: str, lacks: str) -> None:
    (own / "named.py").write_text(f"from lengthwise.tasks import Copy\nclass Mine(Copy):\n    {body}\n")
    says = f"named.py, line 2: class Mine lacks the class attribute {lacks}; define it"
    one_line(here("sample", "mine", "--plugin", "named.py"), says)


def test_an_attribute_that_init_leaves_out(here: Call, own: Path) -> None:
    (own / "mine.py").write_text(OWN.replace('super().__init__("0123456789")', "pass"))
    ran = here("sample", "largest", "--plugin", "mine.py")
    one_line_of_a_class(ran, "AttributeError: 'Largest' object has no attribute '")


@pytest.mark.medium
def test_a_comparison_with_them_in_worker_processes(
    compared: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(compared)
    with open_store("results", create=False) as store:
        rows = {row.label: row for row in store.runs()}
    assert set(rows) == {"NoPE with Doubled", "Windowed with Doubled"}
    mine = str((compared / "mine.py").resolve())
    assert rows["Windowed with Doubled"].facts["defined_in"] == {"Windowed": mine, "Largest": mine, "Doubled": mine}
    assert here("report", "--results", "results").code == 0, "a report needs no plug-in"
    key = rows["Windowed with Doubled"].key
    assert here("show", key, "--results", "results").code == 0
    for words in (["probe", "attended-distance", key], ["lengths", key]):
        says = f"run {key[:8]} (Windowed with Doubled, seed 0): Windowed is defined in mine.py; add --plugin mine.py"
        one_line(here(*words, "--results", "results"), says)
    ran = here("probe", "attended-distance", key, "--results", "results", "--plugin", "mine.py")
    assert ran.code == 0, ran.err
    assert here("lengths", key, "--results", "results", "--plugin", "mine.py").code == 0


@pytest.mark.medium
def test_a_stored_path_is_shown_and_never_run(
    compared: Path, here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A results database may be somebody else's."""
    import shutil
    import sqlite3

    monkeypatch.chdir(tmp_path)
    shutil.copytree(compared / "results", tmp_path / "results")
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\n" + OWN)
    with sqlite3.connect(tmp_path / "results" / "results.db") as db:
        places = {name: str(tmp_path / "trap.py") for name in ("Windowed", "Largest", "Doubled")}
        db.execute("UPDATE runs SET facts = ?", [json.dumps({"defined_in": places})])
        (key,) = db.execute("SELECT key FROM runs WHERE label LIKE 'Windowed%'").fetchone()
    for words in (["probe", "attended-distance", key], ["lengths", key], ["show", key], ["report"], ["list", "runs"]):
        here(*words, "--results", "results")
    assert not (tmp_path / "sprung").exists()
    assert "trap.py; add --plugin trap.py" in here("lengths", key, "--results", "results").err
    with sqlite3.connect(tmp_path / "results" / "results.db") as db:
        db.execute("UPDATE runs SET facts = ?", [json.dumps({"defined_in": {"Windowed": 3, "Largest": "\x1b[2Jx\n"}})])
    ran = here("lengths", key, "--results", "results")
    one_line(ran, "Largest is defined in ")
    assert "\x1b" not in ran.err


@pytest.mark.medium
def test_editing_a_class_trains_its_runs_again(here: Call, own: Path) -> None:
    def study(text: str) -> Any:
        (own / "study.py").write_text(text + STUDY.replace("ENCODINGS", '[Windowed, "nope"]'))
        ran = here("run", "study.py", "--results", "results", "--on", "inline")
        assert ran.code == 0, ran.err
        return ran

    def stored(study: str | None) -> dict[str, Any]:
        with open_store("results", create=False) as store:
            return {row.key: row for row in store.runs(study)}

    study(OWN)
    first = stored("mine")
    ran = study(OWN.replace("-10.0", "-10.0 + 0.0"))
    assert "Windowed changed since 1 run was trained; it will be trained again (every edit of a class's file" in ran.err
    assert "counts, even of a comment; to decide yourself what counts, declare version = 1 in the class)\n" in ran.err
    assert ran.err.index("changed since") < ran.err.index("starts")
    second = stored("mine")
    old = next(key for key, row in first.items() if row.label == "Windowed")
    assert old not in second, "the report of the study does not mix the two"
    assert len(first.keys() & second.keys()) == 1
    assert set(stored(None)) == first.keys() | second.keys(), "what was trained stays as a run"
    listed = [line for line in here("list", "runs", "--results", "results").out.splitlines() if "Windowed" in line]
    assert sorted(line.count("last used code") - line.count("earlier code") for line in listed) == [-1, 1]
    assert not any(
        "code" in line for line in here("list", "runs", "--study", "mine", "--results", "results").out.splitlines()
    )
    ran = here("probe", "attended-distance", old, "--lengths", 4, "--results", "results", "--plugin", "study.py")
    one_line(ran, "Windowed changed since it was trained; run its study again, or restore the old code (every edit")
    back = study(OWN)
    assert "all 2 runs are done" in back.err
    assert "changed" not in back.err
    assert set(stored("mine")) == set(first)
    marks = {line.split()[0]: line for line in here("list", "runs", "--results", "results").out.splitlines()}
    (new,) = second.keys() - first.keys()
    assert "last used code" in marks[old[:8]], "the restored code is current, although the other code was trained later"
    assert "earlier code" in marks[new[:8]]


@pytest.mark.medium
def test_every_run_of_earlier_code_is_marked(here: Call, own: Path) -> None:
    def train(name: str, text: str, encodings: str) -> None:
        study = STUDY.replace('"mine"', repr(name)).replace('["copy"]', "[Largest]").replace("ENCODINGS", encodings)
        (own / "study.py").write_text(text + study)
        ran = here("run", "study.py", "--results", "results", "--on", "inline")
        assert ran.code == 0, ran.err

    def marks(*words: str) -> dict[str, str]:
        with open_store("results", create=False) as store:
            rows = {row.key[:8]: row for row in store.runs()}
        lines = [line.partition("  ") for line in here("list", "runs", *words, "--results", "results").out.splitlines()]
        found = {key: next((m for m in ("earlier", "last used") if m in line), "") for key, _, line in lines[1:]}
        return {f"{rows[key].label} {rows[key].config['task']['class']['code'][:8]}": m for key, m in found.items()}

    train("mine", OWN, '["nope", "rope"]')
    assert set(marks().values()) == {""}
    (nope, rope) = marks()
    train("new", OWN.replace("digits.max", "digits.min"), '["nope"]')
    (new,) = marks().keys() - {nope, rope}
    assert marks() == {nope: "earlier", rope: "earlier", new: "last used"}, "no run of RoPE has newer code"
    assert marks("--study", "mine") == {nope: "earlier", rope: "earlier"}
    assert marks("--study", "new") == {new: ""}
    train("mine", OWN, '["nope", "rope"]')
    assert marks() == {nope: "last used", rope: "", new: "earlier"}, "the restored code is the last used one"


def test_a_declared_version_is_what_counts(here: Call, own: Path) -> None:
    from lengthwise.config import Run
    from lengthwise.studies import load
    from lengthwise.studies.stored import changed_classes, edit_note

    def only_run(text: str) -> Run:
        (own / "study.py").write_text(text + STUDY.replace("ENCODINGS", "[Windowed]"))
        (run,) = load(own / "study.py").runs
        return run

    declared = OWN.replace('    """Hides what is far away."""', "    version = 1")
    first = only_run(declared)
    assert first.key == only_run(declared.replace("-10.0", "10.0")).key
    second = only_run(declared.replace("version = 1", "version = 2"))
    assert first.key != second.key
    changed = changed_classes(first.to_data(), second.to_data())
    assert list(changed) == ["Windowed"]
    assert edit_note(changed.values()) == "", "the class already declares a version"


@pytest.mark.medium
def test_a_class_in_a_neighbour_of_the_study(here: Call, own: Path) -> None:
    (own / "study.py").write_text("from mine import Windowed\n" + STUDY.replace("ENCODINGS", "[Windowed]"))
    try:
        ran = here("run", "study.py", "--results", "results", "--workers", 1)
    finally:
        import sys

        sys.modules.pop("mine", None)
    assert ran.code == 0, ran.err
    with open_store("results", create=False) as store:
        (row,) = store.runs()
    ran = here("probe", "attended-distance", row.key, "--results", "results", "--plugin", "mine.py")
    assert ran.code == 0, ran.err


def test_a_file_edited_while_its_study_is_at_work_stops_the_worker(own: Path) -> None:
    from lengthwise.config import ConfigError
    from lengthwise.studies import load
    from lengthwise.studies.spec import Spec, classes_listed, own_classes

    (own / "study.py").write_text(OWN + STUDY.replace("ENCODINGS", "[Windowed]"))
    found = own_classes(load(own / "study.py"))
    spec = from_json(Spec, Spec(store="", study="mine", results="", own_classes=found).to_json())
    with classes_listed(spec):
        assert "Windowed" in listed()["encoding"]
    assert "Windowed" not in listed()["encoding"]
    (own / "study.py").write_text("# a comment" + OWN + STUDY.replace("ENCODINGS", "[Windowed]"))
    with (
        pytest.raises(ConfigError, match="the file of Windowed changed while the study was running"),
        classes_listed(spec),
    ):
        raise AssertionError


@pytest.mark.slow
def test_the_conformance_suite_asks_them(here: Call, own: Path) -> None:
    ran = here("check", "windowed", "--plugin", "mine.py")
    assert ran.code == 0, ran.out + ran.err


def test_a_script_that_ends_the_process_is_one_line(here: Call, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(own))
    (own / "script.py").write_text("import sys\nsys.exit('done')\n")
    one_line(
        here("list", "encodings", "--plugin", "script.py"), "script.py, line 2: SystemExit: done; raise an exception"
    )
    one_line(here("list", "encodings", "--plugin", "script"), "plug-in script: SystemExit: done; raise an exception")


def test_a_plug_in_that_failed_is_loaded_again(own: Path) -> None:
    before = listed()
    (own / "twice.py").write_text(OWN.replace("Doubled", "Consecutive"))  # one of our names, after two good ones
    for _ in range(2):
        with pytest.raises(PluginError, match="Consecutive"):
            load_plugins(["twice.py"])
        assert listed() == before
        assert str(own / "twice.py") not in loaded_plugins()
    with plugins(()):
        (own / "twice.py").write_text(OWN)
        load_plugins(["twice.py"])
        assert "Doubled" in listed()["position scheme"]


@pytest.mark.medium
def test_a_neighbour_may_be_imported_when_a_function_runs(
    here: Call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, and in a worker process."""
    monkeypatch.setitem(sys.modules, "latecomer", None)  # removed again after the test
    del sys.modules["latecomer"]
    (own / "latecomer.py").write_text("DEPTH = -10.0\n")
    late = OWN.replace(
        "        return torch.where", "        from latecomer import DEPTH\n        return torch.where", 1
    )
    (own / "study.py").write_text(late + STUDY.replace("ENCODINGS", "[Windowed]"))
    ran = here("run", "study.py", "--results", "results", "--workers", 1)
    assert ran.code == 0, ran.err


def test_a_module_of_a_package_is_found_by_its_name(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = str(own / "mine.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec("from lengthwise.encodings import NoPE\nclass Run(NoPE): pass", main.__dict__)
    assert defined_in(main.Run) == str(own / "mine.py")
    main.__spec__ = types.SimpleNamespace(name="package.mine", parent="package")  # type: ignore[assignment]
    assert defined_in(main.Run) == "package.mine"
    imported = types.ModuleType("package.mine")
    imported.__file__, imported.__package__ = main.__file__, "package"
    monkeypatch.setitem(sys.modules, "package.mine", imported)
    exec("from lengthwise.encodings import NoPE\nclass Imported(NoPE): pass", imported.__dict__)
    assert defined_in(imported.Imported) == "package.mine"


def test_what_a_task_says_of_itself_fails_its_runs_alone(here: Call, own: Path) -> None:
    """Baselines that are no numbers, and facts that cannot be stored: the other runs of the study go on."""
    tasks = """
import math
from lengthwise.tasks import Copy
from lengthwise.tasks.base import Baseline

class Infinite(Copy):
    def baselines(self):
        return (Baseline(name="worst", scores=lambda batch, lengths: torch.full((len(batch), len(lengths)), math.inf)),)
"""
    study = STUDY.replace("ENCODINGS", '["nope"]').replace('["copy"]', '[Infinite, "copy"]')
    (own / "study.py").write_text("import torch\n" + tasks + study)
    ran = here("run", "study.py", "--results", "results", "--on", "inline")
    assert ran.code == 1, ran.err
    assert (
        "the baseline 'worst' of Infinite must have finite scores from 0 to 1, the limits of its metric, or return None"
        in ran.err
    )
    with open_store("results", create=False) as store:
        assert [run.status for run in store.runs("mine")] == ["failed", "done"]


def test_an_interrupt_is_no_error_of_a_plug_in(own: Path) -> None:
    (own / "interrupt.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugins(["interrupt.py"])


CONTRACT = {
    "tuple": (
        "return digits, digits[:, :1]",
        "Largest.draw must return Pairs(questions, answers), got an object of type tuple",
    ),
    "floats": (
        "return Pairs(digits.float(), digits[:, :1])",
        "questions as integers [count, words] with count 4, got torch.float32 of shape [4, 3]",
    ),
    "flat": (
        "return Pairs(digits, digits.max(1).values)",
        "answers as integers [count, words] with count 4, got torch.int64 of shape [4]",
    ),
    "words": ("return Pairs(digits + 5, digits[:, :1])", "with word ids 0 to 9, or -1 for no word"),
    "length": ("return Pairs(digits[:, 1:], digits[:, :1])", "examples of length 3, as `length_of` counts, got 2"),
    "widths": (
        "return Pairs(digits, digits[:, :2])",
        "at most (3, 1) words in a question and its answer, as `widths` says, got (3, 2)",
    ),
    "count": (
        "return Pairs(digits[:1], digits[:1, :1])",
        "Largest.draw must return questions as integers [count, words] with count 4, got torch.int64 of shape [1, 3]",
    ),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_examples_have_to_be_what_the_task_says_of_them(here: Call, own: Path, name: str) -> None:
    line, says = CONTRACT[name]
    (own / "mine.py").write_text(OWN.replace("return Pairs(digits, digits.max(1, keepdim=True).values)", line))
    one_line(here("sample", "largest", "--length", 3, "--plugin", "mine.py"), says)
    ran = here(*COMPARE, "--plugin", "mine.py", "--results", "results")
    one_line(ran, says)
    assert "mine.py, line " in ran.err


def test_all_examples_of_a_task_that_does_not_list_them(here: Call, own: Path) -> None:
    ran = here("sample", "largest", "--length", 3, "--all", "--plugin", "mine.py")
    one_line(ran, "Largest does not list its questions; define its method all_examples")


@pytest.mark.medium
def test_stored_answers_of_older_code_are_said_to_be_so(here: Call, compared: Path, own: Path) -> None:
    shutil.copytree(compared, own / "copy")
    words = (
        "probe",
        "attended-distance",
        "--lengths",
        6,
        "--results",
        own / "copy" / "results",
        "--plugin",
        own / "copy" / "mine.py",
    )
    with open_store(own / "copy" / "results", create=False) as store:
        key = next(row.key for row in store.runs() if row.label.startswith("NoPE"))
    ask = (*words[:2], key, *words[2:])
    assert here(*ask).code == 0
    assert "changed since" not in here(*ask).err
    (own / "copy" / "mine.py").write_text(OWN.replace("digits.max(1", "digits.min(1"))
    ran = here(*ask)
    assert ran.code == 0
    assert "Largest and Doubled changed since 1 run was trained, so these results belong to the old code" in ran.err
    assert "(every edit of a class's file or of a module that it imports counts, even of a comment" in ran.err


def test_a_failed_rule_of_a_kind_names_the_plug_in(here: Call, own: Path) -> None:
    (own / "mine.py").write_text(OWN.replace('unit = "digits"', 'unit, kinds = "digits", 5'))
    one_line_of_a_class(here("sample", "largest", "--length", 3, "--plugin", "mine.py"), "TypeError: ")
