"""Answers in files: they continue, their errors are one line, and the common tables, charts and export read them."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.analysis.answer_files import of_files
from lengthwise.analysis.answers import numbers_table
from lengthwise.cli.printing import console
from lengthwise.config import ConfigError
from lengthwise.exchange.columns import file_columns
from lengthwise.exchange.tables import columns_file
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.answer_file import FileAnswer, read, recording
from lengthwise.measurements.base import Chart, Measurement, Number, Numbers, Options, key, note, option, value
from lengthwise.report.answer_table import file_tables
from lengthwise.report.pictures import content


@dataclass(frozen=True, kw_only=True)
class WalkOptions(Options):
    lengths: tuple[int, ...] = option("Lengths.", (5, 10))
    text_sha256: str = ""


class Walk(Measurement):
    """How long a walk takes."""

    name = "walk"
    Options = WalkOptions
    columns = (
        key("encoding"),
        key("length", whole=True),
        key("round"),
        value("minutes", unit="minutes"),
        note("reason"),
        note("parts"),
    )
    charts = (Chart(kind="lines", title="Minutes", x="length", y="minutes", how="median", from_zero=False),)
    tables = (
        Numbers(
            title="Minutes by length",
            numbers=(Number(head="{length:,}", y="minutes", by=("length",), how="median"),),
            about="Of the lengths {lengths}.",
        ),
        Numbers(title="Not reached", numbers=(Number(head="reason", y="reason"),), rows=("length",)),
        Numbers(title="Only on the page", numbers=(Number(head="sum", y="minutes", how="sum"),), on_page_only=True),
    )
    chapter = "Walks"


@pytest.fixture(autouse=True)
def walk(monkeypatch: pytest.MonkeyPatch) -> Walk:
    measurement = Walk()
    monkeypatch.setitem(MEASUREMENTS, "walk", measurement)
    return measurement


def question(**options: Any) -> FileAnswer:
    subject = {"name": "park", "sha256": {"map": "1" * 64}}
    origin = {"versions": {"torch": "2.9"}, "device": "feet"}
    return FileAnswer(
        measurement=MEASUREMENTS["walk"], subject=subject, question=WalkOptions(**options).to_data(), origin=origin
    )


def row(encoding: str, length: int, number: int, minutes: float) -> dict[str, Any]:
    return {"encoding": encoding, "length": length, "round": number, "minutes": minutes}


ROWS = [
    row(name, length, n, factor * length + n / 10)
    for name, factor in (("NoPE", 1), ("<b>", 2))
    for length in (5, 10)
    for n in range(6)
]
REFUSED = {"encoding": "<b>", "length": 20, "reason": "too \x1b far"}


def written(path: Path, *rows: dict[str, Any], **options: Any) -> Path:
    with recording(path, question(**options)) as record:
        record.add(rows)
    return path


def test_an_interrupted_answer_continues_after_its_last_complete_row(tmp_path: Path) -> None:
    path = written(tmp_path / "walk.jsonl", ROWS[0], ROWS[1])
    path.write_bytes(path.read_bytes() + b'{"encoding": "NoPE", "leng')
    assert read(path).rows == ROWS[:2]
    with recording(path, question()) as record:
        assert record.answer.rows == ROWS[:2]
        record.add([ROWS[2]])
        assert read(path).rows == ROWS[:3], "a row is in the file as soon as it is added"
        record.add([ROWS[3]])
    answer = read(path)
    assert answer.rows == ROWS[:4]
    assert answer.header() == question().header()


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    with recording(tmp_path / "walk.jsonl", question()):
        pass
    assert not list(tmp_path.iterdir())
    with recording(None, question()) as record:
        record.add(ROWS)
    assert record.answer.rows == ROWS


def test_a_file_with_another_question_is_not_continued(tmp_path: Path) -> None:
    path = written(tmp_path / "walk.jsonl", ROWS[0], text_sha256="a" * 64)
    with pytest.raises(ConfigError) as error, recording(path, question(lengths=(7,), text_sha256="b" * 64)):
        pass
    assert "--lengths 5,10 instead of 7; another --text; name another file, or delete this one" in str(error.value)
    other = FileAnswer(**{**vars(question(text_sha256="a" * 64)), "subject": {"name": "wood", "sha256": {}}})
    with pytest.raises(ConfigError, match=r"another subject \(park\)"), recording(path, other):
        pass
    renamed = FileAnswer(**{**vars(other), "subject": {**question().subject, "name": "renamed"}})
    with recording(path, renamed) as record:
        assert len(record.answer.rows) == 1


def test_another_process_cannot_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "walk.jsonl"
    with (
        recording(path, question()),
        pytest.raises(ConfigError, match="another process is writing"),
        recording(path, question()),
    ):
        pass


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"measurement": "walk"', '"measurement": "wlak"', "line 1: .*wlak.*walk"),
        ('"subject": {', '"topic": {', "line 1: it must have measurement, subject, question, origin"),
        (
            '"subject": {"name": "park", "sha256": {"map": "' + "1" * 64 + '"}}',
            '"subject": 3',
            "line 1: subject must be an object",
        ),
        ('"lengths": [5, 10]', '"lengths": "5"', "line 1: WalkOptions.lengths must be tuple of int"),
        ('"minutes": 5.0', '"minutes": "5"', "line 2: minutes must be a number"),
        ('"minutes": 5.0', '"minutes": NaN', "line 2: .*finite"),
        ('"minutes": 5.1', '"hours": 5.1', "line 3: walk has no column 'hours'"),
        ('"length": 5, "round": 1', '"length": [5], "round": 1', "line 3: length must be a whole number"),
        (
            '"length": 5, "round": 1',
            '"length": "5", "round": 1',
            "line 3: length must be a whole number of at least 0, got '5'",
        ),
        (
            '"length": 5, "round": 1',
            '"length": -5, "round": 1',
            "line 3: length must be a whole number of at least 0, got '-5'",
        ),
        ('"round": 1', '"round": [1]', "line 3: round must be a text or a number"),
        ('{"encoding": "NoPE", "length": 5, "round": 1', '{"encoding": ', "line 3: it is not JSON"),
        ('{"encoding": "NoPE", "length": 5, "round": 1, "minutes": 5.1}', "[]", "line 3: it is not a JSON object"),
    ],
)
def test_a_foreign_or_damaged_file_has_one_clear_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = written(tmp_path / "walk.jsonl", *ROWS[:2])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=problem) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_an_answer_of_another_measurement_has_one_clear_line(tmp_path: Path) -> None:
    path = written(tmp_path / "walk.jsonl", *ROWS[:2])
    assert read(path, "walk").rows == list(ROWS[:2])
    with pytest.raises(ConfigError, match=r"was written by `.*`; name a file of `lengthwise bench`"):
        read(path, "speed")


@pytest.mark.parametrize("count", [1, 20, 40])
def test_a_file_that_was_cut_in_its_first_line_is_begun_anew(tmp_path: Path, count: int) -> None:
    whole = written(tmp_path / "whole.jsonl", *ROWS)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(whole.read_bytes()[:count])
    assert written(cut, *ROWS).read_bytes() == whole.read_bytes()


def test_another_line_without_an_end_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("my notes")
    with pytest.raises(ConfigError, match="line 1: it is incomplete"):
        written(path, *ROWS)
    assert path.read_text() == "my notes"


def test_an_absent_or_empty_file_has_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ConfigError, match="line 1: it is empty"):
        read(tmp_path / "empty.jsonl")
    (tmp_path / "cut.jsonl").write_text('{"measurement": "wa')
    with pytest.raises(ConfigError, match="line 1: it is incomplete"):
        read(tmp_path / "cut.jsonl")


def test_the_summary_has_medians_with_intervals_over_rounds(tmp_path: Path) -> None:
    answer = read(written(tmp_path / "walk.jsonl", *ROWS, REFUSED))
    summary = of_files([answer])
    heads, rows = numbers_table(summary, summary.measurement.tables[0])
    assert [head for head, _ in heads] == ["5", "10"]
    (nope, other) = rows
    assert (nope.name, other.name) == ("NoPE", "<b>")
    cell: Any = other.cells[1]
    assert (cell.mean, cell.low, cell.high, cell.basis) == (20.25, 20.0, 20.5, "rounds")
    few = of_files([read(written(tmp_path / "few.jsonl", *ROWS[:5]))])
    (only,) = numbers_table(few, summary.measurement.tables[0])[1]
    assert only.cells[0].basis == "none"  # type: ignore[union-attr]


def test_files_of_several_subjects_are_series_of_one_summary(tmp_path: Path) -> None:
    answer = read(written(tmp_path / "walk.jsonl", *ROWS))
    other = read(written(tmp_path / "other.jsonl", *ROWS, lengths=(5,)))
    summary = of_files([answer, other])
    assert [series.name for series in summary.series] == ["NoPE", "<b>", "NoPE (2)", "<b> (2)"]
    assert summary.question == {"text_sha256": ""}


def test_the_terminal_shows_the_tables_with_texts_and_escapes(tmp_path: Path) -> None:
    summary = of_files([read(written(tmp_path / "walk.jsonl", *ROWS, REFUSED))])
    out = console(file=io.StringIO(), width=120)
    for part in file_tables(summary):
        out.print(part)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "5.250 (±\u00a00.250)" in text
    assert "<b>, length 20" in text and "too" in text and "\x1b" not in text
    assert "Of the lengths [5, 10]." in text and "torch 2.9" in text
    assert "Only on the page" not in text


def test_the_page_has_charts_and_tables_and_escapes(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    summary = of_files([read(written(tmp_path / "walk.jsonl", *ROWS, REFUSED))])
    page = content(summary, "html").decode()
    for text in ("<svg", "Minutes by length", "Only on the page", "Not reached", "&lt;b&gt;", "5.250"):
        assert text in page
    assert "<b>" not in page and "{lengths" not in page
    assert content(summary, "svg").startswith(b"<svg")


def test_the_export_has_the_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "walk.jsonl", ROWS[0], {**REFUSED, "parts": [1, 2]})
    lines = list(csv.DictReader(io.StringIO(columns_file(file_columns(read(path)), ".csv").decode())))
    assert lines[0]["minutes"] == "5.0" and lines[0]["reason"] == ""
    assert lines[1]["parts"] == "[1, 2]" and lines[1]["question"] == '{"lengths": [5, 10], "text_sha256": ""}'
    frame = lengthwise.answers(str(path))
    assert list(frame["encoding"]) == ["NoPE", "<b>"]


def test_the_command_exports_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lengthwise.cli.app import app

    path = written(tmp_path / "walk.jsonl", ROWS[0])
    app(["export", "answers", str(path), "--out", "-"], result_action="return_value")
    assert capsys.readouterr().out.startswith("subject,question,encoding,length,round,minutes\n")
    with pytest.raises(ConfigError, match="needs the name of a measurement"):
        app(["export", "answers", "quickstart", "--out", "-"], result_action="return_value", exit_on_error=False)
