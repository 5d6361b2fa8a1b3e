"""`lengthwise probe`: what it prints, keeps and refuses."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.cli.probe import print_table, skipped_lines
from lengthwise.measurements import PROBES, Table
from lengthwise.store import open_store

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def results(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished study, and beside it a run that was never trained, and a study of both kinds with two tasks."""
    folder = tmp_path_factory.mktemp("probed") / "results"
    shutil.copytree(finished, folder)
    with open_store(folder) as store:
        row = store.runs()[0]
        names = ("label", "encoding", "task", "metric", "better", "unit", "train_length", "config", "questions")
        pending = {name: getattr(row, name) for name in names} | {"key": "ffff000011112222", "seed": 5}
        store.add_study("later", evaluation={}, runs=[pending])
        done = [{name: getattr(run, name) for name in (*names, "key", "seed")} for run in store.runs("tiny")]
        config = row.config | {"task": row.config["task"] | {"symbols": 8}}
        other = pending | {"key": "eeee000011112222", "task": "Copy(symbols=8)", "config": config}
        store.add_study("empty", evaluation={}, runs=[])
        store.add_study("two", evaluation={}, runs=[*done, other])
    return folder


@pytest.fixture(scope="module")
def keys(results: Path) -> dict[str, str]:
    with open_store(results, create=False) as store:
        return {run.label: run.key for run in store.runs("tiny")}


@pytest.fixture
def distance(here: Call, results: Path) -> Call:
    """Ask for the distance of a run (and more)."""
    return lambda *words: here("probe", "attention-distance", *words, "--results", results)


def test_distance_of_two_runs(distance: Call, keys: dict[str, str]) -> None:
    command = (keys["FIRE-S"][:8], "--against", keys["NoPE"][:8])
    ran = distance(*command)
    assert ran.code == 0, ran.err
    assert "FIRE-S, seed 0" in ran.out
    assert "known already" not in ran.out
    rows = json.loads(distance(*command, "--json").out)
    assert [row["question"]["length"] for row in rows] == [4, 8], "the lengths that the run was scored at"
    assert not any(row["new"] for row in rows)
    for row in rows:
        assert row["key"] == keys["FIRE-S"]
        assert row["question"] == {
            "against": keys["NoPE"],
            "length": row["question"]["length"],
            "examples": 10,
            "seed": 0,
            "variant": "jensen-shannon",
        }
        assert set(row["columns"]) == {"layer", "distance", "error", "n", "places"}
        assert row["columns"]["layer"] == [1, 2]
        assert all(0 <= distance <= math.log(2) for distance in row["columns"]["distance"])
    assert "2 of 2 results were already stored." in distance(*command).out
    more = distance(*command, "--lengths", "8,6")
    assert "1 of 2 results were already stored." in more.out


def test_an_encoding_s_name_finds_the_run(distance: Call, keys: dict[str, str]) -> None:
    (row,) = json.loads(distance(keys["FIRE-S"], "--against", "nope", "--lengths", 5, "--json").out)
    assert row["question"]["against"] == keys["NoPE"]


def test_a_whole_study(here: Call, distance: Call, results: Path, keys: dict[str, str]) -> None:
    ran = distance("--study", "tiny", "--against", "nope", "--lengths", "4", "--json")
    assert ran.code == 0
    assert [row["label"] for row in json.loads(ran.out)] == ["FIRE-S"]
    assert "skipped" in ran.err
    assert "another seed" in ran.err, "NoPE has one seed"
    looked = here("probe", "attended-distance", "--study", "tiny", "--results", results, "--examples", 3, "--json")
    rows = json.loads(looked.out)
    assert [(row["label"], row["question"]["length"], row["columns"]["n"][0]) for row in rows] == [
        ("NoPE", 8, 3),
        ("FIRE-S", 8, 3),
    ]
    for row in rows:
        assert row["question"] == {"length": 8, "examples": 3, "seed": 0}
        assert set(row) == {
            "label",
            "task",
            "seed",
            "new",
            "key",
            "measurement",
            "question",
            "columns",
            "facts",
            "created",
        }
        assert row["facts"]["seconds"] > 0
        shares = Table(row["columns"]).combined("highest", ("layer", "head"), {}, "sum")
        assert list(shares.values()) == pytest.approx([1.0] * 4)
    table = here("probe", "attended-distance", keys["NoPE"], "--results", results, "--examples", 3)
    assert "0.95" in table.out
    assert "The result was already stored." in table.out


