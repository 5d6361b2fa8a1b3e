"""Reading SCROLLS' published files, their oddities, and files that are something else."""

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.corpora.sources import rows
from lengthwise.downstream import scrolls
from lengthwise.downstream.examples import Example
from lengthwise.downstream.scrolls import SCROLLS, open_examples, scrolls_average
from lengthwise.values import ConfigError

ROWS = [
    {"id": "a", "pid": "a_0", "input": "Who?\n\nA text.", "output": "Ann"},
    {"id": "b", "pid": "b_0", "input": "Whose?\n\nÜ 东京 \U0001f600.", "output": ""},  # an empty answer
    {"id": "a", "pid": "a_1", "input": "Who?\n\nA text.", "output": "It was Ann"},
]


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, train: str, validation: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text(train, encoding="utf-8")
    (folder / "validation.jsonl").write_text(validation, encoding="utf-8")
    (folder / "test.jsonl").write_text(lines([{**ROWS[0], "output": None}]), encoding="utf-8")
    return folder


@pytest.mark.parametrize("inner", ["", "qasper"])
def test_the_examples_of_published_files(tmp_path: Path, inner: str) -> None:
    path = tmp_path / "data"
    write(path / inner, lines(ROWS), lines(ROWS))
    examples = open_examples("qasper", str(path))
    assert [examples.example("train", n) for n in range(examples.count("train"))] == [
        Example(row["input"], (row["output"],), row["id"]) for row in ROWS
    ]
    assert [examples.example("test", n) for n in range(examples.count("test"))] == [
        Example(ROWS[0]["input"], ("Ann", "It was Ann"), "a"),
        Example(ROWS[1]["input"], ("",), "b"),
    ]
    other = open_examples("qasper", str(write(tmp_path / "other", lines(ROWS), lines(ROWS))))
    assert examples.sha256 == other.sha256


def test_a_byte_order_mark_empty_lines_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\r\n\n"
    examples = open_examples("quality", str(write(tmp_path, text, lines(ROWS[1:2]))))
    assert [examples.example("train", n).references for n in range(3)] == [("Ann",), ("",), ("It was Ann",)]
    assert examples.example("train", 1).input == ROWS[1]["input"]


def test_changed_files_have_another_hash_and_are_read_again(tmp_path: Path) -> None:
    first = open_examples("qasper", str(write(tmp_path, lines(ROWS), lines(ROWS))))
    again = open_examples("qasper", str(tmp_path))
    assert again.train is first.train
    changed = open_examples("qasper", str(write(tmp_path, lines(ROWS), lines(ROWS[:2]))))
    assert changed.sha256 != first.sha256
    assert changed.example("test", 0).references == ("Ann",)
    with pytest.raises(ConfigError, match=r"validation\.jsonl has changed while it was in use"):
        write(tmp_path, lines(ROWS), "x" * 10) and first.example("test", 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (lines(ROWS[:1]) + "plain text\n", r"line 2: it is not a JSON object \(Expecting value"),
        ("ÿ\x00", "line 1: it is not a JSON object"),
        (lines([ROWS[0], [1]]), "line 2: it must be a JSON object, got a list"),
        (lines([{"id": "a", "input": "x", "ouput": "y"}]), "no field 'output'; did you mean 'ouput'"),
        (lines([{"id": "a", "output": "y"}]), "line 1: it has no field 'input'; its fields are: id, output"),
        (
            lines([{"id": "a", "input": "x", "output": None}]),
            "'output' is null; the test files of SCROLLS have no answer",
        ),
        (lines([{"id": "a", "input": "x", "output": ["y"]}]), "'output' must be text, got a list"),
        (lines([{"id": 7, "input": "x", "output": "y"}]), "'id' must be text, got a int"),
        (lines([{"id": "a", "input": " \n", "output": "y"}]), "'input' must not be empty"),
        ('{"id": "a", "input": "\\ud800", "output": "y"}\n', "half of a surrogate pair"),
        ("\n\n", "has no rows"),
        ("", "has no rows"),
    ],
)
def test_files_in_another_format(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, lines(ROWS), text)
    with pytest.raises(ConfigError, match=problem) as error:
        open_examples("qasper", str(tmp_path))
    assert "validation.jsonl" in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    write(tmp_path, "", lines(ROWS))
    (tmp_path / "train.jsonl").write_bytes(lines(ROWS).encode("utf-16"))
    with pytest.raises(ConfigError, match=r"train\.jsonl, line 1: it is not UTF-8 text \(byte 0xff"):
        open_examples("qasper", str(tmp_path))
    (tmp_path / "train.jsonl").write_bytes(b'{"id": "a", "input": "caf\xe9", "output": "y"}\n')
    with pytest.raises(ConfigError, match=r"train\.jsonl, line 1: it is not UTF-8 text \(byte 0xe9"):
        open_examples("qasper", str(tmp_path))


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "qasper.zip").write_bytes(b"PK")
    cases = {
        "missing": "missing does not exist; name the folder with the file train.jsonl",
        "empty": r"has no file train.jsonl; expected one of: train.jsonl, qmsum/train.jsonl \(unzip",
        "qasper.zip": r"qasper.zip is a file; name the folder with the file train.jsonl \(unzip an archive first\)",
    }
    for name, problem in cases.items():
        with pytest.raises(ConfigError, match=problem) as error:
            open_examples("qmsum", str(tmp_path / name))
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="no data set 'qasperr'; did you mean 'qasper'"):
        open_examples("qasperr", str(tmp_path))


