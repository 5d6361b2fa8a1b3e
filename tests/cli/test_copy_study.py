"""`lengthwise copy-study` and `lengthwise list studies --available`."""

import json
from pathlib import Path

import pytest

from lengthwise.studies import load
from lengthwise.studies.shipped import shipped_studies


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_copy_is_a_study_with_its_own_command(here) -> None:
    ran = here("copy-study", "quickstart", "my.py")
    assert (ran.code, ran.err) == (0, "")
    assert "then: lengthwise run my.py" in ran.out
    assert load("my.py").command == "lengthwise run my.py"
    assert load("my.py").runs == load("quickstart").runs
    assert "Command: lengthwise run my.py" in Path("my.py").read_text()


@pytest.mark.medium
@pytest.mark.parametrize("name", shipped_studies())
def test_neighbours_are_copied(name: str, here) -> None:
    assert here("copy-study", name, "copy_of_it.py").code == 0
    if name == "nope/small":
        assert {path.name for path in Path().iterdir()} == {"copy_of_it.py", "kazemnejad.py"}
    assert load("copy_of_it.py").runs == load(name).runs


def test_nothing_is_overwritten(here) -> None:
    Path("my.py").write_text("mine")
    Path("kazemnejad.py").write_text("mine too")
    for name, file in (("quickstart", "my.py"), ("nope/small", "other.py")):
        ran = here("copy-study", name, file)
        assert ran.code == 2
        assert "exists; name another file, or overwrite it with --force" in ran.err
    assert [path.read_text() for path in sorted(Path().iterdir())] == ["mine too", "mine"]
    assert here("copy-study", "nope/small", "my.py", "--force").code == 0
    assert load("my.py").runs == load("nope/small").runs


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("quikstart", "my.py"), "there is no study 'quikstart'; did you mean 'quickstart'?"),
        (("quickstart", "my"), "FILE must end with .py, got 'my'; write for example my.py"),
        (("quickstart", "no/my.py"), "FILE no/my.py: there is no folder no"),
        (("other.py", "my.py"), "other.py is a file already; copy it as any other file"),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], says: str, here) -> None:
    ran = here("copy-study", *words)
    assert ran.code == 2
    assert says in ran.err
    assert not list(Path().iterdir())


def test_the_list_of_studies(here) -> None:
    listed = json.loads(here("list", "studies", "--available", "--json").out)
    assert [row["name"] for row in listed] == list(shipped_studies())
    assert all(Path(row["path"]).is_file() for row in listed)
    text = here("list", "studies", "--available").out
    assert "nope/small" in text
    assert "Which encodings still work on sequences longer than in" in " ".join(text.split())
    assert "--available applies only to list studies" in here("list", "runs", "--available").err
    assert not list(Path().iterdir()), "no results folder"


def test_a_study_is_described_with_its_options(here) -> None:
    text = here("list", "studies", "fire/paper").out
    assert "Language modelling at the scale of the FIRE paper" in text
    assert "Options (--set NAME=VALUE): corpus=python, arxiv='', github='', size=base, train_length=2048" in text
    (row,) = json.loads(here("list", "studies", "axes/small", "--json").out)
    assert row["options"] == {"seeds": 2, "steps": 2000}
    assert "Options (--set NAME=VALUE): none" in here("list", "studies", "nope/small").out
    ran = here("list", "studies", "fire/papr")
    assert (ran.code, ran.out) == (2, "")
    assert "Lengthwise has no study 'fire/papr'; did you mean 'fire/paper'?" in ran.err
