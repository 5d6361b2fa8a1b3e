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
from lengthwise.exchange.columns import OF_LENGTH, OF_RUN, answer_columns
from lengthwise.exchange.tables import ending_of, table_file
from lengthwise.measurements import Table
from lengthwise.store import Store, StoreError
from lengthwise.values import ConfigError
from tests.exchange.conftest import score_data

pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")
Fill = Callable[..., list[dict[str, Any]]]
ENDINGS = (".csv", ".parquet", ".tex")


def test_one_row_for_each_run_and_question(store: Store, made: Fill) -> None:
    runs = made(store)
    columns = answer_columns(store, "made", "scores")
    assert list(columns) == [*OF_RUN, *OF_LENGTH, "mean", "standard_error", "n", "baselines", "seconds", "question"]
    assert {len(cells) for cells in columns.values()} == {6 * 3}
    assert columns["key"] == [run["key"] for run in runs for _ in range(3)]
    assert columns["length"] == [8, 16, 32] * 6
    assert columns["length_kind"] == ["trained", "longer", "longer"] * 6
    last = {name: cells[-1] for name, cells in columns.items()}
    assert last["mean"] == pytest.approx(0.9**2 - 0.02)
    assert last["standard_error"] == pytest.approx(math.sqrt(last["mean"] * (1 - last["mean"]) / 256))
    assert (last["label"], last["encoding"], last["seed"], last["n"]) == ("FIRE(hidden_layers=1)", "FIRE", 2, 256)
    assert (last["metric"], last["better"], last["unit"]) == ("exact match", "higher", "symbols")
    assert json.loads(last["baselines"]) == [{"name": "constant", "score": 0.25, "floor": True}]
    assert (last["training_seconds"], last["peak_memory_mb"], last["backend"]) == (1.5, 300, "fused")
    assert json.loads(last["settings"]) == {"hidden_layers": 1}
    assert json.loads(last["task_settings"]) == {"symbols": 4}
    assert json.loads(last["question"]) == {"examples": 256, "seed": 0}


def test_rows_are_those_of_the_study(store: Store, made: Fill) -> None:
    """A run may belong to two studies that ask different questions."""
    runs = made(store, "other", labels=("NoPE",))
    made(store, "made", labels=("NoPE",), lengths=(8,))
    runs[0]["questions"] = runs[0]["questions"][:1]
    assert answer_columns(store, "made", "scores")["length"] == [8, 8, 8]
    assert answer_columns(store, "other", "scores")["length"] == [8, 16, 32] * 3


def test_questions_that_differ_in_more_than_the_length(store: Store, made: Fill) -> None:
    shifted = {"length": 8, "examples": 256, "seed": 0, "shift": {"symbols": 9}}
    asked = [{"length": 8, "examples": 256, "seed": 0}, shifted]
    made(store, seeds=1, labels=("NoPE",), questions=asked)
    questions = [json.loads(text) for text in answer_columns(store, "made", "scores")["question"]]
    assert sorted(questions, key=len) == [
        {"examples": 256, "seed": 0},
        {k: v for k, v in shifted.items() if k != "length"},
    ]


def test_a_study_without_scores_or_curves(store: Store, made: Fill) -> None:
    made(store, done=False)
    for ending in ENDINGS:
        with pytest.raises(
            ConfigError, match="study 'made' has no score yet, so there is nothing to export; run the study"
        ):
            table_file(store, "made", "scores", ending)
        with pytest.raises(StoreError, match="there is no study 'mode'; did you mean 'made'"):
            table_file(store, "mode", "scores", ending)
    with pytest.raises(ConfigError, match="study 'made' has no answer of training yet"):
        table_file(store, "made", "training", ".csv")


