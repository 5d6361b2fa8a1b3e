"""Integer numbers that are too large, of every option of every command: one plain line, at once."""

from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.cli.app import COMMANDS, app
from lengthwise.cli.options import MAX_INTEGER, whole_numbers
from lengthwise.config import ConfigError, ModelConfig, TrainingConfig
from lengthwise.studies import grid
from lengthwise.studies.study import MAX_RUNS

Call = Callable[..., Any]

NEEDED = {
    "run": ["study.py"],
    "compare": ["nope", "--task", "copy", "--train-length", "4"],
    "sample": ["copy"],
    "inspect": ["alibi"],
    "probe": ["attended-distance", "3f9a"],
    "harness": ["copy", "--out", "tasks"],
    "extend": ["folder", "--methods", "nope", "--text", "text.txt", "--out", "extended"],
    "reach": ["folder", "--text", "text.txt"],
    "tokenize": ["folder", "--output", "corpus"],
    "bench": [],
    "serve": [],
    "work": ["study.py"],
    "statistics": [],
}
NUMBERS = ["9" * 20, "-" + "9" * 20, str(MAX_INTEGER + 1)]


OPTIONS = [
    (name, argument.name.removeprefix("--"))
    for name in COMMANDS
    if name != "export"  # a group of commands, none of which takes a number
    for argument in (app[name]["attended-distance"] if name == "probe" else app[name]).assemble_argument_collection()
    if argument.parameter.converter is not None
]


def test_the_options_are_found() -> None:
    assert {("probe", "examples"), ("compare", "seeds"), ("compare", "workers"), ("run", "threads")} < set(OPTIONS)
    assert {name for name, _ in OPTIONS} == set(NEEDED)


def plainly(ran: Any) -> None:
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "bug in lengthwise" not in ran.err


@pytest.mark.medium
@pytest.mark.parametrize(("verb", "option"), OPTIONS, ids=" ".join)
def test_whole_numbers(here: Call, verb: str, option: str) -> None:
    for number in NUMBERS:
        words = list(NEEDED[verb])
        if f"--{option}" in words:
            words = words[: words.index(f"--{option}")]
        ran = here(verb, *words, f"--{option}={number}")
        plainly(ran)
        assert option in ran.err
        assert len(ran.err) < 300


@pytest.mark.medium
@pytest.mark.parametrize(
    "words",
    [
        ["compare", "nope", "--task", "copy", "--train-length", "4", "--lengths"],
        ["probe", "attended-distance", "3f9a", "--lengths"],
        ["probe", "duplicates", "3f9a", "--noise"],
        ["reach", ".", "--tasks", "functions", "--shots"],
        ["reach", ".", "--text", __file__, "--lengths"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_lists_of_whole_numbers(here: Call, words: list[str]) -> None:
    for number in [*NUMBERS, "4,x", "1-999999999", "4.5", "", ","]:
        plainly(here(*words[:-1], f"{words[-1]}={number}"))


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "learned:max_length={}"],
        ["inspect", "rope*{}"],
        ["inspect", "rope*{}+nope"],
        ["sample", "copy:symbols={}"],
        ["sample", "copy", "--length", str(MAX_INTEGER)],
        ["sample", "copy", "--count", str(MAX_INTEGER)],
        ["inspect", "alibi", "--length", str(MAX_INTEGER)],
    ],
    ids=" ".join,
)
def test_numbers_in_settings(here: Call, words: list[str]) -> None:
    plainly(here(*(word.format("9" * 40) for word in words)))


def test_a_list_of_numbers_is_read() -> None:
    assert whole_numbers("4, 8,,16", "--lengths", 1, "4,8") == [4, 8, 16]
    with pytest.raises(ConfigError, match="--lengths must be whole numbers from 1 to"):
        whole_numbers("4,0", "--lengths", 1, "4,8")


def test_a_study_of_too_many_runs_is_refused_before_they_are_made() -> None:
    training = TrainingConfig(train_length=4)
    for seeds in (MAX_RUNS + 1, 10**15, 10**23):
        with pytest.raises(ConfigError, match="must have at most 10,000 runs"):
            grid(["nope"], ["copy"], seeds, training=training)
    with pytest.raises(ConfigError, match="at most 10,000"):
        grid(["nope", "rope"], ["copy"], MAX_RUNS // 2 + 1, training=training)
    with pytest.raises(ConfigError, match="num_layers must be from 1 to 1000, got 1001"):
        ModelConfig(num_layers=1001)
