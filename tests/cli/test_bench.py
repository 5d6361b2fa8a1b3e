"""`lengthwise bench`: tables, files, refusals, interrupts, and the comparison of two files."""

import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lengthwise.cli.bench import tables
from lengthwise.encodings import LieRE, NoPE, RoPE
from lengthwise.speed import measure, model
from lengthwise.speed.plot import seconds_text
from lengthwise.speed.results import read
from tests.speed.measurements import results

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
        monkeypatch.setattr(measure, "clock_for", lambda device, threads: clock)

    use(Constant())
    return use


@pytest.mark.medium
def test_tables_and_files(here: Call, clock: Any, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "a.svg")]
    ran = here(
        "bench", "rope", "--encodings", "learned:max_length=6,rope", *QUICK, "--output", files[0], "--plot", files[1]
    )
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[:5] == [
        "Time of a forward pass relative to NoPE, by tokens per sequence",
        "encoding 4 8",
        "NoPE 1.00 s 1.00 s",
        "RoPE 1.50 (1.50–1.50) 1.50 (1.50–1.50)",
        "Learned(max_length=6) 1.50 (1.50–1.50) – [1]",
    ]
    assert "[1] Learned(max_length=6) at 8: Learned: position 7 is past the 6 rows" in ran.out
    assert "d_model 16, 2 layers, 2 heads" in ran.out
    stored = read(files[0])
    assert stored.complete and stored.encodings == ["NoPE", "RoPE", "Learned(max_length=6)"]
    assert (stored.question.rounds, stored.question.dtype, stored.question.memory) == (6, "float32", False)
    assert files[1].read_bytes().startswith(b"<svg")
    again = here("bench", "rope", *QUICK, "--output", files[0], "--plot", files[1])
    assert again.code == 0 and read(files[0]).encodings == ["NoPE", "RoPE"]


def test_json_on_stdout_is_the_file(here: Call, clock: Any, tmp_path: Path) -> None:
    ran = here("bench", "alibi", *QUICK, "--json")
    (tmp_path / "a.json").write_text(ran.out)
    assert read(tmp_path / "a.json").encodings == ["NoPE", "ALiBi"]


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
    cells = json.loads(ran.out)["cells"]
    assert len(cells) > 25
    assert {cell["encoding"] for cell in cells if not cell["forward"]} == set()


