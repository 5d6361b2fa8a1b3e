"""Study files, good and bad."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.studies import StudyError, load

QUICKSTART = Path(__file__).parent.parent.parent / "studies" / "quickstart.py"


def test_load_runs_the_file(study_file: Callable[..., Path]) -> None:
    path = study_file(seeds=2)
    study = load(path)
    assert study.name == "tiny"
    assert len(study.runs) == 4
    assert study.source == path.resolve()


def test_the_quickstart_is_a_study() -> None:
    study = load(QUICKSTART)
    assert {run.encoding.name for run in study.runs} >= {"NoPE", "Sinusoidal", "RoPE", "ALiBi", "T5", "FIRE"}
    assert {run.task.name for run in study.runs} == {"Text", "Copy"}
    for run in study.runs:
        trained, lengths = run.training.train_length, study.evaluation_of(run).lengths
        assert lengths[0] == trained
        assert 2 * trained in lengths
        assert all(choice.label == choice.name for choice in run.choices[:1])  # default settings
    assert study.question
    assert study.expectation
    assert study.cost
    assert study.command == "lengthwise run quickstart"


def test_a_study_may_import_its_neighbours(study_file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_tiny.py").write_text("ENCODINGS = ['alibi']\n")
    path = study_file(encodings="ENCODINGS", before="from neighbour_of_tiny import ENCODINGS")
    assert [run.label for run in load(path).runs] == ["ALiBi"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x = 1\n\ny = nmae\n", ", line 3: NameError: name 'nmae' is not defined"),
        ("def f():\n    raise ValueError('no')\n\nf()\n", ", line 2: ValueError: no"),
        ("x = (1,\n", ", line 1: SyntaxError: '(' was never closed"),
        ("import not_a_module_at_all\n", ", line 1: ModuleNotFoundError: No module named 'not_a_module_at_all'"),
        (
            "from lengthwise.studies import encoding\nencoding('fier')\n",
            ", line 2: there is no encoding 'fier'; did you",
        ),
        ("import sys\nsys.exit(3)\n", ", line 2: SystemExit: 3"),
        ("import json\n\njson.loads('{')\n", ", line 3: JSONDecodeError: "),
        ("assert False\n", ", line 1: AssertionError"),
        ("", " defines no `study`; end it with study = Study(...)"),
        ("study = 3\n", ": its `study` must be a lengthwise.studies.Study, got int"),
        ("x = '\xff'\n".encode("latin-1"), "SyntaxError"),
        (b"a\x00b", "null bytes"),
    ],
)
def test_files_that_leave_no_study(tmp_path: Path, content: str | bytes, says: str) -> None:
    path = tmp_path / "bad.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(StudyError) as error:
        load(path)
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_study_by_another_name_is_named(study_file: Callable[..., Path]) -> None:
    path = study_file()
    path.write_text(path.read_text() + "\nmine = study\ndel study\n")
    with pytest.raises(StudyError, match="rename its variable mine to `study`"):
        load(path)


def test_paths_that_are_no_study(tmp_path: Path, study_file: Callable[..., Path]) -> None:
    study_file()
    with pytest.raises(StudyError, match=r"there is no file .*tinny\.py; did you mean 'tiny\.py'\?"):
        load(tmp_path / "tinny.py")
    with pytest.raises(StudyError, match=r"is a folder; name a study file in it: tiny\.py"):
        load(tmp_path)
    with pytest.raises(StudyError, match=r"there is no file ~nobody-has-this-name/a\.py"):
        load("~nobody-has-this-name/a.py")


OPTIONS = """
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.studies import Study, grid


def study(seeds: int = 1, task: str = "copy", rate: float = 1e-3, note: str | None = None) -> Study:
    if task == "broken":
        raise RuntimeError("no such thing")
    training = TrainingConfig(train_length=4, steps=2, learning_rate=rate)
    return Study(
        name="optional", question=note or "?", runs=grid(["nope"], [task], seeds, training=training),
        evaluation=EvaluationConfig(lengths=(4,)),
    )
"""


@pytest.fixture
def optional(tmp_path: Path) -> Path:
    path = tmp_path / "optional_study.py"
    path.write_text(OPTIONS)
    return path


def test_a_function_takes_options(optional: Path) -> None:
    assert len(load(optional).runs) == 1
    assert load(optional).command == f"lengthwise run {optional}"
    study = load(optional, {"seeds": "3", "task": "reverse", "rate": "2", "note": "12"})
    assert len(study.runs) == 3
    assert {run.task.name for run in study.runs} == {"Reverse"}
    assert study.runs[0].training.learning_rate == 2.0
    assert study.question == "12", "a text that looks like a number"
    assert study.command == f"lengthwise run {optional} --set seeds=3 --set task=reverse --set rate=2 --set note=12"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": "3"}, "has no option 'seed'; did you mean 'seeds'?; its options are: seeds, task, rate, note"),
        ({"seeds": "many"}, "seeds must be int, got 'many' (str)"),
        ({"seeds": "1.5"}, "seeds must be int, got"),
        ({"task": "copi"}, "there is no task 'copi'; did you mean 'Copy'?"),
        ({"task": "broken"}, "optional_study.py, line 8: RuntimeError: no such thing"),
    ],
)
def test_options_that_cannot_be(optional: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(StudyError) as error:
        load(optional, options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_options_of_a_study_without_any(study_file: Callable[..., Path]) -> None:
    with pytest.raises(StudyError, match=r"has no options, because its `study` is not a function; omit seeds"):
        load(study_file(), {"seeds": "3"})


def test_parameters_without_a_default(optional: Path) -> None:
    optional.write_text(OPTIONS.replace("seeds: int = 1", "seeds: int"))
    with pytest.raises(StudyError, match=r"TypeError: study\(\) missing 1 required positional argument: 'seeds'"):
        load(optional)