def test_csv_and_parquet_have_the_same_numbers(store: Store, made: Fill) -> None:
    labels = ("NoPE", 'A "quoted", label')
    for run in made(store, labels=labels, done=False, metric="cross-entropy", better="lower"):
        means = (0.5, 0.25, math.inf if run["seed"] == 1 else 0.1)
        store.add_answers(run["key"], [score_data(a, mean) for a, mean in zip(run["questions"], means, strict=True)])
    columns = answer_columns(store, "made", "scores")
    read = list(csv.DictReader(io.StringIO(table_file(store, "made", "scores", ".csv").decode())))
    table = parquet.read_table(io.BytesIO(table_file(store, "made", "scores", ".parquet"))).to_pydict()
    assert list(read[0]) == list(table) == list(columns)
    unknown = [math.isnan(x) for x in columns["standard_error"]]
    assert unknown.count(True) == 2
    assert table == {
        name: [None if isinstance(x, float) and math.isnan(x) else x for x in cells] for name, cells in columns.items()
    }
    assert [row["label"] for row in read] == columns["label"]
    assert [float(row["mean"]) for row in read] == columns["mean"] and math.inf in columns["mean"]
    assert [row["standard_error"] == "" for row in read] == unknown


def test_curves(store: Store, made: Fill) -> None:
    runs = made(store)
    columns = answer_columns(store, "made", "training")
    assert list(columns) == [
        *OF_RUN,
        "step",
        "loss",
        "learning_rate",
        "gradient_norm",
        "tokens_per_second",
        "seconds",
        "question",
    ]
    assert columns["key"] == [run["key"] for run in runs for _ in range(3)]
    assert columns["step"] == [0, 10, 20] * 6
    assert columns["loss"][:3] == [1, 1 / 11, 1 / 21]
    table = parquet.read_table(io.BytesIO(table_file(store, "made", "training", ".parquet")))
    assert table.column("gradient_norm").null_count == 18
    assert str(table.schema.field("gradient_norm").type) == "double"


def test_answers_of_a_measurement(store: Store, made: Fill) -> None:
    runs = made(store)
    question = {"against": runs[0]["key"], "length": 8}
    rows = [{"layer": n, "distance": d, "n": 4} for n, d in ((1, 0.25), (2, float("nan")))]
    store.add_answer(runs[1]["key"], "attention-distance", question, Table.from_rows(rows).to_data(), {})
    columns = answer_columns(store, "made", "attention-distance")
    assert list(columns) == [*OF_RUN, *OF_LENGTH, "layer", "distance", "n", "seconds", "question"]
    assert (columns["key"], columns["seed"]) == ([runs[1]["key"]] * 2, [runs[1]["seed"]] * 2)
    assert columns["question"][0] == json.dumps({"against": runs[0]["key"]})
    text = table_file(store, "made", "attention-distance", ".csv").decode()
    assert [row[-5:-2] for row in csv.reader(text.splitlines()[1:])] == [["1", "0.25", "4"], ["2", "", "4"]]
    with pytest.raises(ConfigError, match=r"no answer of recency yet, .* run `lengthwise probe recency KEY` first"):
        answer_columns(store, "made", "recency")


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


def test_values_that_are_no_names_or_folders() -> None:
    for call, expected in (
        (lambda: lengthwise.answers(3), "needs the name of a study or the file of an answer, got 3"),
        (lambda: lengthwise.results(3), "needs the name of a study, got 3"),
        (lambda: lengthwise.answers("made", "scores", store=3), "store must be the address of a database"),
    ):
        with pytest.raises(ConfigError, match=expected):
            call()
    with pytest.raises(TypeError, match="must be a path, as a string or a Path, got int"):
        lengthwise.results("made", results=3)


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[frames\]'"):
        lengthwise.results("made", results=results)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for file in ("scores.parquet", "scores.tex"):
        with pytest.raises(
            ConfigError, match=r"pandas, which is not installed; .*pip install '\.\[frames\]'.*, or write a \.csv file"
        ):
            ending_of(file, "scores")
    assert ending_of("scores.csv", "scores") == ".csv"


@pytest.mark.parametrize("name", ["scores", "scores.xlsx", "scores.csvv", ".csv", "results.db"])
def test_unknown_endings(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--out must end in \.csv, \.parquet or \.tex for scores, got") as error:
        ending_of(name, "scores")
    assert ("did you mean '.csv'" in str(error.value)) == (name == "scores.csvv")


def test_other_answers_have_no_latex() -> None:
    with pytest.raises(ConfigError, match=r"--out must end in \.csv or \.parquet for training"):
        ending_of("curves.tex", "training")
    assert ending_of("CURVES.CSV", "training") == ".csv"
