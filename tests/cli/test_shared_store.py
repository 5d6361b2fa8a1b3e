"""Commands on a database server (`--store`): the same results as in a results folder, and no password anywhere."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from lengthwise.store.schema import tables
from tests.cli.conftest import TINY
from tests.postgres_server import needs_postgres, postgres

__all__ = ["postgres"]

pytestmark = [needs_postgres, pytest.mark.medium]
Call = Callable[..., Any]
SECRET = "hunter2"


@pytest.fixture
def address(postgres: str) -> str:
    """The address of an empty database, with a password, which the server does not ask for."""
    engine = create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    tables.drop_all(engine)
    engine.dispose()
    return re.sub("//(.*?)@", rf"//\1:{SECRET}@", postgres)


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.medium
def test_every_command(
    here: Call, finished: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, results = tmp_path / "tiny.py", tmp_path / "results"
    study.write_text(TINY)
    on = ("--results", results, "--store", address)
    ran = here("run", study, "--on", "inline", *on)
    assert ran.code == 0, ran.err
    said = [ran]
    scores = []
    for place in (("--results", finished), on):
        said.append(here("report", "--json", *place))
        found = json.loads(said[-1].out)
        for task in found["tasks"]:
            del task["answers"]["training"]  # it has seconds, which differ
        scores.append(re.findall(r'"mean": [-\d.e]+', json.dumps(found)))
    assert scores[0] == scores[1] != []
    runs = json.loads(here("list", "runs", "--json", *on).out)
    assert len(runs) == 2
    (key,) = (run["key"] for run in runs if run["label"] == "FIRE-S")
    said += [here(*words, *on) for words in (
        ("list", "runs"), ("list", "studies"), ("show", key), ("probe", "learned-bias", key), ("lengths", key),
        ("report",), ("drop", key), ("show", "ffff"),
    )]  # fmt: skip
    assert [r.code for r in said[3:]] == [0, 0, 0, 0, 0, 0, 2, 2], [r.err for r in said]
    assert "`lengthwise list runs --store ADDRESS --results " in said[-1].err
    monkeypatch.setenv("LENGTHWISE_STORE", address)
    monkeypatch.setenv("LENGTHWISE_RESULTS", str(results))
    said.append(here("show", "ffff"))
    assert "`lengthwise list runs` lists all runs" in said[-1].err
    said.append(here("drop", "--study", "tiny", "--finished"))
    assert said[-1].code == 0 and not list((results / "runs").iterdir())
    assert not any(SECRET in r.out + r.err for r in said)
    assert files_with(tmp_path, SECRET) == []


@pytest.mark.medium
def test_a_comparison_states_its_command_without_the_address(here: Call, address: str, tmp_path: Path) -> None:
    import sys

    words = ["compare", "nope", "--task", "copy", "--train-length", "4", "--lengths", "4", "--steps", "1", "--d-model",
             "8", "--num-layers", "1", "--num-heads", "2", "--examples", "4", "--on", "inline"]  # fmt: skip
    for n, given in enumerate((["--store", address], [f"--store={address}"])):
        here_words = [*words, "--name", f"study {n}", "--results", str(tmp_path / "results"), *given]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "argv", ["lengthwise", *here_words])
            assert here(*here_words).code == 0
    studies = here("list", "studies", "--json", "--results", tmp_path / "results", "--store", address).out
    assert SECRET not in studies and "postgresql" not in studies


@pytest.mark.parametrize(
    "given", ["results", "host=h password=hunter2", "mysql://zoe:hunter2@h/d", "postgresql://zoe:hunter2@"]
)
@pytest.mark.parametrize("how", ["option", "environment"])
def test_what_is_no_address(here: Call, given: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if how == "environment":
        monkeypatch.setenv("LENGTHWISE_STORE", given)
    ran = here("list", "runs", *(["--store", given] if how == "option" else []))
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert "postgresql://user@host/name" in ran.err or "cannot be reached" in ran.err
    assert SECRET not in ran.err and "zoe" not in ran.err
    assert list(tmp_path.iterdir()) == []
