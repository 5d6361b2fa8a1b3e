"""What each verb prints."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.cli.app import COMMANDS
from lengthwise.cli.show import ordered_means, overall_score, print_run, scores_table
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH
from lengthwise.positions import POSITION_SCHEMES
from lengthwise.store import RunRow, ScoreRow, open_store

Call = Callable[..., Any]
TWO = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="two",
    runs=grid(["nope", "fire-s"], ["copy", "reverse"], model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
              training=TrainingConfig(train_length=4, steps=1, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
)
"""


def test_run_shows_progress_then_the_table_then_the_page(finished: Path) -> None:
    out, err = (finished.parent / "said.txt").read_text().split("\n====\n")
    assert "tiny: 2 runs; 1 worker, results in" in err
    assert "NoPE, Copy, seed 0: starts" in err
    assert "[2/2] FIRE-S, Copy, seed 0: done in" in err
    assert "exact match" in out
    assert "FIRE-S" in out
    assert out.rstrip().endswith(f"Report: {finished / 'report.html'}")
    assert "FIRE-S" in (finished / "report.html").read_text(encoding="utf-8")


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
    assert "repeats: 4" in ran.out
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


def test_show_a_run_by_the_beginning_of_its_key(here: Call, finished: Path) -> None:
    key = json.loads(here("list", "runs", "--study", "tiny", "--results", finished, "--json").out)[1]["key"]
    ran = here("show", key[:6], "--results", finished)
    assert ran.code == 0
    assert "FIRE-S on Copy, seed 0" in ran.out
    assert "hidden_layers=2" in ran.out
    assert "share_encoding=true" in ran.out
    assert "torch=" in ran.out
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


def test_overall_scores_that_there_are_not() -> None:
    assert overall_score(CROSS_ENTROPY, [score(5, 2.0, 10, "cross-entropy"), score(6, 4.0, 30, "cross-entropy")]) == (
        3.0,
        40,
    )
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10)]) is None
    assert overall_score(EXACT_MATCH, [score(5, 0.5, 10), score(5, 0.7, 20), score(6, 0.1, 20)]) is None, (
        "one length, asked in two ways"
    )