@pytest.mark.parametrize("stop_after", [0, 3, 8, 9, 26, 30])
def test_ctrl_c_prints_and_saves_the_finished_rounds(here: Call, clock: Any, tmp_path: Path, stop_after: int) -> None:
    clock(Constant(stop_after))
    file = tmp_path / "a.json"
    ran = here("bench", "rope", *QUICK, "--output", file)
    assert ran.code == 130
    rounds = [min(6, stop_after // 4), max(0, stop_after - 24) // 4]
    if rounds[0] == 0:
        assert not file.exists()
        assert ran.out == ""
        assert "lengthwise: stopped; no round was finished" in ran.err
        return
    stored = read(file)
    assert not stored.complete
    assert [len(c.forward) for c in stored.cells] == [n for n in rounds for _ in range(2)][: len(stored.cells)]
    assert "stopped early" in " ".join(ran.out.split())
    assert f"the finished rounds are printed and saved in {file}" in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_memory_is_a_table(here: Call, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"NoPE": (100 * 2**20, None), "RoPE": (125 * 2**20, None), "ALiBi": (None, "it cannot")}
    monkeypatch.setattr(measure, "measure_memory", lambda plan, question, length: sizes[plan.label])
    out = here("bench", "rope", "alibi", *TINY, "--rounds", 1, "--lengths", "4").out
    text = [" ".join(line.split()) for line in out.splitlines()]
    begin = text.index("Peak memory of a training step beyond the weights, in MiB (relative to NoPE)")
    assert text[begin + 1 : begin + 5] == ["encoding 4", "NoPE 100", "RoPE 125 (1.25)", "ALiBi – [1]"]
    assert "[1] ALiBi at 4: it cannot" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fier"], "did you mean 'FIRE'?"),
        (["--lengths", "0"], "--lengths must be whole numbers from 1"),
        (["--rounds", "0"], "rounds must be at least 1"),
        (["--d-model", "15", "--num-heads", "2"], "--d-model must be a multiple of num_heads"),
        (["rope*3+nope", "--num-layers", "2"], "num_layers must be at least 4"),
        (["liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["rope", "liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["rope*3+liere:block=7"], "LieRE: block must be at least 2 and divide head_dim, 64, got 7"),
        (["--device", "tpu"], "device 'tpu' cannot be used"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--backend", "fusd"], "did you mean 'fused'"),
        (["--dtype", "int8"], "dtype"),
        (["--output", "none/a.json"], "there is no folder none"),
        (["--output", "."], "--output must be a file, got the folder"),
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
    assert "NoPE" in ran.out and "[1] Learned(max_length=3) at 4: Learned: position 3 is past the 3 rows" in ran.out
    message = (
        "lengthwise: Learned(max_length=3) could not be measured at any length: Learned: position 3 is past the 3 rows"
    )
    assert ran.err.startswith(message) and ran.err.count("\n") == 1


def test_all_encodings_without_those_that_do_not_fit(here: Call, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "ENCODINGS", [NoPE, RoPE, LieRE])
    sizes = [20 if word == 16 else word for word in TINY]
    ran = here("bench", *sizes, "--no-memory", "--rounds", 1, "--lengths", "4")
    assert ran.code == 1
    assert "[1] LieRE at 4: LieRE: block must be at least 2 and divide head_dim, 10, got 8" in ran.out
    assert ran.err.startswith("lengthwise: LieRE could not be measured at any length: LieRE: block must")


def test_files_of_another_kind_are_not_overwritten(here: Call, clock: Any, tmp_path: Path) -> None:
    for name, option in (
        ("a.png", "--plot"),
        ("a.svg", "--plot"),
        ("a.pdf", "--plot"),
        ("a.html", "--plot"),
        ("a.json", "--output"),
    ):
        (tmp_path / name).write_text("my notes")
        ran = here("bench", "rope", *QUICK, option, tmp_path / name)
        assert ran.code == 2 and f"{option} {tmp_path / name} exists and is not an older" in ran.err
        assert (tmp_path / name).read_text() == "my notes"


# ---- comparison ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(results(1).to_json("cells"))
    b.write_text(results(2, factor={"FIRE": 1.3}, lengths=(512, 1024)).to_json("cells"))
    return a, b


def test_a_comparison_names_what_changed(here: Call, pair: tuple[Path, Path]) -> None:
    ran = here("bench", "--compare", *pair)
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == "encoding length A B change p"
    assert [
        re.match(r"FIRE 512 (forward pass|training step) .*\+\d\d\.\d% < 0.0001", line) is None for line in lines[1:3]
    ] == [
        False,
        False,
    ]
    text = " ".join(lines)
    assert "2 of 6 ratios to NoPE changed beyond the noise: 2 slower in B." in lines
    assert lines[5:7] == [f"A: {pair[0]}", f"B: {pair[1]}"]
    assert "only A has it: NoPE at 256" in text


def test_a_comparison_of_the_same_file_finds_nothing(here: Call, pair: tuple[Path, Path]) -> None:
    ran = here("bench", "--compare", pair[0], pair[0])
    assert ran.code == 0
    assert "None of 12 ratios to NoPE changed beyond the noise." in ran.out


def test_a_comparison_as_json(here: Call, pair: tuple[Path, Path]) -> None:
    data = json.loads(here("bench", "--compare", *pair, "--json").out)
    assert len(data["changes"]) == 6
    assert {c["verdict"] for c in data["changes"] if c["encoding"] == "FIRE"} == {"slower"}
    assert {"median", "low", "high", "rounds"} == set(data["changes"][0]["before"])


def test_a_hostile_file_cannot_write_to_the_terminal(here: Call, tmp_path: Path) -> None:
    evil = results(1)
    cells = [dataclasses.replace(c, encoding="\x1b[31mFIRE\n") if c.encoding == "FIRE" else c for c in evil.cells]
    (tmp_path / "a.json").write_text(dataclasses.replace(evil, cells=tuple(cells)).to_json("cells"))
    (tmp_path / "b.json").write_text(results(2).to_json("cells"))
    ran = here("bench", "--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert ran.code == 0
    assert "\x1b" not in ran.out and "\\x1b[31mFIRE\\n at 256" in " ".join(ran.out.split())
    (tmp_path / "a.json").write_text('{"cells": [], "x": 1}')
    ran = here("bench", "--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert ran.code == 2 and ran.err.count("\n") == 1


def test_a_narrow_terminal_loses_columns_and_no_digits() -> None:
    def numbers(width: int) -> set[str]:
        lines = io.StringIO()
        console = Console(width=width, file=lines)
        for part in list(tables.result_parts(results(1, lengths=(256, 512, 1024, 2048))))[:8]:
            console.print(part)
        text = lines.getvalue()
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        return set(re.findall(r"\d+\.\d\d \(\d+\.\d\d–\d+\.\d\d\)", text))

    wide, narrow = numbers(200), numbers(50)
    assert narrow < wide and len(narrow) >= 6


def test_times_have_three_digits() -> None:
    texts = [seconds_text(s) for s in (1.2e-5, 2.34e-3, 0.01234, 0.1, 0.9999, 1.234, 12.3, 1234.0)]
    assert texts == ["0.012 ms", "2.34 ms", "12.3 ms", "100 ms", "1,000 ms", "1.23 s", "12.3 s", "1,234 s"]