@pytest.mark.parametrize("words", [("attended-distance",), ("attention-distance", "--against", "nope")])
def test_the_runs_of_one_task(here: Call, results: Path, words: tuple[str, ...]) -> None:
    command = ("probe", *words, "--study", "two", "--examples", 2, "--lengths", 4, "--results", results, "--json")
    whole, chosen = here(*command), here(*command, "--task", "copy")
    assert (whole.code, chosen.code) == (0, 0), chosen.err
    assert {row["task"] for row in json.loads(chosen.out)} == {"Copy"}
    assert "eeee0000" in whole.err, "which is pending"
    assert "eeee0000" not in chosen.err, "and was not asked for"


def test_answers_about_several_tasks_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    def result(task: str) -> Any:
        run = SimpleNamespace(label="NoPE", seed=0, key="0123456789", task=task, config={}, train_length=4)
        rows = [{"layer": 1, "head": 1, "distance": 0.0, "highest": 1.0, "mass": 1.0, "queries": 4, "n": 3}]
        row = SimpleNamespace(key=run.key, question={"length": 8}, facts={}, rows=Table.from_rows(rows).to_data())
        return SimpleNamespace(job=SimpleNamespace(run=run, against=None), row=row)

    for other in ("Copy", "Parity"):
        print_table(PROBES["attended-distance"], [result("Copy"), result(other)])
        assert ("Copy" in capsys.readouterr().out) == (other == "Parity")


def test_runs_that_are_skipped_for_the_same_reason_have_one_line() -> None:
    reasons = [f"run {key}: NoPE adds no bias" for key in ("0123abcd", "89abcdef")]
    assert skipped_lines([*reasons, "run 0000ffff is not finished"]) == [
        "skipped 2 runs for the same reason: run 0123abcd: NoPE adds no bias",
        "skipped: run 0000ffff is not finished",
    ]


def test_probes_of_positions(here: Call, results: Path, keys: dict[str, str]) -> None:
    """One run by its key, and a whole study whose other runs are skipped with the reason."""
    bias = here("probe", "learned-bias", "--study", "tiny", "--query", 9, "--results", results)
    assert bias.code == 0, bias.err
    assert re.match(r"lengthwise: skipped: run \w{8} has no bias to measure: NoPE adds no bias", bias.err), "once"
    assert bias.out.startswith(f"{PROBES['learned-bias'].tables[0].title}\n")
    assert "length" not in bias.out.partition("run  ")[2], "it reads no examples"
    (row,) = json.loads(here("probe", "learned-bias", keys["FIRE-S"], "--query", 9, "--results", results, "--json").out)
    assert (row["new"], row["question"]) == (False, {"query": 9})
    shift = here(
        "probe", "position-shift", "--study", "tiny", "--shifts", "0,7", "--examples", 3, "--results", results, "--json"
    )
    nope, fire = json.loads(shift.out)
    assert nope["question"] == {
        "length": 4,
        "shifts": [0, 7],
        "examples": 3,
        "seed": 0,
    }
    assert (nope["columns"]["invariant"][0], fire["columns"]["invariant"][0]) == (True, False)
    assert nope["columns"]["logit_change"] == [0, 0]
    parts = here("probe", "logit-parts", "--study", "tiny", "--results", results)
    assert parts.code == 2
    assert "no run of study 'tiny' can be probed" in parts.err
    assert "NoPE adds no vectors to the embeddings" in parts.err
    page = here("report", "--results", results)
    assert page.code == 0
    text = (results / "report.html").read_text(encoding="utf-8")
    for chapter in ("attention", "shifted-positions", "during-training"):
        assert text.count(f'<section class="measurements" data-chapter="{chapter}"') == 1


