"""`lengthwise show`: a run, its scores and the answers that could not be read."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.show import overall_score, print_run, scores_table
from lengthwise.measurements import Table
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH
from lengthwise.store import RunRow, ScoreRow
from tests.made_answers import score_answer, stored

Call = Callable[..., Any]


def test_show_a_run_by_the_beginning_of_its_key(here: Call, finished: Path) -> None:
    key = json.loads(here("list", "runs", "--study", "tiny", "--results", finished, "--json").out)[1]["key"]
    ran = here("show", key[:6], "--results", finished)
    assert ran.code == 0
    assert "FIRE-S on Copy, seed 0" in ran.out
    assert "hidden_layers=2" in ran.out
    assert "share_encoding=true" in ran.out
    assert "torch=" in ran.out
    assert "exact match, higher is better" in ran.out
    assert "null" not in ran.out
    assert "positions=–" in ran.out
    row = json.loads(here("show", key.upper(), "--results", finished, "--json").out)
    assert row["key"] == key
    scores, training = ([a for a in row["answers"] if a["measurement"] == n] for n in ("scores", "training"))
    assert [score["question"]["length"] for score in scores] == [4, 8]
    assert len(scores[0]["rows"]["mean"]) == 1
    assert training[0]["rows"]["step"][-1] == 10


def score(length: int, mean: float, n: int, **more: Any) -> ScoreRow:
    return ScoreRow.of(stored("k", score_answer({"length": length}, mean, n, **{"standard_error": 0.1, **more})))


def test_answers_that_could_not_be_read_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {f.name: None for f in dataclasses.fields(RunRow)}
    run = RunRow(
        **plain
        | {
            "unit": "bits",
            "metric": "exact match",
            "better": "higher",
            "config": {},
            "facts": {},
            "key": "k",
            "status": "done",
        }
        | {"train_length": 4}
    )
    problems = ("unreadable", "broken")
    rows = [{"problem": name, "question": f"q {name}", "generated": f"said {name}"} for name in problems]
    further = {"measurement": "further-scores", "question": {"length": 5}, "facts": {}}
    answers = [score_answer({"length": 5}, 0.5, 10), further | {"rows": Table.from_rows(rows).to_data()}]
    print_run(run, [stored("k", answer) for answer in answers])
    lines = capsys.readouterr().out.splitlines()
    for line, said in (
        ("Sample answers that could not be read, length 5: q unreadable", "said unreadable"),
        ("Sample answers with steps that could not be read, length 5: q broken", "said broken"),
    ):
        assert lines[lines.index(line) + 1] == said


def test_overall_scores_count_examples_and_keep_distributions_apart() -> None:
    """What is shorter than anything in training is in neither mean."""
    plain = {f.name: None for f in dataclasses.fields(RunRow)} | {
        "unit": "bits",
        "metric": "exact match",
        "better": "higher",
    }
    run = RunRow(**plain | {"config": {"training": {"min_length": 3}}, "train_length": 4})
    scores = [score(2, 0.1, 90), score(3, 1.0, 30), score(4, 0.5, 10), score(5, 0.5, 10), score(6, 0.0, 40)]
    table = scores_table(run, scores)
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [row[-1] for row in cells[:5]] == [
        "shorter than training",
        "in distribution",
        "in distribution",
        "longer than training",
        "longer than training",
    ]
    assert cells[5:] == [
        ("all", "0.8750", "", "40", "in distribution, all lengths"),
        ("all", "0.1000", "", "50", "longer than training, all lengths"),
    ]


def test_baselines_have_columns_beside_the_score() -> None:
    plain = {f.name: None for f in dataclasses.fields(RunRow)} | {
        "unit": "bits",
        "metric": "exact match",
        "better": "higher",
    }
    run = RunRow(**plain | {"config": {"training": {}}, "train_length": 4})
    beside = [{"name": "constant answer", "score": 0.6875, "floor": True}]
    scores = [score(4, 0.5, 16, baselines=beside), score(30, 0.5, 90)]
    table = scores_table(run, scores)
    heads = [column.header for column in table.columns]
    assert heads == ["length (bits)", "exact match", "standard error", "examples", "constant answer", ""]
    assert list(table.columns[4].cells) == ["0.6875", "–"]
    no_error = scores_table(run, [score(4, 0.0, 16, standard_error=0.0)])
    assert list(no_error.columns[2].cells) == ["–"], "equal scores have no standard error"


def test_overall_scores_that_there_are_not() -> None:
    assert overall_score(CROSS_ENTROPY, [score(5, 2.0, 10), score(6, 4.0, 30)]) == (
        3.0,
        40,
    )
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10)]) is None
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10), score(5, 0.7, 20), score(6, 0.1, 20)]) is None, (
        "one length, asked in two ways"
    )


def test_scratchpads_are_decoded_and_shown(here: Call, tmp_path: Path) -> None:
    words = ["compare", "nope", "--task", "summation:scratchpad=no-input", "--train-length", 3, "--lengths", "3,4"]
    words += ["--steps", 3, "--batch-size", 2, "--d-model", 8, "--num-layers", 1, "--num-heads", 1, "--examples", 8]
    ran = here(*words, "--results", tmp_path, "--on", "inline")
    assert ran.code == 0, ran.err
    (run,) = json.loads(here("list", "runs", "--results", tmp_path, "--json").out)
    row = json.loads(here("show", run["key"], "--results", tmp_path, "--json").out)
    names = {"computation", "output", "variables", "remaining", "failed steps"}
    found = [a for a in row["answers"] if a["measurement"] == "further-scores"]
    assert [answer["question"]["length"] for answer in found] == [3, 4]
    for answer in found:
        rows = list(Table.from_data(answer["rows"]))
        means = {row["name"]: row["mean"] for row in rows if row["name"]}
        assert set(means) == names | {"unreadable"} and means["unreadable"] == 1, (
            "three steps of training teach nothing"
        )
        samples = [row for row in rows if row["problem"]]
        assert samples and all(row["question"] and row["generated"] is not None for row in samples)
    shown = here("show", run["key"], "--results", tmp_path).out
    assert all(name in shown for name in (*names, "unreadable"))
    assert f"Sample answers that could not be read, length 4: {samples[0]['question']}" in shown
    refused = here(
        *words, "--positions", "randomized:max_length=99,at_evaluation=random", "--results", tmp_path / "other"
    )
    assert refused.code != 0
    assert "Summation is scored by decoding" in refused.err


def test_a_task_whose_settings_decide_its_metric(here: Call, tmp_path: Path) -> None:
    """Its further scores have no sample answers."""
    words = ["compare", "nope", "--task", "recall:keys=16,values=4,queries=2", "--train-length", 3, "--lengths", "3"]
    words += ["--steps", 3, "--batch-size", 2, "--d-model", 8, "--num-layers", 1, "--num-heads", 1, "--examples", 8]
    ran = here(*words, "--results", tmp_path, "--on", "inline")
    assert ran.code == 0, ran.err
    assert "; token accuracy " in ran.err + ran.out and "; exact match " not in ran.err + ran.out
    (run,) = json.loads(here("list", "runs", "--results", tmp_path, "--json").out)
    shown = here("show", run["key"], "--results", tmp_path)
    assert shown.code == 0, shown.err
    assert "further scores" in shown.out
