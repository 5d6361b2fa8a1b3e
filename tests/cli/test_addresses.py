"""An address where a folder belongs: refused by every command and function, and never printed with its password."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise import values
from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig
from lengthwise.report import write
from lengthwise.store import StoreError, open_results, open_store
from lengthwise.studies import Study, execute, grid
from lengthwise.training import train

Call = Callable[..., Any]

ADDRESSES = [
    "postgresql://user:hunter2@localhost:1/none",
    "postgresql+psycopg://user:hunter2@localhost:1/none?password=hunter2@x",
    "mysql://user:hunter@2@db/none",
    "https://user:hunter2 with spaces@example.org/results",
    "sqlite:////tmp/user:hunter2@x.db",
    "postgresql:/user:hunter2@localhost:1/none",
    "postgresql://host/db?user=u&password=hunter2",
    "postgresql+psycopg://user:x@127.0.0.1:1/db?sslpassword=hunter2",
    "postgresql://user:a@hunter2",
    "postgresql:user:hunter2@host/db",
    "//user:hunter2@host/db",
    "user:hunter2@host/db",
    "host=h password=hunter2",
    "a/postgresql://user:hunter2@host/db",
]
SECRETS = ("hunter", "user")
COMMANDS = [
    ["run", "study.py"],
    ["compare", "nope", "--task", "copy", "--train-length", "4"],
    ["report"],
    ["list", "runs"],
    ["list", "studies"],
    ["show", "3f9a"],
    ["drop", "3f9a"],
    ["drop", "--study", "s"],
    ["probe", "recency", "3f9a"],
    ["lengths", "3f9a"],
]
STUDY = """
from lengthwise.config import EvaluationConfig, TrainingConfig
from lengthwise.studies import Study, grid
study = Study(name="s", runs=grid(["nope"], ["copy"], training=TrainingConfig(train_length=4)),
              evaluation=EvaluationConfig(lengths=(4,)))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.py").write_text(STUDY)
    return tmp_path


def harmless(text: str) -> bool:
    return not any(secret in text.lower() for secret in SECRETS)


HOW = ("option", "joined", "environment")
PAIRWISE = [  # every command with every address, and each of them in every way; the other combinations are slow
    pytest.param(command, address, how, marks=[pytest.mark.slow] if (a + b + c) % 3 else [])
    for a, command in enumerate(COMMANDS)
    for b, address in enumerate(ADDRESSES)
    for c, how in enumerate(HOW)
]


@pytest.mark.parametrize(("command", "address", "how"), PAIRWISE)
def test_every_command_refuses_it(
    here: Call, place: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], address: str, how: str
) -> None:
    if how == "environment":
        monkeypatch.setenv("LENGTHWISE_RESULTS", address)
        ran = here(*command)
    else:
        ran = here(*command, *([f"--results={address}"] if how == "joined" else ["--results", address]))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "must be a folder on this machine" in ran.err
    assert harmless(ran.err + ran.out), ran.err
    assert os.listdir(place) == ["study.py"]


@pytest.mark.parametrize("words", [["--result"], ["--study"], ["--output"], []])
def test_no_error_repeats_it(here: Call, place: Path, words: list[str]) -> None:
    """Not even where it was written in the wrong place."""
    for command in COMMANDS:
        ran = here(*command, *words, ADDRESSES[0])
        assert ran.code == 2
        assert harmless(ran.err + ran.out), ran.err
    assert os.listdir(place) == ["study.py"]


def a_run() -> Run:
    (run,) = grid(["nope"], ["copy"], model=ModelConfig(d_model=8, num_layers=1, num_heads=2),
                  training=TrainingConfig(train_length=4, steps=1, batch_size=1))  # fmt: skip
    return run


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("kind", [str, Path])
def test_functions_that_take_a_results_folder_refuse_it(place: Path, address: str, kind: type) -> None:
    where = kind(address)
    study = Study(name="s", runs=(a_run(),), evaluation=EvaluationConfig(lengths=(4,)))
    calls: list[Callable[[], object]] = [
        lambda: execute(study, where),
        lambda: open_results(where),
        lambda: train(a_run(), where),
        lambda: write(None, where),  # type: ignore[arg-type]
    ]
    if kind is Path or not re.match(r"[a-z+]+://", address):
        calls.append(lambda: open_store(where))
    for call in calls:
        with pytest.raises(ConfigError, match="must be a ") as caught:
            call()
        assert harmless(str(caught.value))
    assert os.listdir(place) == ["study.py"]


@pytest.mark.parametrize(
    "address", ["postgresql://u:hunter2\udcff@h/d", "postgresql://h\udcff/d", "sqlite:///\udcff.db"]
)
def test_an_address_with_bytes_that_are_not_text(here: Call, place: Path, address: str) -> None:
    """Python makes lone surrogates of them."""
    ran = here("list", "runs", "--store", address)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "lengthwise: the address of the database is not UTF-8; write it in UTF-8, such as postgresql://user@host/name\n"
    )
    with pytest.raises(StoreError, match="the address of the database is not UTF-8"):
        open_store(address)


@pytest.mark.parametrize(
    "address", ["postgresql://user:hunter2@[broken", "mysql://user:hunter2@h/d", "sqlite://user:hunter2@h/d",
                "postgresql://u:hunter2@127.0.0.1:bad/db", "postgresql://u:a@hunter2@127.0.0.1:1/db",
                "postgresql://u@127.0.0.1:1/db?password=hunter2&sslpassword=hunter2",
                "postgresql://u:hunter2@127.0.0.1:1/db?sslpassword=hunter2&nonsense=hunter2"]
)  # fmt: skip
def test_a_store_s_url_keeps_its_password_to_itself(place: Path, address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("where", ["results", "/tmp/a@b", "C:/results", "a:b", "./x:/y", "user@host"])
def test_folders_are_no_addresses(where: str) -> None:
    values.require_no_address("it", where)


@pytest.mark.parametrize("where", [None, b"results", 3])
def test_what_is_no_path_is_said_so(where: Any) -> None:
    for call in (open_store, open_results):
        with pytest.raises(TypeError, match=f"must be a path, as a string or a Path, got {type(where).__name__}"):
            call(where)


@pytest.mark.parametrize("address", ADDRESSES)
def test_advice_stays_and_secrets_go(address: str) -> None:
    advice = f"; write {values.EXAMPLE}, or a folder"
    assert values.without_secrets(f"that cannot be{advice}") == f"that cannot be{advice}"
    masked = values.without_secrets(f"there is no option {address}{advice}")
    assert harmless(masked.replace(values.EXAMPLE, "")), masked
    assert masked.startswith("there is no option ")
    for quote in "\"'`":
        quoted = values.without_secrets(f"Invalid value {quote}{address}{quote} for --results. It is wrong")
        assert re.fullmatch(
            rf"Invalid value {quote}\S*( password=|host=h )?\*\*\*{quote} for --results. It is wrong", quoted
        )
