"""`lengthwise sample`: some or all examples of a task."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def rows(ran: Any) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.medium
def test_all_of_scan(here: Call) -> None:
    found = rows(here("sample", "scan", "--all", "--json"))
    assert len(found) == len({row["input"] for row in found}) == 20_910
    assert [row["number"] for row in found] == list(range(20_910))
    assert all(row["length"] == len(row["target"].split()) for row in found)
    assert Counter(row["length"] for row in found)[48] == 128
    assert {row["split"] for row in found} == {"train", "test", "train and test"}
    assert found[0] == {
        "task": "SCAN",
        "split": "train and test",
        "number": 0,
        "input": "walk",
        "target": "I_WALK",
        "length": 1,
    }


def test_all_of_a_length_and_a_split(here: Call) -> None:
    found = rows(here("sample", "scan:split=tr25", "--all", "--length", 25, "--json"))
    assert len(found) == 448
    trained = rows(here("sample", "scan:split=tr25", "--all", "--length", 25, "--split", "train", "--json"))
    assert [row["input"] for row in trained] == [row["input"] for row in found if row["split"] == "train"]
    assert 0 < len(trained) < 448
    shared = rows(here("sample", "scan", "--all", "--length", 1, "--split", "test", "--json"))
    assert len(shared) == 6
    ran = here("sample", "pcfg", "--all", "--length", 32)
    assert ran.out.splitlines()[-1] == "PCFG: test 2"
    assert ran.out.count("input") == ran.out.count("target") == 2


def test_what_is_too_few_to_split_is_in_both_splits(here: Call) -> None:
    train, test = (
        sorted(r["input"] for r in rows(here("sample", "scan", "--length", 1, "--all", "--split", split, "--json")))
        for split in ("train", "test")
    )
    assert train == test
    assert len(test) == 6
    said = " ".join(here("sample", "--help").out.replace("│", " ").split())
    assert (
        "No example is in both splits, except at lengths with too few examples to divide (only 6 commands of SCAN have "
        "one action)" in said
    )


def test_all_of_a_task_that_draws_its_questions(here: Call) -> None:
    ran = here("sample", "copy:symbols=2", "--length", 3, "--all")
    assert ran.out.count("input") == 8
    assert "Copy(symbols=2): train 6; test 2" in ran.out
    for words in (["--length", 5], []):
        ran = here("sample", "copy", *words, "--all")
        assert ran.code == 2
        assert ran.err.startswith("lengthwise: Copy has too many questions of ")
        assert not ran.out


def test_published_text(here: Call) -> None:
    (row,) = rows(here("sample", "copy", "--length", 3, "--count", 1, "--published", "repository", "--json"))
    (plain,) = rows(here("sample", "copy", "--length", 3, "--count", 1, "--json"))
    assert row["prompt"] == f"Copy: {plain['input']} "
    assert (row["separator"], row["target"], row["length"]) == ("[SEP] ", plain["target"], 3)
    assert "input" not in row
    said = here("sample", "copy", "--length", 3, "--count", 1, "--published", "repository").out.splitlines()
    assert said[0] == f'0  prompt     "Copy: {plain["input"]} "'
    assert said[1] == '   separator  "[SEP] "'
    (printed,) = rows(here("sample", "copy", "--length", 3, "--count", 1, "--published", "paper", "--json"))
    assert printed["prompt"] == f"Copy the following words: {plain['input']} ."
    assert printed["target"] == plain["target"]
    found = rows(here("sample", "scan", "--length", 2, "--all", "--published", "repository", "--json"))
    assert {"prompt": "Solve: jump left", "target": "Left Jump"}.items() <= {
        **next(row for row in found if row["prompt"] == "Solve: jump left")
    }.items()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["text", "--all"], "Text cannot list all of its examples"),
        (["scan", "--length", "2", "--published", "paper"], "the paper prints no example of SCAN"),
        (["text", "--published", "paper"], "Text has no published text; omit --published, or use one of: Copy"),
        (["scan", "--all", "--count", "3"], "--all prints every example, so it cannot be combined with --count 3"),
        (["scan", "--all", "--seed", "0"], "--all prints every example, so it cannot be combined with --seed 0"),
        (
            ["scan", "--length", "23"],
            "SCAN has no example of 23 actions; the nearest lengths with examples are 22 and 24",
        ),
        (["scan", "--all", "--length", "23"], "SCAN has no example of 23 actions"),
        (["scan", "--length", "24", "--split", "train"], "training length must be at most 22 actions for SCAN, got 24"),
        (
            ["scan", "--all", "--length", "24", "--split", "train"],
            "training length must be at most 22 actions for SCAN, got 24",
        ),
        (["pcfg", "--length", "36"], "the nearest length with examples is 35"),
        (["pcfg:longest=1", "--length", "3"], "PCFG.longest must be between 20 and 1000, got 1"),
        (["scan:split=tr24"], "did you mean 'tr25'?"),
    ],
)
def test_what_cannot_be_sampled(here: Call, words: list[str], says: str) -> None:
    ran = here("sample", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1
    assert says in ran.err


@pytest.mark.medium
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGPIPE")
def test_whoever_reads_the_beginning_alone_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "lengthwise", "sample", "scan", "--all", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["input"] == "walk"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_what_nobody_could_read_is_not_printed(here: Call) -> None:
    ran = here("sample", "copy", "--length", 99_999_999, "--count", 1)
    assert ran.code == 2
    assert ran.err == (
        "lengthwise: 1 example of length 99999999 would be 200,000,000 tokens, but sample prints at most 1,000,000; "
        "use a shorter length or fewer examples\n"
    )
    assert here("sample", "summation", "--length", 1000, "--count", 999).code == 2
    assert here("sample", "summation", "--length", 1000, "--count", 900, "--json").code == 0
    assert (
        "variables for LEGO, whose names are letters, got 99999999"
        in here("sample", "lego", "--length", 99_999_999).err
    )


def test_one_is_singular(here: Call) -> None:
    assert "Parity: length 1 bit, test, seed 0" in here("sample", "parity", "--length", 1).out


def test_sample_shows_the_same_examples_for_the_same_seed(here: Call) -> None:
    ran = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--json")
    examples = [json.loads(line) for line in ran.out.splitlines()]
    assert len(examples) == 2
    for number, example in enumerate(examples):
        assert example["task"] == "Copy(symbols=5)"
        assert (example["number"], example["seed"], example["split"], example["length"]) == (number, 3, "test", 6)
        assert len(example["input"].split()) == 6
        assert example["target"] == example["input"]
    again = here("sample", "COPY:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--json")
    assert again.out == ran.out
    other = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 4, "--json")
    assert other.out != ran.out
    train = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--split", "train", "--json")
    assert train.out != ran.out


def test_sample_of_a_text(here: Call, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("All happy families are alike.\n" * 100)
    ran = here("sample", f"text:path={text}", "--length", 20, "--count", 1)
    assert ran.code == 0
    assert "<BOS>" in ran.out
    assert "length 20 bytes, test, seed 0" in ran.out
