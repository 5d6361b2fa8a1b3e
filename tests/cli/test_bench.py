"""`lengthwise bench`: tables, files, refusals, interrupts, and the comparison of two files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.encodings import LieRE, NoPE, RoPE
from lengthwise.measurements.answer_file import read
from lengthwise.measurements.speed import KINDS
from lengthwise.speed import measure, model
from tests.speed.measurements import renamed, results, written

Call = Callable[..., Any]
TINY = ("--d-model", 16, "--num-layers", 2, "--num-heads", 2, "--batch-tokens", 16, "--warmup", 0, "--device", "cpu")
QUICK = (*TINY, "--no-memory", "--rounds", 6, "--lengths", "4,8")


class Constant:
    """A clock that runs each action and reports 1 second for NoPE and 1.5 for others."""

    name = "wall time"

    def __init__(self, stop_after: int = 10**6) -> None:
        self.left = stop_after

    def seconds(self, action: Any) -> float:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        action()
        return 1.0 if action.__self__.plan.label == "NoPE" else 1.5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def use(clock: Any) -> None:
        monkeypatch.setattr(measure, "Clock", lambda device, threads: clock)

    use(Constant())
    return use


@pytest.mark.medium
def test_tables_and_files(here: Call, clock: Any, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.jsonl", "a.svg")]
    words = ("bench", "rope", "--encodings", "learned:max_length=6,rope", *QUICK, "--out", files[0], "--plot", files[1])
    ran = here(*words)
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == "Time of a forward pass relative to NoPE, by tokens per sequence"
    assert lines[2] == "encoding 4 8"
    assert lines[4:7] == [
        "NoPE 1.000 (± 0.000) 1.000 (± 0.000)",
        "RoPE 1.500 (± 0.000) 1.500 (± 0.000)",
        "Learned(max_length=6) 1.500 (± 0.000) –",
    ]
    assert "NoPE, length 4 1,000 (± 0.000) 1,000 (± 0.000) 250 (± 0.000)" in lines
    assert any(
        line.startswith("Learned(max_length=6), length 8 Learned: position 7 is past the 6 rows") for line in lines
    )
    assert "d_model 16, num_layers 2, num_heads 2" in ran.out
    stored = read(files[0])
    assert list(dict.fromkeys(row["encoding"] for row in stored.rows)) == ["NoPE", "RoPE", "Learned(max_length=6)"]
    question = stored.question
    assert (question["rounds"], question["dtype"], question["memory"]) == (6, "float32", False)
    assert files[1].read_bytes().startswith(b"<svg")
    again = here(*words)
    assert again.code == 0 and again.out == ran.out and "already has all rounds" in again.err
    other = here("bench", "rope", *QUICK, "--out", files[0])
    assert other.code == 2
    assert (
        "--encodings rope,learned:max_length=6,rope instead of rope; name another file, or delete this one" in other.err
    )


def test_json_on_stdout_is_the_answer(here: Call, clock: Any) -> None:
    (answer,) = json.loads(here("bench", "alibi", *QUICK, "--json").out)
    assert answer["measurement"] == "speed" and {row["encoding"] for row in answer["rows"]} == {"NoPE", "ALiBi"}


@pytest.mark.medium
def test_all_encodings_are_the_default(here: Call, clock: Any) -> None:
    sizes = (
        "--d-model",
        32,
        "--num-layers",
        1,
        "--num-heads",
        2,
        "--batch-tokens",
        8,
        "--warmup",
        0,
        "--device",
        "cpu",
    )
    ran = here("bench", *sizes, "--no-memory", "--rounds", 1, "--lengths", 8, "--json")
    ((rows),) = [answer["rows"] for answer in json.loads(ran.out)]
    assert len({row["encoding"] for row in rows}) > 25
    assert {row["encoding"] for row in rows} == {row["encoding"] for row in rows if "forward" in row}


@pytest.mark.medium
@pytest.mark.parametrize("stop_after", [0, 5, 12, 13, 38, 43])
def test_ctrl_c_saves_the_finished_rounds_and_the_same_command_continues(
    here: Call, clock: Any, tmp_path: Path, stop_after: int
) -> None:
    clock(Constant(stop_after))
    file = tmp_path / "a.jsonl"
    ran = here("bench", "rope", *QUICK, "--out", file)
    assert ran.code == 130
    rounds = {4: min(6, stop_after // 6), 8: max(0, stop_after - 36) // 6}
    stored = [row for row in read(file).rows if "round" in row]
    assert {length: sum(row["length"] == length for row in stored) for length in (4, 8)} == {
        length: 2 * n for length, n in rounds.items()
    }
    if rounds[4] == 0:
        assert ran.out == "" and "lengthwise: stopped; no round was finished" in ran.err
    else:
        assert f"{min(filter(None, rounds.values()))} of 6 rounds are finished" in " ".join(ran.out.split())
        assert f"the finished rounds are in {file}, and the same command continues" in ran.err
    clock(Constant())
    assert here("bench", "rope", *QUICK, "--out", file).code == 0
    assert sum("round" in row for row in read(file).rows) == 2 * 2 * 6
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_memory_is_a_table(here: Call, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"NoPE": (100 * 2**20, None), "RoPE": (125 * 2**20, None), "ALiBi": (None, "it cannot")}
    monkeypatch.setattr(measure, "measure_memory", lambda plan, question, length: sizes[plan.label])
    out = here("bench", "rope", "alibi", *TINY, "--rounds", 1, "--lengths", "4").out
    text = [" ".join(line.split()) for line in out.splitlines()]
    begin = text.index("Peak memory of a training step beyond the weights, in MiB, by tokens per sequence")
    assert text[begin + 2] == "encoding 4" and text[begin + 4 : begin + 6] == ["NoPE 100", "RoPE 125"]
    assert "ALiBi, length 4 it cannot" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fier"], "did you mean 'FIRE'?"),
        (["--lengths", "0"], "--lengths contains '0'; write whole numbers from 1"),
        (["--rounds", "0"], "--rounds must be a whole number of at least 1"),
        (["--d-model", "15", "--num-heads", "2"], "--d-model must be a multiple of --num-heads"),
        (["rope*3+nope", "--num-layers", "2"], "num_layers must be at least 4"),
        (["liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["rope", "liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["rope*3+liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["--device", "tpu"], "device 'tpu' cannot be used"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--backend", "fusd"], "did you mean 'fused'"),
        (["--dtype", "int8"], "dtype"),
        (["--out", "none/a.jsonl"], "there is no folder none"),
        (["--out", "."], "--out must be a file, got the folder"),
        (["--plot", "a.gif"], "--plot must end in .svg, .png, .pdf or .html, got 'a.gif'"),
        (["--plot", "none/a.svg"], "--plot none/a.svg: there is no folder none"),
        (["--plot", ""], "--plot must end in"),
        (["--compare", "a.json"], "--compare"),
        (["--compare", "none.json", "none.json"], "none.json cannot be read: No such file"),
        (["rope", "--compare", "a.json", "b.json"], "--compare measures nothing, so it takes no encodings"),
        (["--compare", "a.json", "b.json", "--plot", "a.svg"], "it takes no --plot"),
    ],
)
def test_refusals(here: Call, clock: Any, words: list[str], message: str) -> None:
    ran = here("bench", *words)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.startswith("lengthwise: ") and ran.err.count("\n") == 1
    assert ran.out == ""


@pytest.mark.parametrize(("others", "code"), [([], 2), (["rope"], 1)])
def test_an_encoding_that_is_measured_at_no_length(here: Call, clock: Any, others: list[str], code: int) -> None:
    ran = here("bench", "learned:max_length=3", *others, *TINY, "--no-memory", "--rounds", 1, "--lengths", "4,8")
    assert ran.code == code
    assert "NoPE" in ran.out and "Learned(max_length=3), length 4" in ran.out
    message = (
        "lengthwise: Learned(max_length=3) could not be measured at any length: Learned: position 3 is past the 3 rows"
    )
    assert ran.err.startswith(message) and ran.err.count("\n") == 1


def test_all_encodings_without_those_that_do_not_fit(here: Call, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ENCODINGS", [NoPE, RoPE, LieRE])
    sizes = [20 if word == 16 else word for word in TINY]
    ran = here("bench", *sizes, "--no-memory", "--rounds", 1, "--lengths", "4")
    assert ran.code == 1
    assert "LieRE, length 4" in ran.out and "block must be at least 2 and divide head_dim, 10, got 8" in ran.out
    assert ran.err.startswith("lengthwise: LieRE could not be measured at any length: LieRE: block must")


def test_files_of_another_kind_are_not_overwritten(here: Call, clock: Any, tmp_path: Path) -> None:
    for name, option in (("a.png", "--plot"), ("a.svg", "--plot"), ("a.pdf", "--plot"), ("a.html", "--plot")):
        (tmp_path / name).write_text("my notes")
        ran = here("bench", "rope", *QUICK, option, tmp_path / name)
        assert ran.code == 2 and f"{option} {tmp_path / name} exists and is not an older" in ran.err
        assert (tmp_path / name).read_text() == "my notes"
    (tmp_path / "a.jsonl").write_text("my notes\n")
    ran = here("bench", "rope", *QUICK, "--out", tmp_path / "a.jsonl")
    assert ran.code == 2 and "is not an answer that lengthwise wrote (line 1: it is not JSON" in ran.err
    assert (tmp_path / "a.jsonl").read_text() == "my notes\n"


def test_a_file_of_another_measurement(here: Call, tmp_path: Path) -> None:
    own = written(tmp_path / "a.jsonl", results(1))
    other = tmp_path / "retention.jsonl"
    other.write_text(
        '{"measurement": "retention", "subject": {}, "question": {"train_length": 1024, "methods": ["pi"]}, '
        '"origin": {}}\n'
    )
    ran = here("bench", "--compare", own, other)
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert f"{other} was written by `lengthwise extend FOLDER`; name a file of `lengthwise bench`, or read" in ran.err


def test_a_file_of_bench_in_place_of_one_of_reach(here: Call, tmp_path: Path) -> None:
    own = written(tmp_path / "a.jsonl", results(1))
    ran = here("reach", own)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"lengthwise: {own} was written by `lengthwise bench`; name a file of `lengthwise reach FOLDER`, or read this "
        f"one with `lengthwise export answers {own} --out FILE.csv`\n"
    )


# ---- comparison ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    b = results(2, factor={"FIRE": 1.3}, lengths=(512, 1024))
    return written(tmp_path / "a.jsonl", results(1)), written(tmp_path / "b.jsonl", b)


def test_a_comparison_names_what_changed(here: Call, pair: tuple[Path, Path]) -> None:
    ran = here("bench", "--compare", *pair)
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == "encoding length A B change p"
    found = [
        re.match(r"FIRE 512 (forward pass|training step|decoded token) .*\+\d\d\.\d% < 0.0001", n) for n in lines[1:4]
    ]
    assert {match.group(1) for match in found if match} == set(KINDS.values())
    text = " ".join(lines)
    assert "3 of 9 ratios to NoPE changed beyond the noise: 3 slower in B." in lines
    assert lines[6:8] == [f"A: {pair[0]}", f"B: {pair[1]}"]
    assert "only A has it: NoPE at 256" in text


def test_a_comparison_of_the_same_file_finds_nothing(here: Call, pair: tuple[Path, Path]) -> None:
    ran = here("bench", "--compare", pair[0], pair[0])
    assert ran.code == 0
    assert "None of 18 ratios to NoPE changed beyond the noise." in ran.out


def test_a_comparison_as_json(here: Call, pair: tuple[Path, Path]) -> None:
    data = json.loads(here("bench", "--compare", *pair, "--json").out)
    assert len(data["changes"]) == 9
    assert {c["verdict"] for c in data["changes"] if c["encoding"] == "FIRE"} == {"slower"}
    assert {"mean", "low", "high"} < set(data["changes"][0]["before"])


def test_a_hostile_file_cannot_write_to_the_terminal(here: Call, tmp_path: Path) -> None:
    evil = written(tmp_path / "a.jsonl", renamed(results(1), "FIRE", "\x1b[31mFIRE\n"))
    other = written(tmp_path / "b.jsonl", results(2))
    ran = here("bench", "--compare", evil, other)
    assert ran.code == 0
    assert "\x1b" not in ran.out and "\\x1b[31mFIRE\\n at 256" in " ".join(ran.out.split())
    evil.write_text('{"cells": [], "x": 1}\n')
    ran = here("bench", "--compare", evil, other)
    assert ran.code == 2 and ran.err.count("\n") == 1
