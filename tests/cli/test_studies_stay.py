"""What leaves a study says so, what differs stays beside it, and rows that cannot be read are made anew."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.cli.compare import MAX_NAME_LENGTH, study_of
from lengthwise.store import open_results

Call = Callable[..., Any]
SMALL = ["--d-model", "16", "--num-layers", "1", "--num-heads", "2", "--batch-size", "2", "--examples", "8"]


def name_of(*words: str) -> str:
    """The name of the study that `compare` makes of these words."""
    found = []

    def note(*options: Any) -> Any:
        found.append(study_of(*options))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lengthwise.cli.compare.study_of", note)
        main(["compare", *words])
    assert found, words
    return str(found[0].name)


BASE = ["rope", "alibi", "--task", "copy", "--train-length", "4"]


def test_the_name_of_a_comparison_says_what_is_compared() -> None:
    assert name_of(*BASE) == "compare-copy-4-alibi-rope"
    assert name_of("alibi", "RoPE", *BASE[2:]) == "compare-copy-4-alibi-rope"
    assert name_of(*BASE, "--steps", "20", "--d-model", "64") == "compare-copy-4-alibi-rope-steps-20-d_model-64"
    assert name_of(*BASE, "--steps", "500") == name_of(*BASE), "a default that is written out"
    assert name_of(*BASE, "--name", "mine") == "mine"


@pytest.mark.parametrize(
    "words", [["--steps", "20"], ["--learning-rate", "0.01"], ["--batch-size", "8"], ["--min-length", "2"], ["--num-heads", "8"],
              ["--positions", "shift"]]
)  # fmt: skip
def test_what_makes_other_runs_makes_another_name(words: list[str]) -> None:
    assert name_of(*BASE, *words) != name_of(*BASE)


@pytest.mark.parametrize("words", [["--seeds", "3"], ["--lengths", "4,64"], ["--examples", "8"]])
def test_what_adds_to_a_comparison_keeps_its_name(words: list[str]) -> None:
    assert name_of(*BASE, *words) == name_of(*BASE)


def test_other_tasks_and_texts_have_other_names(tmp_path: Path) -> None:
    assert name_of("rope", "--task", "copy:symbols=5", "--train-length", "4") == "compare-copy-symbols-5-4-rope"
    names = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text(f"All happy families are alike, {folder}.\n" * 400)
        names.add(name_of("rope", "--text", str(tmp_path / folder / "notes.txt"), "--train-length", "16"))
    assert len(names) == 2


def test_a_long_name_is_cut_and_stays_the_only_one() -> None:
    words = ["rope", "alibi", "nope", "t5", "fire", "kerplelog", "sandwich", "cope", "shaw", "yarn", "dapev2"][:10]
    one, other = (name_of(*words, *BASE[2:], "--steps", steps) for steps in ("20", "40"))
    assert one != other
    assert max(len(one), len(other)) <= MAX_NAME_LENGTH


def test_two_comparisons_with_other_steps_are_both_in_the_report(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["compare", "nope", *BASE[2:], *SMALL, "--lengths", "4,8", "--results", results, "--workers", 1]
    for steps in (2, 3):
        assert here(*words, "--steps", steps).code == 0
    assert "all 1 runs are done" in here(*words, "--steps", 2).err
    found = json.loads(here("report", "--results", results, "--json").out)
    assert [task["title"] for task in found["tasks"]] == ["Copy (steps 2)", "Copy (steps 3)"]
    assert len(found["studies"]) == 2
    more = here("compare", "rope", *words[2:], "--steps", 2, "--name", found["studies"][0]["name"])
    assert "no longer lists 1 run: NoPE on Copy" in more.err


def test_lengths_that_are_asked_no_more_are_named(here: Call, tmp_path: Path) -> None:
    """Their scores leave the report, and come back without being computed again."""
    results = tmp_path / "results"
    words = ["compare", "nope", *BASE[2:], *SMALL, "--steps", 2, "--results", results, "--workers", 1, "--lengths"]

    def lengths() -> list[int]:
        (task,) = json.loads(here("report", "--results", results, "--json").out)["tasks"]
        return list(task["lengths"])

    assert here(*words, "4,8,16").code == 0
    assert lengths() == [4, 8, 16]
    fewer = here(*words, "4")
    assert fewer.code == 0
    assert "no longer evaluates lengths 8, 16; their scores are not in the report" in fewer.err
    assert lengths() == [4]
    again = here(*words, "4,8,16")
    assert "all 1 runs are done" in again.err
    assert "any more" not in again.err
    assert lengths() == [4, 8, 16]


def test_the_help_says_what_a_name_is_made_of(here: Call) -> None:
    said = " ".join(here("compare", "--help").out.replace("│", " ").split())
    assert "[default: built from the task, the training length, the encodings" in said


def test_rows_that_cannot_be_read_are_made_anew_by_run(here: Call, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished.parent, tmp_path / "copy")
    results, study = tmp_path / "copy" / "results", tmp_path / "copy" / "tiny.py"
    with open_results(results) as store:
        first, second = store.runs("tiny")
        before = {(s.key, s.length): s.mean for s in store.scores([first.key, second.key])}
    with sqlite3.connect(results / "results.db") as other:
        other.execute("UPDATE runs SET claims = 'many', facts = '[]' WHERE key = ?", (first.key,))
        other.execute("UPDATE scores SET mean = 'high' WHERE key = ? AND length = 8", (second.key,))
    other.close()
    listed = here("list", "runs", "--results", results)
    assert listed.code == 0
    assert listed.err.count("\n") == 1
    assert listed.err.startswith(f"lengthwise: runs: skipped the row '{first.key}', whose claims is text")
    ran = here("run", study, "--results", results, "--workers", 1)
    assert ran.code == 0, ran.err
    assert f"runs: the row '{first.key}' could not be read, and the run starts from the beginning" in ran.err
    assert "could not be read and was removed" in ran.err
    with open_results(results) as store:
        assert [run.status for run in store.runs("tiny")] == ["done", "done"]
        assert {(s.key, s.length): s.mean for s in store.scores([first.key, second.key])} == before
    assert "left out" not in here("list", "runs", "--results", results).err


def test_drop_deletes_nothing_outside_of_the_results(here: Call, finished: Path, tmp_path: Path) -> None:
    """A database by somebody else, whose keys are paths."""
    results, victim = tmp_path / "results", tmp_path / "victim"
    shutil.copytree(finished, results)
    victim.mkdir()
    (victim / "diary.txt").write_text("dear diary")
    for key in (str(victim), "../../victim", "a\x1b]0;PWN\x07\x1b[31m"):
        with sqlite3.connect(results / "results.db") as other:
            (old,) = other.execute("SELECT key FROM runs ORDER BY rowid DESC").fetchone()
            for table in ("runs", "study_runs", "asked", "scores", "curve"):
                other.execute(f"UPDATE {table} SET key = ? WHERE key = ?", (key, old))
        other.close()
        for words in (["drop", key], ["drop", key, "--finished"], ["drop", "--study", "tiny", "--finished"]):
            again = tmp_path / "again"
            shutil.copytree(results, again)
            ran = here(*words, "--results", again)
            assert ran.code in (0, 2)
            assert "\x1b" not in ran.out + ran.err
            assert (victim / "diary.txt").read_text() == "dear diary"
            shutil.rmtree(again)


def test_a_finished_run_that_cannot_be_read_stays_without_finished(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_results(results) as store:
        key = store.runs("tiny")[0].key
    with sqlite3.connect(results / "results.db") as other:
        other.execute("UPDATE runs SET facts = '[]' WHERE key = ?", (key,))
    other.close()
    ran = here("drop", "--study", "tiny", "--results", results)
    assert ran.code == 0
    assert f"kept {key}: it could not be read, so it may be finished; add --finished to delete it" in ran.out
    assert (results / "runs" / key / "weights.safetensors").is_file()
    ran = here("drop", "--study", "tiny", "--finished", "--results", results)
    assert f"deleted {key}: it could not be read" in ran.out
    assert "deleted study tiny" in ran.out
    assert not (results / "runs" / key).exists()


def test_no_row_goes_before_its_files(here: Call, finished: Path, tmp_path: Path) -> None:
    """A link is refused before anything is dropped, and in a study it keeps its own run alone."""
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    shutil.copytree(finished, results)
    with open_results(results) as store:
        first, second = (run.key for run in store.runs("tiny"))
    (results / "runs").rename(elsewhere)
    (results / "runs").symlink_to(elsewhere)
    for words in ([first, second], ["--study", "tiny"]):
        ran = here("drop", *words, "--finished", "--results", results)
        assert ran.code == 2
        assert not any(line.startswith("deleted ") for line in ran.out.splitlines())
        assert "must not be a link" in ran.out + ran.err
        with open_results(results) as store:
            assert len(store.scores([first, second])) == 4
    assert len(list(elsewhere.iterdir())) == 2


@pytest.mark.parametrize("whole", [True, False])
def test_files_that_cannot_be_deleted_keep_their_run_alone(
    here: Call, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_results(results) as store:
        first, second = (run.key for run in store.runs("tiny"))
    usual = shutil.rmtree

    def rmtree(path: Path) -> None:
        if path.name == first:
            raise PermissionError(13, "Permission denied", str(path))
        usual(path)

    with monkeypatch.context() as patched:
        patched.setattr("lengthwise.store.folders.shutil.rmtree", rmtree)
        words = ["--study", "tiny"] if whole else [first, second]
        ran = here("drop", *words, "--finished", "--results", results)
    assert ran.code == 2
    assert f"kept {first}: its files cannot be deleted (Permission denied" in ran.out
    assert f"deleted {second}" in ran.out
    assert ran.err.count("\n") == 1
    with open_results(results) as store:
        assert [run.key for run in store.runs("tiny")] == [first]
    assert [path.name for path in (results / "runs").iterdir()] == [first]
    assert here("drop", first, "--finished", "--results", results).code == 0, "and afterwards it goes"


def test_a_text_that_changed_is_named(here: Call, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("All happy families are alike.\n" * 400)
    words = ["compare", "nope", "--text", text, "--train-length", 16, "--lengths", 16, *SMALL, "--steps", 2]
    words += ["--results", tmp_path / "results", "--workers", 1, "--name", "mine"]
    assert here(*words).code == 0
    text.write_text("All happy families are different.\n" * 400)
    ran = here(*words)
    assert f"{text} changed since 1 run was trained; it will be trained again" in ran.err
    assert "does not list" not in ran.err


def test_runs_of_no_study_are_counted_apart(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = [*BASE[2:], *SMALL, "--lengths", "4,8", "--steps", 2, "--results", results, "--workers", 1, "--name", "one"]
    for encoding in ("nope", "rope"):
        assert here("compare", encoding, *words).code == 0
    found = json.loads(here("report", "--results", results, "--json").out)
    assert (len(found["runs"]), found["unlisted"]) == (1, 1)
    assert "1 more run belongs to no study" in here("report", "--results", results).out
    assert "1 more run belongs to no study" in (results / "report.html").read_text()
    listed = here("list", "runs", "--results", results).out
    assert listed.count("in no study") == 1


def test_the_study_of_a_file_has_a_command(here: Call, finished: Path) -> None:
    found = json.loads(here("report", "--results", finished, "--json").out)
    (study,) = found["studies"]
    assert study["command"].startswith("lengthwise run ")
    assert study["command"].endswith("tiny.py")