def test_what_the_training_recorded(here: Call, results: Path, keys: dict[str, str]) -> None:
    with open_store(results, create=False) as store:
        of_run = {label: store.answers([key], "development") for label, key in keys.items()}
    assert of_run["NoPE"] == []
    (row,) = of_run["FIRE-S"]
    values = Table.from_data(row.rows).grid("value", "quantity", "step")
    assert list(map(len, values)) == [11, 11]
    assert set(Table.from_data(row.rows).column("layers")) == {"layers 1 to 2"}
    assert "device" in row.facts
    shown = " ".join(here("show", keys["FIRE-S"], "--results", results).out.split())
    assert "before training after training change" in shown
    assert "development, c, layers 1 to 2 0.100" in shown
    refused = here("probe", "development", keys["FIRE-S"], "--results", results)
    assert refused.code == 2
    assert "development is not a probe of trained models; use `lengthwise show KEY`" in refused.err


def test_the_published_variant(distance: Call, keys: dict[str, str]) -> None:
    command = (keys["FIRE-S"], "--against", "nope", "--lengths", 4, "--json")
    (true,), (published,) = (json.loads(distance(*command, *more).out) for more in ((), ("--variant", "published")))
    assert published["question"]["variant"] == "published"
    assert published["columns"]["distance"] != true["columns"]["distance"]