def test_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINE", 200)
    write(tmp_path, lines([*ROWS, {**ROWS[0], "input": "x" * 300}]), lines(ROWS))
    with pytest.raises(ConfigError, match=r"train\.jsonl, line 4: a line must have at most 200 bytes"):
        open_examples("qasper", str(tmp_path))


# ---- the benchmark -------------------------------------------------------------------------------------------------

# Li et al. 2024, table 1: FIRE, base and large, and RoPE. The order of the columns is that of the list.
PAPER = {
    25.64: (16.24, 82.93, 14.58, 9.55, 15.87, 16.31, 24.02),
    27.05: (19.47, 85.15, 15.10, 10.27, 17.27, 16.83, 25.26),
    20.38: (10.44, 71.75, 14.90, 8.71, 14.40, 15.72, 6.71),  # RoPE, base
}


@pytest.mark.parametrize("average", PAPER)
def test_the_average_is_that_of_the_paper(average: float) -> None:
    scores = dict(zip(scrolls.NAMES, PAPER[average], strict=True))
    assert scrolls_average(scores) == pytest.approx(average, abs=0.006)


def test_the_average_over_lengths_is_that_of_the_paper() -> None:
    """Li et al. 2024, table 10: NarrativeQA without fine-tuning, FIRE and Kerple."""
    rows = {
        8.705: (6.232, 8.076, 8.178, 9.581, 9.581, 9.868, 9.417),
        8.338: (5.590, 7.832, 8.001, 9.249, 9.483, 9.204, 9.010),
    }
    for expected, row in rows.items():
        scores = dict(zip(scrolls.ZERO_SHOT_LENGTHS, row, strict=True))
        assert scrolls.zero_shot_average(scores) == pytest.approx(expected, abs=0.0006)
    with pytest.raises(ConfigError, match="NarrativeQA needs all 7 scores; missing: 32768"):
        scrolls.zero_shot_average(dict.fromkeys(scrolls.ZERO_SHOT_LENGTHS[:-1], 1.0))


def test_the_list_has_the_papers_metrics() -> None:
    assert tuple(dataset.paper for dataset in SCROLLS) == PAPER[25.64]
    names = {
        "F1": "qasper narrative_qa",
        "exact match": "contract_nli quality",
        "ROUGE": "qmsum summ_screen_fd gov_report",
    }
    expected = {name: metric for metric, some in names.items() for name in some.split()}
    assert {dataset.name: dataset.metric.name for dataset in SCROLLS} == expected


def test_an_average_needs_every_score() -> None:
    scores = dict.fromkeys(scrolls.NAMES, 0.5)
    with pytest.raises(ConfigError, match="needs all 7 scores; missing: quality"):
        scrolls_average({name: scores[name] for name in scrolls.NAMES[:-1]})
    with pytest.raises(ConfigError, match="SCROLLS has no qualityy"):
        scrolls_average({**scores, "qualityy": 1.0})


def test_the_demo_is_in_the_published_format() -> None:
    examples = scrolls.demo()
    assert examples.count("train") > scrolls.DEMO_ROWS["train"] > 64 == examples.count("test")
    several = [n for n in range(64) if len(examples.example("test", n).references) == 2]
    assert len(several) == 16
    for n in range(64):
        example = examples.example("test", n)
        question, text = example.input.split("\n\n")
        thing = question.removeprefix("Which colour is the ").removesuffix("?")
        assert f"The {thing} is {example.references[0]}." in text
