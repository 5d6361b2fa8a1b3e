"""The JSON file: round trip, and strict reading of files that somebody else made. The ratios and their intervals."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.speed.plan import Question
from lengthwise.speed.results import Cell, read
from lengthwise.speed.summary import Ratio, interval_rank, median_ratio, ratio_of
from tests.speed.measurements import results


def test_round_trip(tmp_path: Path) -> None:
    before = results(1)
    (tmp_path / "a.json").write_text(before.to_json("cells"))
    assert read(tmp_path / "a.json") == before
    assert len(before.to_json("cells").splitlines()) == len(before.cells) + 8


def test_ratios_are_those_of_the_same_round() -> None:
    measured = results(3, noise=lambda chance: 1.0, factor={"FIRE": 1.5})
    cell = measured.cell("FIRE", 256)
    assert cell is not None
    assert measured.ratios(cell, "training") == pytest.approx([1.5] * 12)
    assert ratio_of(measured, cell, "forward") == Ratio(*[pytest.approx(1.5)] * 3, 12)


@pytest.mark.parametrize("count", [1, 5, 6, 12, 13, 20, 101])
def test_the_interval_has_the_smallest_width_with_95_percent(count: int) -> None:
    def missed(rank: int) -> float:  # the median is below the rank-th smallest or above the rank-th largest
        return 2 * sum(math.comb(count, n) for n in range(rank)) / 2**count

    rank = interval_rank(count)
    assert missed(rank) <= 0.05 < missed(rank + 1)
    assert (rank == 0) == (count < 6)


def test_intervals_contain_the_median_in_95_percent() -> None:
    chance = random.Random(0)
    hits = 0
    for _ in range(1000):
        ratio = median_ratio([chance.lognormvariate(0.0, 1.0) for _ in range(12)])  # of median 1
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        hits += ratio.low <= 1.0 <= ratio.high
    assert 943 <= hits <= 978  # 96.1 % are expected


def test_few_rounds_have_no_interval() -> None:
    assert median_ratio([1.0, 3.0, 2.0]) == Ratio(2.0, None, None, 3)
    assert median_ratio([]) is None


# ---- hostile files ------------------------------------------------------------------------------------------------


def changed(*path: Any, value: Any) -> str:
    data = json.loads(results(1).to_json("cells"))
    part = data
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return json.dumps(data)


CELL = json.loads(results(1).to_json("cells"))["cells"][1]
HOSTILE = {
    "empty": ("", "not JSON"),
    "list": ("[1]", "must be an object"),
    "broken": ("{", "not JSON"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep settings": (changed("cells", 1, "settings", value=json.loads("[" * 30 + "]" * 30)), "20 deep"),
    "deep in settings": (changed("cells", 1, "settings", "x", value=json.loads("[" * 30 + "]" * 30)), "20 deep"),
    "not a number": (changed("cells", 1, "forward", value=[math.nan] * 12), "must be finite, got NaN"),
    "infinite": (results(1).to_json("cells").replace('"forward": [', '"forward": [1e999, ', 1), "finite number"),
    "huge": (results(1).to_json("cells").replace('"forward": [', f'"forward": [{"9" * 5000}, ', 1), "not JSON"),
    "twice": (results(1).to_json("cells").replace('"format": 1', '"format": 1, "format": 1'), "same name twice"),
    "format": (changed("format", value=2), "format must be 1, got 2"),
    "unknown": (changed("spede", value=2), "no setting 'spede'"),
    "unknown in a cell": (changed("cells", 0, "forwards", value=[]), "did you mean 'forward'?"),
    "unknown in the question": (changed("question", "lenghts", value=[]), "did you mean 'lengths'?"),
    "missing": (json.dumps({"format": 1, "cells": []}), "missing 2 required"),
    "no times": (changed("cells", 1, "forward", value=[]), "a time of both kinds"),
    "text": (changed("cells", 1, "forward", value=["1"] * 12), "must be float"),
    "negative": (changed("cells", 1, "forward", value=[-1.0] * 12), "more than 0 seconds"),
    "zero": (changed("cells", 0, "training", value=[0] * 12), "more than 0 seconds"),
    "more rounds": (
        results(1, rounds=13).to_json("cells").replace('"rounds": 13', '"rounds": 12'), "has more times than rounds"
    ),
    "other rounds": (changed("cells", 1, value=CELL | {"forward": [1] * 11, "training": [1] * 11}), "as many times as NoPE"),
    "no baseline": (changed("cells", 0, "encoding", value="Other"), "as many times as NoPE"),
    "repeated": (changed("cells", 1, "encoding", value="NoPE"), "differ in encoding or length"),
    "another length": (changed("cells", 1, "length", value=77), "not one of the question's lengths"),
    "length 0": (changed("cells", 1, "length", value=0), "length must be at least 1"),
    "memory": (changed("cells", 1, "memory_bytes", value=-1), "memory_bytes must be at least 0"),
    "true": (changed("cells", 1, "memory_bytes", value=True), "int or None"),
    "cells": (changed("cells", value=3), "Results.cells must be a list of Cell, got 3"),
    "cell": (changed("cells", value=[3]), "Cell must be an object"),
    "question": (changed("question", value=[]), "Question must be an object"),
    "long": (changed("cells", 1, "refusal", value="x" * 30_000), "at most 20,000 characters"),
    "long device": (changed("origin", "device", value="x" * 3_000), "at most 1,000 characters"),
    "many cores": (changed("origin", "cores", value=10**100), "cores must be from 1"),
    "clock": (changed("origin", "clock", value="sundial"), "must be one of 'CPU time'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(tmp_path: Path, name: str) -> None:
    content, words = HOSTILE[name]
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ConfigError) as raised:
        read(tmp_path / "a.json")
    text = str(raised.value)
    assert words in text
    assert text.startswith(f"{tmp_path / 'a.json'} is not a file of lengthwise bench: ")
    assert "\n" not in text and len(text) < 700


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match="not JSON"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize(("name", "words"), [(".", "cannot be read"), ("none", "No such")])
def test_folders_and_missing_files(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lengths": ()}, "lengths must be 1 to 64 numbers"),
        ({"lengths": (8, 8)}, "must differ"),
        ({"lengths": (0,)}, "at least 1"),
        ({"lengths": (2**25,)}, "at most 16,777,216"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 1001}, "from 1 to 1000"),
        ({"warmup": -1}, "from 0"),
        ({"batch_tokens": 0}, "at least 1"),
        ({"d_model": 255}, "d_model must be a multiple of num_heads"),
        ({"dtype": "int8"}, "must be one of 'float32', 'bfloat16'"),
    ],
)
def test_a_wrong_question_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Question(encodings=(), **settings)


def test_a_batch_has_at_least_one_sequence() -> None:
    question = Question(encodings=(), batch_tokens=1000)
    assert [question.batch(n) for n in (100, 256, 2048)] == [10, 3, 1]


def test_a_cell_names_its_encoding() -> None:
    with pytest.raises(ConfigError, match="encoding at least 1"):
        Cell(encoding=" ", length=1, batch=1)
