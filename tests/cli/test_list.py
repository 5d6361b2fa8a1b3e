"""`lengthwise list`: what it prints."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lengthwise
from lengthwise.positions import POSITION_SCHEMES
from lengthwise.store import open_store

Call = Callable[..., Any]


def test_list_encodings(here: Call) -> None:
    ran = here("list", "ENCODINGS")
    assert ran.code == 0
    for name in lengthwise.encodings.ENCODINGS.names():
        assert name in ran.out
    rows = {row["name"]: row for row in json.loads(here("list", "encodings", "--json").out)}
    assert rows["FIRE"]["settings"]["hidden_layers"] == 2
    assert rows["FIRE"]["shift_invariant"] is False
    (alone,) = json.loads(here("list", "encodings", "fIrE", "--json").out)
    assert alone == rows["FIRE"]
    described = here("list", "encoding", "fire").out
    assert "Source:" in described
    assert "hidden_layers=2" in described


def test_list_probes(here: Call) -> None:
    ran = here("list", "probes")
    assert ran.code == 0
    assert "attention-distance  How much a run's attention differs" in ran.out
    assert "--repeats: 4" in ran.out
    assert "--lengths: those of the run's evaluation, --examples: 10" in ran.out
    assert "lengthwise lengths KEY" in ran.out
    rows = {row["name"]: row for row in json.loads(here("list", "probes", "--json").out)}
    assert set(rows["recency"]) == {"name", "summary", "settings", "documentation"}
    assert rows["recency"]["settings"]["length"] == "4x the training length"
    assert rows["recency"]["settings"]["examples"] == 64
    assert rows["lengths"]["settings"] == {}
    (alone,) = json.loads(here("list", "probe", "Recency", "--json").out)
    assert alone == rows["recency"]
    assert "the most recent tenth of them" in here("list", "probes", "recency").out
    wrong = here("list", "probes", "recncy")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "did you mean 'recency'" in wrong.err


def test_list_tasks(here: Call) -> None:
    rows = {row["name"]: row for row in json.loads(here("list", "tasks", "--json").out)}
    assert rows["Copy"]["metric"] == "exact match"
    assert rows["Text"]["unit"] == "bytes"
    ran = here("list", "tasks")
    assert "cross-entropy, lower is better" in ran.out
    assert "symbols=26" in ran.out
    assert rows["LinearRegression"]["summary"] == "y = w·x, w ~ N(0, I). `length` counts the examples."
    assert not [name for name, row in rows.items() if row["summary"].endswith(":")]


def test_list_position_schemes(here: Call) -> None:
    rows = {row["name"]: row for row in json.loads(here("list", "positions", "--json").out)}
    assert list(rows) == POSITION_SCHEMES.names()
    assert rows["Randomized"]["settings"] == {"max_length": 2048, "at_evaluation": "random"}
    ran = here("list", "positions")
    assert "max_shift=500" in ran.out
    assert "lengthwise list positions randomized" in ran.out
    assert "Ruoss et al." in here("list", "positions", "RANDOMIZED").out


def test_list_runs_and_studies(here: Call, finished: Path) -> None:
    rows = json.loads(here("list", "runs", "--study", "tiny", "--results", finished, "--json").out)
    assert [(row["label"], row["status"]) for row in rows] == [("NoPE", "done"), ("FIRE-S", "done")]
    ran = here("list", "runs", "--study", "tiny", "--results", finished)
    assert rows[0]["key"][:8] in ran.out
    assert "10/10" in ran.out
    (study,) = json.loads(here("list", "studies", "--results", finished, "--json").out)
    assert (study["name"], study["progress"]["done"]) == ("tiny", 2)
    assert "Is it quick?" in here("list", "studies", "--results", finished).out


def test_runs_are_listed_in_the_order_of_their_studies(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_store(results) as store:
        one, two = store.runs("tiny")
        names = ("label", "encoding", "task", "metric", "better", "unit", "train_length", "config", "questions", "seed")
        rows = [{name: getattr(row, name) for name in names} | {"key": row.key} for row in (two, one)]
        new = [
            rows[0] | {"key": key, "seed": seed} for seed, key in enumerate(("ffff000011112222", "0000ffff11112222"), 1)
        ]
        store.add_study("later", evaluation={}, runs=[*new, rows[0]])
    listed = [row["key"] for row in json.loads(here("list", "runs", "--results", results, "--json").out)]
    assert listed == [one.key, two.key, new[0]["key"], new[1]["key"]]
    lines = here("list", "runs", "--results", results).out.splitlines()
    assert lines[0].split()[:3] == ["key", "study", "encoding"]
    assert [line.split()[1] for line in lines[1:]] == ["tiny", "tiny,", "later", "later"]
    assert "study" not in here("list", "runs", "--study", "tiny", "--results", results).out