def test_report(here: Call, finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    page.parent.mkdir()
    ran = here("report", "--study", "tiny", "--results", finished, "--output", page)
    assert ran.code == 0
    assert "exact match" in ran.out
    assert f"Report: {page}" in ran.out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    page.unlink()
    found = json.loads(here("report", "--results", finished, "--json").out)
    assert found["tasks"][0]["lengths"] == [4, 8]
    assert found["ranking"] is None, "one task"
    assert not page.exists()


def test_the_published_rule_for_ties(here: Call, tmp_path: Path) -> None:
    """Models of one step get nothing right at twice the length, so that all are equal."""
    (tmp_path / "two.py").write_text(TWO)
    results = tmp_path / "results"
    assert here("run", tmp_path / "two.py", "--results", results, "--workers", 1).code == 0
    page, ranks = tmp_path / "page.html", {"average": (2 / 3, 2 / 3), "published": (1, 1 / 2)}
    for ties, wanted in ranks.items():
        words = ["report", "--results", results, "--ties", ties, "--output", page]
        found = json.loads(here(*words, "--json").out)["ranking"]
        assert found["ties"] == ties
        assert [(rank["label"], rank["longer"]["mean"]) for rank in found["ranks"]] == [
            ("NoPE", pytest.approx(wanted[0])), ("FIRE-S", pytest.approx(wanted[1]))
        ]  # fmt: skip
        published = ties == "published"
        assert ("the published rule" in page.read_text(encoding="utf-8")) == published
        page.unlink()
        assert ("the published rule" in here(*words).out) == published
        assert ("the published rule" in page.read_text(encoding="utf-8")) == published


def test_results_come_from_the_environment(here: Call, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_RESULTS", str(finished))
    assert "FIRE-S" in here("list", "runs").out


def test_sample_shows_the_same_examples_for_the_same_seed(here: Call) -> None:
    ran = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--json")
    examples = [json.loads(line) for line in ran.out.splitlines()]
    assert len(examples) == 2
    for number, example in enumerate(examples):
        assert example["task"] == "Copy(symbols=5)"
        assert (example["number"], example["seed"], example["split"], example["length"]) == (number, 3, "test", 6)
        assert len(example["input"].split()) == 6
        assert example["target"] == example["input"]
    again = here("sample", "COPY:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--json")
    assert again.out == ran.out
    other = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 4, "--json")
    assert other.out != ran.out
    train = here("sample", "copy:symbols=5", "--length", 6, "--count", 2, "--seed", 3, "--split", "train", "--json")
    assert train.out != ran.out


def test_sample_of_a_text(here: Call, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("All happy families are alike.\n" * 100)
    ran = here("sample", f"text:path={text}", "--length", 20, "--count", 1)
    assert ran.code == 0
    assert "<BOS>" in ran.out
    assert "length 20 bytes, test, seed 0" in ran.out


def test_compare_without_a_study_file(apart: Call, tmp_path: Path) -> None:
    text, results = tmp_path / "war and peace.txt", tmp_path / "results"
    text.write_text("".join(f"{n} happy families are all alike.\n" for n in range(400)))
    words = ["compare", "RoPE", "fire-s:hidden_layers=1", "--text", text, "--train-length", 16, "--lengths", "16,32"]
    words += ["--steps", 5, "--batch-size", 2, "--d-model", 16, "--num-layers", 1, "--num-heads", 2, "--tokens", 256]
    ran = apart(*words, "--results", results, "--workers", 1)
    assert ran.code == 0, ran.err
    assert "FIRE-S(hidden_layers=1)" in ran.out
    assert "cross-entropy (nats per byte)" in ran.out
    again = apart(*words, "--results", results)
    assert again.code == 0
    assert "all 2 runs are done" in again.err
    ran = apart("list", "studies", "--results", results, "--json")
    (study,) = json.loads(ran.out)
    assert re.fullmatch(
        r"compare-text-war-and-peace\.txt-[0-9a-f]{6}-16-fire-s-hidden_layers-1-rope-.*-[0-9a-f]{8}", study["name"]
    )
    assert study["command"].startswith("lengthwise compare RoPE fire-s:hidden_layers=1 --text ")


def test_compare_on_a_fixed_training_set(apart: Call, tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.html"
    sizes = "--train-length 6 --min-length 5 --steps 12 --batch-size 4 --d-model 8 --num-layers 1 --num-heads 1"
    words = ["compare", "nope", "--task", "copy", *sizes.split(), "--examples", 8, "--results", results]
    for more, said in ((["--train-examples", 20], "20 fixed examples, 2.4 epochs"), ([], "new examples at every step")):
        assert apart(*words, *more, "--workers", 1, "--name", said).code == 0
        (run,) = json.loads(apart("list", "runs", "--study", said, "--results", results, "--json").out)
        assert re.search(rf"^examples +{said} *$", apart("show", run["key"], "--results", results).out, re.MULTILINE)
        assert apart("report", "--study", said, "--results", results, "--output", page).code == 0
        assert said in page.read_text()


def test_compare_position_schemes(apart: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["compare", "learned:max_length=64", "--task", "copy:symbols=5", "--train-length", 4, "--lengths", "4,8"]
    words += ["--min-length", 2]
    words += ["--positions", "consecutive,randomized:max_length=40,at_evaluation=random,shift:max_shift=9"]
    words += ["--steps", 5, "--batch-size", 2, "--d-model", 16, "--num-layers", 1, "--num-heads", 2, "--examples", 8]
    ran = apart(*words, "--results", results, "--workers", 1)
    assert ran.code == 0, ran.err
    labels = [
        f"Learned(max_length=64){moved}"
        for moved in ("", " with Randomized(max_length=40)", " with Shift(max_shift=9)")
    ]
    rows = json.loads(apart("list", "runs", "--results", results, "--json").out)
    assert sorted((row["label"], row["status"]) for row in rows) == [(label, "done") for label in labels]
    (drawn,) = (row for row in rows if "Randomized" in row["label"])
    (task,) = json.loads(apart("report", "--results", results, "--json").out)["tasks"]
    assert [series["label"] for series in task["series"]] == labels
    assert [len(series["points"]) for series in task["series"]] == [2, 2, 2]
    shown = apart("show", drawn["key"], "--results", results)
    assert "Learned(max_length=64) with Randomized(max_length=40) on Copy(symbols=5), seed 0" in shown.out
    assert "positions=Randomized " in " ".join(shown.out.split())
    assert "all 3 runs are done" in apart(*words, "--results", results).err


def test_scratchpads_are_decoded_and_shown(apart: Call, tmp_path: Path) -> None:
    words = ["compare", "nope", "--task", "summation:scratchpad=no-input", "--train-length", 3, "--lengths", "3,4"]
    words += ["--steps", 3, "--batch-size", 2, "--d-model", 16, "--num-layers", 1, "--num-heads", 2, "--examples", 8]
    ran = apart(*words, "--results", tmp_path, "--workers", 1)
    assert ran.code == 0, ran.err
    (run,) = json.loads(apart("list", "runs", "--results", tmp_path, "--json").out)
    row = json.loads(apart("show", run["key"], "--results", tmp_path, "--json").out)
    names = {"computation", "output", "variables", "remaining", "failed steps"}
    for score in row["scores"]:
        details = score["facts"]["details"]
        assert set(details["means"]) == names
        assert details["unreadable"] == score["n"] == 8, "three steps of training teach nothing"
        assert all(set(kept) == {"question", "generated"} for kept in details["kept"])
    shown = apart("show", run["key"], "--results", tmp_path).out
    head = next(line for line in shown.splitlines() if line.startswith("length"))
    assert all(name in head for name in (*names, "unreadable"))
    kept = row["scores"][1]["facts"]["details"]["kept"][0]
    assert f"could not be read, length 4: {kept['question']}" in shown
    refused = apart(
        *words, "--positions", "randomized:max_length=99,at_evaluation=random", "--results", tmp_path / "other"
    )
    assert refused.code != 0
    assert "Summation is scored by decoding" in refused.err


# ---- help, and what is imported ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_help_with_an_example(here: Call, verb: str) -> None:
    ran = here(verb, "--help")
    assert ran.code == 0
    assert f"Example: lengthwise {verb}" in ran.out
    for option in ran.out.split("Parameters")[-1].splitlines():
        assert not option.startswith("│ --") or len(option.split()) > 4, f"no words about {option}"


def test_help_lists_every_verb(here: Call) -> None:
    ran = here("--help")
    assert ran.code == 0
    for verb in COMMANDS:
        assert f"│ {verb} " in ran.out
    assert here().out == ran.out
    assert here("--version").out.strip() == lengthwise.__version__


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["list", "runs"], ["list", "studies"], ["show", "KEY"], ["report"]]
)
def test_what_only_reads_results_imports_no_torch(words: list[str], finished: Path, tmp_path: Path) -> None:
    if words[0] == "show":
        from lengthwise.store import open_store

        with open_store(finished, create=False) as store:
            words = ["show", store.runs()[0].key]
    if "--help" not in words:
        words = [*words, "--results", str(finished)]
    if words[0] == "report":
        words += ["--output", str(tmp_path / "page.html")]
    code = (
        "import sys; from lengthwise.cli import main; code = main(sys.argv[1:]); "
        "print(code, sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'sqlalchemy'}), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == ("0 []" if "--help" in words else "0 ['sqlalchemy']")


def test_a_run_is_dropped_with_what_lies_in_its_folder(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    rows = json.loads(here("list", "runs", "--results", results, "--json").out)
    key = rows[0]["key"]
    ran = here("drop", key[:8], "--results", results)
    assert ran.code == 2
    assert "is finished and its results would be lost; nothing was deleted; add --finished to delete it" in ran.err
    ran = here("drop", "--study", "tiny", "--results", results)
    assert [line.split(" ")[0] for line in ran.out.splitlines()] == ["kept"] * 3
    assert ran.out.count("it is finished; --finished deletes it too") == 2
    assert "kept study tiny" in ran.out
    assert (results / "runs" / key).is_dir()
    ran = here("drop", key[:8], "--finished", "--results", results)
    assert ran.code == 0
    assert ran.out.startswith(f"deleted {key} (")
    assert not (results / "runs" / key).exists()
    left = json.loads(here("list", "runs", "--results", results, "--json").out)
    assert [row["key"] for row in left] == [row["key"] for row in rows[1:]]
    assert here("report", "--results", results).code == 0


def test_the_unfinished_runs_of_a_study_are_dropped(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_store(results) as store:
        row = store.runs()[0]
        names = ("label", "encoding", "task", "metric", "better", "unit", "train_length", "config", "asked")
        pending = {name: getattr(row, name) for name in names} | {"key": "ffff000011112222", "seed": 5}
        store.add_study("later", evaluation={}, runs=[pending, {**pending, "key": row.key, "seed": row.seed}])
    ran = here("drop", "--study", "later", "--results", results)
    assert ran.code == 0
    dropped, kept, study = ran.out.splitlines()
    assert dropped.startswith("deleted ffff000011112222 (")
    assert kept.startswith(f"kept {row.key} (")
    assert kept.endswith(": study tiny lists it too")
    assert study == "deleted study later"
    assert [s["name"] for s in json.loads(here("list", "studies", "--results", results, "--json").out)] == ["tiny"]
    ran = here("drop", "--study", "tiny", "--finished", "--results", results)
    assert (ran.code, ran.out.count("deleted ")) == (0, 3)
    assert list((results / "runs").iterdir()) == []
    assert json.loads(here("list", "studies", "--results", results, "--json").out) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "drop needs either the keys of runs or --study NAME"),
        (["ab", "--study", "s"], "got both"),
        (["--study", "s", "--finished"], "there is no study 's'"),
        (["zz"], "no run has a key that starts with 'zz'"),
    ],
)
def test_drops_that_cannot_be(here: Call, finished: Path, words: list[str], says: str) -> None:
    ran = here("drop", *words, "--results", finished)
    assert ran.code == 2
    assert says in ran.err


def test_means_stand_in_the_task_s_order() -> None:
    kept = {"means": {"failed steps": 0, "input": 1, "output": 1}}
    assert ordered_means({**kept, "order": ["input", "output", "failed steps"]}) == ["input", "output", "failed steps"]
    assert ordered_means(kept) == ["failed steps", "input", "output"]
