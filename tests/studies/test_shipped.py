"""The studies that come with Lengthwise, by name."""

from pathlib import Path

import pytest

from lengthwise.studies import StudyError, load, shipped
from lengthwise.studies.shipped import shipped_studies

NEIGHBOURS = {"battery_tasks", "deletang", "kazemnejad", "language_modelling", "thesis"}  # imported by studies


def test_every_file_that_defines_a_study_has_a_name_and_a_description() -> None:
    files = Path(__file__).parents[2].glob("studies/**/*.py")
    studies = shipped_studies()
    assert {study.path for study in studies.values()} == {path for path in files if path.stem not in NEIGHBOURS}
    assert next(iter(studies)) == "quickstart"
    assert {"nope/small", "icfl/paper", "fire/threshold", "battery/core"} <= studies.keys()
    for study in studies.values():
        assert 20 < len(study.summary) < 200
        assert "\n" not in study.summary
        assert study.cost[0] not in " :"
        assert study.cost.endswith(".")


def test_a_name_is_that_of_the_study_and_a_path_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study_file
) -> None:
    monkeypatch.chdir(tmp_path)
    study_file().rename(tmp_path / "quickstart.py")
    Path("quickstart").write_text("study = 3\n")
    assert load("quickstart").name == "quickstart"
    assert load("quickstart").source == shipped_studies()["quickstart"].path
    assert load("quickstart.py").name == load("./quickstart.py").name == "tiny"


def test_options_belong_to_the_command() -> None:
    assert load("axes/small", {"seeds": "1"}).command == "lengthwise run axes/small --set seeds=1"


@pytest.mark.parametrize("name", shipped_studies())
def test_the_command_of_a_study_runs_it(name: str) -> None:
    """In the package that is installed no path of the clone exists."""
    documentation = shipped_studies()[name].path.read_text().split('"""')[1]
    assert f"Command: lengthwise run {name}" in documentation
    assert load(name).command.split()[:3] == ["lengthwise", "run", name]


def test_an_installed_package_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "lengthwise" / "study_files"
    files.mkdir(parents=True)
    (files / "quickstart.py").write_text('"""Is it here?"""\nstudy = 3\n')
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "lengthwise" / "studies" / "shipped.py"))
    assert {name: study.summary for name, study in shipped_studies().items()} == {"quickstart": "Is it here?"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("quikstart", "there is no study 'quikstart'; did you mean 'quickstart'?"),
        ("studies/quickstart.py", "there is no study 'studies/quickstart.py'; did you mean 'quickstart'?"),
        ("nope/smal", "did you mean 'nope/small'?; give the path of a Python file, or a name that `lengthwise list"),
        ("something", "there is no study 'something'; give the path of a Python file, or a name that"),
        ("something.py", "there is no file something.py; give the path of a study, a Python file"),
    ],
)
def test_unknown_names(name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyError) as error:
        load(name)
    assert says in str(error.value)
