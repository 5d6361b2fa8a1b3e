"""`lengthwise show`: a run, its scores and the answers that could not be read."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.show import ordered_means, overall_score, print_run, scores_table
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH
from lengthwise.store import RunRow, ScoreRow

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
    assert [score["length"] for score in row["scores"]] == [4, 8]
    assert row["scores"][0]["out_of_distribution"] is False
    assert row["curve"][-1]["step"] == 10


def score(length: int, mean: float, n: int, metric: str = "exact match") -> ScoreRow:
    return ScoreRow(
        key="k",
        asked={},
        length=length,
        metric=metric,
        better="higher",
        n=n,
        mean=mean,
        standard_error=0.1,
        out_of_distribution=length > 4,
        seconds=0.0,
        facts={},
        created=0.0,
    )


def test_answers_with_steps_that_could_not_be_read_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
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
    details = {"means": {}, "order": [], "unreadable": 1}
    details |= {kind: [{"question": f"q {kind}", "generated": f"said {kind}"}] for kind in ("kept", "broken")}
    print_run(run, [dataclasses.replace(score(5, 0.5, 10), facts={"details": details})], [])
    lines = capsys.readouterr().out.splitlines()
    for line, said in (
        ("could not be read, length 5: q kept", "said kept"),
        ("has steps that could not be read, length 5: q broken", "said broken"),
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
    beside = {"details": {"baselines": [{"name": "constant answer", "score": 0.6875, "floor": True}]}}
    scores = [dataclasses.replace(score(4, 0.5, 16), facts=beside), score(30, 0.5, 90)]
    table = scores_table(run, scores)
    heads = [column.header for column in table.columns]
    assert heads == ["length (bits)", "exact match", "standard error", "examples", "constant answer", ""]
    assert list(table.columns[4].cells) == ["0.6875", "–"]
    no_error = scores_table(run, [dataclasses.replace(scores[0], mean=0.0, standard_error=0.0)])
    assert list(no_error.columns[2].cells) == ["–"], "equal scores have no standard error"


def test_overall_scores_that_there_are_not() -> None:
    assert overall_score(CROSS_ENTROPY, [score(5, 2.0, 10, "cross-entropy"), score(6, 4.0, 30, "cross-entropy")]) == (
        3.0,
        40,
    )
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10)]) is None
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10), score(5, 0.7, 20), score(6, 0.1, 20)]) is None, (
        "one length, asked in two ways"
    )


def test_means_stand_in_the_task_s_order() -> None:
    kept = {"means": {"failed steps": 0, "input": 1, "output": 1}}
    assert ordered_means({**kept, "order": ["input", "output", "failed steps"]}) == ["input", "output", "failed steps"]
    assert ordered_means(kept) == ["failed steps", "input", "output"]


def test_scratchpads_are_decoded_and_shown(here: Call, tmp_path: Path) -> None:
    words = ["compare", "nope", "--task", "summation:scratchpad=no-input", "--train-length", 3, "--lengths", "3,4"]
    words += ["--steps", 3, "--batch-size", 2, "--d-model", 8, "--num-layers", 1, "--num-heads", 1, "--examples", 8]
    ran = here(*words, "--results", tmp_path, "--on", "inline")
    assert ran.code == 0, ran.err
    (run,) = json.loads(here("list", "runs", "--results", tmp_path, "--json").out)
    row = json.loads(here("show", run["key"], "--results", tmp_path, "--json").out)
    names = {"computation", "output", "variables", "remaining", "failed steps"}
    for score in row["scores"]:
        details = score["facts"]["details"]
        assert set(details["means"]) == names
        assert details["unreadable"] == score["n"] == 8, "three steps of training teach nothing"
        assert all(set(kept) == {"question", "generated"} for kept in details["kept"])
    shown = here("show", run["key"], "--results", tmp_path).out
    head = next(line for line in shown.splitlines() if line.startswith("length"))
    assert all(name in head for name in (*names, "unreadable"))
    kept = row["scores"][1]["facts"]["details"]["kept"][0]
    assert f"could not be read, length 4: {kept['question']}" in shown
    refused = here(
        *words, "--positions", "randomized:max_length=99,at_evaluation=random", "--results", tmp_path / "other"
    )
    assert refused.code != 0
    assert "Summation is scored by decoding" in refused.err