def test_damaged_weights_say_what_to_do(here: Call, results: Path, keys: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    weights = folder / "runs" / keys["NoPE"] / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    ran = here("probe", "attended-distance", keys["NoPE"], "--lengths", 7, "--results", folder)
    assert ran.code == 2
    assert "weights.safetensors is damaged" in ran.err
    assert "copy it again from where it was trained, or delete it and run its study again" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("attention-distanse", "NOPE", "--against", "FIRE"), 'did you mean "attention-distance"'),
        (("attention-distance", "NOPE"), "attention-distance compares two models; add --against"),
        (("attention-distance", "--against", "nope"), "probe needs either the keys of runs or --study NAME, got"),
        (("attention-distance", "NOPE", "--study", "tiny", "--against", "nope"), "got both"),
        (("attention-distance", "zz99", "--against", "nope"), "no run has a key that starts with 'zz99'"),
        (("attention-distance", "NOPE", "--against", "zz99"), "no run has a key that starts with 'zz99'"),
        (("attention-distance", "NOPE", "--against", "aliby"), "no encoding 'aliby'; did you mean 'ALiBi'"),
        (("attention-distance", "NOPE", "--against", "alibi:lernt=true"), "ALiBi has no setting 'lernt'"),
        (("attention-distance", "NOPE", "--against", "NOPE"), "cannot be compared with itself"),
        (
            ("attention-distance", "ffff", "--against", "NOPE"),
            "is pending, and only a finished run has a trained model",
        ),
        (("attention-distance", "NOPE", "--against", "nope"), "has no finished run of nope with its task"),
        (
            ("attention-distance", "FIRE", "--against", "NOPE", "--lengths", "4,x"),
            "--lengths must be whole numbers",
        ),
        (
            ("attention-distance", "FIRE", "--against", "NOPE", "--examples", "0"),
            "examples must be a whole number of at least 1, got 0",
        ),
        (("attention-distance", "FIRE", "--against", "NOPE", "--variant", "publishd"), 'did you mean "published"'),
        (("attention-distance", "FIRE", "--against", "NOPE", "--across-seeds"), "--across-seeds needs --against with"),
        (("attended-distance", "FIRE", "--against", "NOPE"), "Unknown option: --against"),
        (("learned-bias", "FIRE", "--lengths", "8"), "Unknown option: --lengths"),
        (("learned-bias", "NOPE"), "has no bias to measure: NoPE adds no bias; name a run of an encoding with a bias"),
        (("learned-bias", "FIRE", "--query", "0"), "query must be a whole number of at least 1, got 0"),
        (
            ("position-shift", "FIRE", "--shifts", "1,x"),
            "--shifts contains 'x'; write whole numbers from 0 to 999,999,999",
        ),
        (("attended-distance", "FIRE", "--shifts", "1"), "Unknown option: --shifts"),
        (("attended-distance", "FIRE", "--device", "abacus"), "device 'abacus' cannot be used"),
        (("attended-distance", "--study", "tny"), "there is no study 'tny'; did you mean 'tiny'"),
        (("attended-distance", "FIRE", "--task", "copy"), "--task selects runs of a study"),
        (("attended-distance", "--study", "two", "--task", "cpoy"), "there is no task 'cpoy'; did you mean 'Copy'?"),
        (
            ("attention-distance", "--study", "two", "--against", "nope", "--task", "copy:symbols=9"),
            "study 'two' has no run of Copy(symbols=9); did you mean 'Copy(symbols=8)'?; its tasks are: Copy, "
            "Copy(symbols=8)",
        ),
        (("recency", "--study", "two", "--task", "parity"), "study 'two' has no run of Parity; its tasks are: Copy"),
        (
            ("recency", "--study", "two", "--task", "copy:symbls=8"),
            "Copy has no setting 'symbls'; did you mean 'symbols'?",
        ),
        (
            ("recency", "--study", "two", "--task", "Copy(symbls=8)"),
            "no run of Copy(symbls=8); did you mean 'Copy(symb",
        ),
        (("recency", "--study", "two", "--task", "parity:bits=8"), "Parity has no setting 'bits'"),
        (
            ("attended-distance", "--study", "two", "--task", "copy:symbols=8"),
            "no run of study 'two' can be probed: eeee0000 (FIRE-S, seed 5) is not trained (its status is pending); "
            "run its study",
        ),
        (
            ("attention-distance", "--study", "later", "--against", "fire-s"),
            "no run of study 'later' can be probed: ffff",
        ),
        (
            ("attention-distance", "--study", "tiny", "--against", "alibi"),
            "study 'tiny' has no run of ALiBi; its encodings are: NoPE, FIRE-S",
        ),
        (("attended-distance", "--study", "empty"), "study 'empty' has no runs; run it first"),
        (("attention-distance", "--study", "empty", "--against", "nope"), "study 'empty' has no runs; run it first"),
        (("lengths", "NOPE"), "lengths is not a probe of trained models; use `lengthwise lengths KEY`"),
        (("show", "NOPE"), 'Unknown command "show"'),
        (("attention-distance", "--study", "tiny", "--against", "nop"), "did you mean"),
    ],
)
def test_one_clear_line(here: Call, results: Path, keys: dict[str, str], words: tuple[str, ...], said: str) -> None:
    stand_for = {"NOPE": keys["NoPE"], "FIRE": keys["FIRE-S"]}
    ran = here("probe", *(stand_for.get(word, word) for word in words), "--results", results)
    assert ran.code == 2, ran.out
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1
    assert said.lower() in ran.err.lower()


def test_show_says_what_was_asked(here: Call, results: Path, keys: dict[str, str]) -> None:
    here("probe", "attended-distance", keys["NoPE"], "--lengths", "3,5", "--examples", 2, "--results", results)
    stored = json.loads(here("show", keys["NoPE"], "--results", results, "--json").out)["answers"]
    rows = [row for row in stored if row["measurement"] == "attended-distance"]
    assert {3, 5} <= {row["question"]["length"] for row in rows}
    said = here("show", keys["NoPE"], "--results", results).out
    assert (
        f"attended-distance: {len(rows)} stored answers; `lengthwise probe attended-distance {keys['NoPE'][:8]}" in said
    )
