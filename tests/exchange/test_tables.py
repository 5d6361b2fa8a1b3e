"""Scores and training curves as CSV, Parquet and a data frame."""

import csv
import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.exchange.columns import OF_POINT, OF_RUN, OF_SCORE, curve_columns, score_columns
from lengthwise.exchange.formats import FORMATS, format_of
from lengthwise.store import Store, StoreError
from lengthwise.values import ConfigError

pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")
Fill = Callable[..., list[dict[str, Any]]]
CSV, PARQUET, LATEX = FORMATS


def test_one_row_for_each_run_and_question(store: Store, made: Fill) -> None:
    runs = made(store)
    columns = score_columns(store, "made")
    assert list(columns) == [*OF_RUN, *OF_SCORE]
    assert {len(cells) for cells in columns.values()} == {6 * 3}
    assert columns["key"] == [run["key"] for run in runs for _ in range(3)]
    assert columns["length"] == [8, 16, 32] * 6
    assert columns["kind"] == ["trained", "longer", "longer"] * 6
    last = {name: cells[-1] for name, cells in columns.items()}
    assert last["mean"] == pytest.approx(0.9**2 - 0.02)
    assert last["standard_error"] == pytest.approx(math.sqrt(last["mean"] * (1 - last["mean"]) / 256))
    assert (last["label"], last["encoding"], last["seed"], last["n"]) == ("FIRE(hidden_layers=1)", "FIRE", 2, 256)
    assert last["out_of_distribution"] is True
    assert (last["training_seconds"], last["peak_memory_mb"], last["backend"]) == (1.5, 300, "fused")
    assert json.loads(last["settings"]) == {"hidden_layers": 1}
    assert json.loads(last["task_settings"]) == {"symbols": 4}
    assert json.loads(last["question"]) == {"examples": 256, "seed": 0}


def test_rows_are_those_of_the_study(store: Store, made: Fill) -> None:
    """A run may belong to two studies that ask different questions."""
    runs = made(store, "other", labels=("NoPE",))
    made(store, "made", labels=("NoPE",), lengths=(8,))
    runs[0]["asked"] = runs[0]["asked"][:1]
    assert score_columns(store, "made")["length"] == [8, 8, 8]
    assert score_columns(store, "other")["length"] == [8, 16, 32] * 3


def test_questions_that_differ_in_more_than_the_length(store: Store, made: Fill) -> None:
    shifted = {"length": 8, "examples": 256, "seed": 0, "shift": {"symbols": 9}}
    asked = [{"length": 8, "examples": 256, "seed": 0}, shifted]
    made(store, seeds=1, labels=("NoPE",), asked=asked)
    questions = [json.loads(text) for text in score_columns(store, "made")["question"]]
    assert sorted(questions, key=len) == [
        {"examples": 256, "seed": 0},
        {k: v for k, v in shifted.items() if k != "length"},
    ]


def test_a_study_without_scores_or_curves(store: Store, made: Fill) -> None:
    made(store, done=False)
    for form in FORMATS:
        with pytest.raises(
            ConfigError, match="study 'made' has no score yet, so there is nothing to export; run the study"
        ):
            form.content(store, "made", "scores")
    with pytest.raises(ConfigError, match="study 'made' has no training curve yet"):
        CSV.content(store, "made", "curves")
    for form in FORMATS:
        with pytest.raises(StoreError, match="there is no study 'mode'; did you mean 'made'"):
            form.content(store, "mode", "scores")


def test_csv_and_parquet_have_the_same_numbers(store: Store, made: Fill) -> None:
    made(store, labels=("NoPE", 'A "quoted", label'))
    columns = score_columns(store, "made")
    columns["standard_error"][1] = math.nan
    columns["mean"][2] = math.inf
    read = list(csv.DictReader(io.StringIO(CSV.of_columns(columns).decode())))  # type: ignore[attr-defined]
    table = parquet.read_table(io.BytesIO(PARQUET.of_columns(columns))).to_pydict()  # type: ignore[attr-defined]
    assert list(read[0]) == list(table) == list(columns)
    assert table == columns | {"standard_error": [None if math.isnan(x) else x for x in columns["standard_error"]]}
    assert [row["label"] for row in read] == columns["label"]
    assert [float(row["mean"]) for row in read] == columns["mean"]
    assert read[1]["standard_error"] == ""
    assert [row["out_of_distribution"] for row in read][:3] == ["false", "true", "true"]


def test_curves(store: Store, made: Fill) -> None:
    runs = made(store)
    columns = curve_columns(store, "made")
    assert list(columns) == [*OF_RUN, *OF_POINT]
    assert columns["key"] == [run["key"] for run in runs for _ in range(3)]
    assert columns["step"] == [0, 10, 20] * 6
    assert columns["loss"][:3] == [1, 1 / 11, 1 / 21]
    table = parquet.read_table(io.BytesIO(PARQUET.content(store, "made", "curves")))
    assert table.column("gradient_norm").null_count == 18
    assert str(table.schema.field("gradient_norm").type) == "double"


def test_a_data_frame(results: Path, store: Store, made: Fill) -> None:
    made(store)
    frame = lengthwise.results("made", results=results)
    assert frame.shape == (18, 23)
    by_label = frame[frame.length == 32].groupby("label")["mean"].mean()
    assert by_label["FIRE(hidden_layers=1)"] == pytest.approx(0.80)
    assert frame.dtypes["mean"] == "float64"
    assert frame.dtypes["seed"] == "int64"
    with pytest.raises(StoreError, match="there is no study 'mode'"):
        lengthwise.results("mode", results=results)
    with pytest.raises(StoreError):
        lengthwise.results("made", results=results / "none")


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[frames\]'"):
        lengthwise.results("made", results=results)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pyarrow, which is not installed; .*pip install '\.\[frames\]'"):
        format_of("scores.parquet", "scores")


@pytest.mark.parametrize("name", ["scores", "scores.xlsx", "scores.csvv", ".csv", "results.db"])
def test_unknown_endings(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--out must end in \.csv, \.parquet or \.tex for scores, got") as error:
        format_of(name, "scores")
    assert ("did you mean '.csv'" in str(error.value)) == (name == "scores.csvv")


def test_curves_have_no_latex() -> None:
    with pytest.raises(ConfigError, match=r"--out must end in \.csv or \.parquet for curves"):
        format_of("curves.tex", "curves")
    assert format_of("CURVES.CSV", "curves") is CSV
