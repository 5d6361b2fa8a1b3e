"""`lengthwise compare`: its studies, their names and their options."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from lengthwise.cli import main
from lengthwise.cli.compare import MAX_NAME_LENGTH, Settings, study_of
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study
from tests.field_docs import field_docs

Call = Callable[..., Any]


@pytest.mark.medium
def test_compare_without_a_study_file(here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, results = tmp_path / "war and peace.txt", tmp_path / "results"
    text.write_text("".join(f"{n} happy families are all alike.\n" for n in range(400)))
    words = ["compare", "RoPE", "fire-s:hidden_layers=1", "--text", text, "--train-length", 16, "--lengths", "16,32"]
    words += ["--steps", 5, "--batch-size", 2, "--d-model", 8, "--num-layers", 1, "--num-heads", 1, "--tokens", 64]
    words += ["--results", results, "--on", "inline"]
    monkeypatch.setattr(sys, "argv", ["lengthwise", *map(str, words)])
    ran = here(*words)
    assert ran.code == 0, ran.err
    assert "FIRE-S(hidden_layers=1)" in ran.out
    assert "cross-entropy (nats per byte)" in ran.out
    again = here(*words)
    assert again.code == 0
    assert "all 2 runs are done" in again.err
    ran = here("list", "studies", "--results", results, "--json")
    (study,) = json.loads(ran.out)
    assert re.fullmatch(
        r"compare-text-war-and-peace\.txt-[0-9a-f]{6}-16-fire-s-hidden_layers-1-rope-.*-[0-9a-f]{8}", study["name"]
    )
    assert study["command"].startswith("lengthwise compare RoPE fire-s:hidden_layers=1 --text ")


@pytest.mark.medium
def test_compare_with_a_mixer(here: Call, tmp_path: Path) -> None:
    words = [
        "compare",
        "nope",
        "--mixer",
        "retnet",
        "--task",
        "copy",
        "--train-length",
        4,
        "--lengths",
        "4,8",
        "--steps",
        3,
    ]
    words += ["--batch-size", 4, "--d-model", 8, "--num-layers", 1, "--num-heads", 2, "--examples", 8, "--on", "inline"]
    words += ["--results", tmp_path / "results"]
    ran = here(*words)
    assert ran.code == 0, ran.err
    assert "RetNet" in ran.out
    refused = here(*["rope" if word == "nope" else word for word in words])
    assert refused.code == 2
    assert refused.err.strip().endswith("RetNet has no attention, so its encoding must be NoPE, got RoPE; choose NoPE")


@pytest.mark.medium
def test_compare_on_a_fixed_training_set(here: Call, tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.html"
    sizes = "--train-length 6 --min-length 5 --steps 12 --batch-size 4 --d-model 8 --num-layers 1 --num-heads 1"
    words = ["compare", "nope", "--task", "copy", *sizes.split(), "--examples", 8, "--results", results]
    for more, said in ((["--train-examples", 20], "20 fixed examples, 2.4 epochs"), ([], "new examples at every step")):
        assert here(*words, *more, "--on", "inline", "--name", said).code == 0
        (run,) = json.loads(here("list", "runs", "--study", said, "--results", results, "--json").out)
        assert re.search(rf"^examples +{said} *$", here("show", run["key"], "--results", results).out, re.MULTILINE)
        assert here("report", "--study", said, "--results", results, "--output", page).code == 0
        assert said in page.read_text()


@pytest.mark.medium
def test_compare_then_continues_from_every_trained_model(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["compare", "rope", "--task", "copy:symbols=5", "--train-length", 4, "--steps", 10, "--batch-size", 4]
    words += [
        "--d-model",
        8,
        "--num-layers",
        1,
        "--num-heads",
        1,
        "--examples",
        8,
        "--results",
        results,
        "--on",
        "inline",
    ]
    assert here(*words, "--then", "nope,yarn:factor=4", "--then-share", 0.2, "--name", "drope").code == 0
    rows = json.loads(here("list", "runs", "--study", "drope", "--results", results, "--json").out)
    assert {row["label"] for row in rows} == {
        "RoPE",
        "NoPE from RoPE (2 steps)",
        "YaRN(factor=4.0) from RoPE (2 steps)",
    }
    assert here(*words, "--then", "string", "--name", "string").code == 0
    rows = json.loads(here("list", "runs", "--study", "string", "--results", results, "--json").out)
    assert {row["label"] for row in rows} == {"RoPE", "STRING from RoPE"}
    ran = here(*words, "--then-share", 0.2)
    assert ran.code == 2
    assert "--then-share needs --then" in ran.err


@pytest.mark.medium
def test_compare_position_schemes(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["compare", "learned:max_length=64", "--task", "copy:symbols=5", "--train-length", 4, "--lengths", "4,8"]
    words += ["--min-length", 2]
    words += ["--positions", "consecutive,randomized:max_length=40,at_evaluation=random,shift:max_shift=9"]
    words += ["--steps", 5, "--batch-size", 2, "--d-model", 8, "--num-layers", 1, "--num-heads", 1, "--examples", 8]
    ran = here(*words, "--results", results, "--on", "inline")
    assert ran.code == 0, ran.err
    labels = [
        f"Learned(max_length=64){moved}"
        for moved in ("", " with Randomized(max_length=40)", " with Shift(max_shift=9)")
    ]
    rows = json.loads(here("list", "runs", "--results", results, "--json").out)
    assert sorted((row["label"], row["status"]) for row in rows) == [(label, "done") for label in labels]
    (drawn,) = (row for row in rows if "Randomized" in row["label"])
    (task,) = json.loads(here("report", "--results", results, "--json").out)["tasks"]
    assert [series["label"] for series in task["series"]] == labels
    assert [len(series["points"]) for series in task["series"]] == [2, 2, 2]
    shown = here("show", drawn["key"], "--results", results)
    assert "Learned(max_length=64) with Randomized(max_length=40) on Copy(symbols=5), seed 0" in shown.out
    assert "positions=Randomized " in " ".join(shown.out.split())
    assert "all 3 runs are done" in here(*words, "--results", results).err


SMALL = ["--d-model", "16", "--num-layers", "1", "--num-heads", "2", "--batch-size", "2", "--examples", "8"]


def study(*words: str) -> Study:
    """The study that `compare` makes of these words."""
    found: list[Study] = []

    def note(*options: Any) -> Any:
        found.append(study_of(*options))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lengthwise.cli.compare.study_of", note)
        main(["compare", *words])
    assert found, words
    return found[0]


def name_of(*words: str) -> str:
    return study(*words).name


BASE = ["rope", "alibi", "--task", "copy", "--train-length", "4"]


def test_options_that_are_not_given_have_the_defaults_of_compare_or_else_of_the_configurations() -> None:
    made = study(*BASE)
    assert made.runs[0].training == TrainingConfig(train_length=4, steps=500, batch_size=16)
    assert dataclasses.replace(made.runs[0].model, share_encoding=None) == ModelConfig()
    assert made.evaluation == EvaluationConfig(lengths=(4, 8, 16, 32))


def test_options_reach_the_configurations() -> None:
    numbers = {"steps": 7, "batch_size": 3, "learning_rate": 0.5, "min_length": 2, "train_examples": 9, "d_model": 24}
    numbers |= {"num_layers": 3, "num_heads": 6, "examples": 11, "tokens": 13}
    made = study(*BASE, *(word for name, n in numbers.items() for word in (f"--{name.replace('_', '-')}", str(n))))
    (run, _), evaluation = made.runs, made.evaluation
    assert {
        name: getattr(part, name)
        for part in (run.training, run.model, evaluation)
        for name in numbers
        if hasattr(part, name)
    } == numbers


def test_settings_are_fields_of_configurations_with_their_types_defaults_and_help() -> None:
    owners = {f.name: (config, f) for config in (EvaluationConfig, ModelConfig, TrainingConfig) for f in fields(config)}
    docs, hints = field_docs(Settings), get_type_hints(Settings)
    for setting in fields(Settings):
        config, field = owners[setting.name]
        assert docs[setting.name] == field_docs(config)[setting.name]
        assert hints[setting.name] == get_type_hints(config)[setting.name], setting.name
        if setting.name not in ("steps", "batch_size"):  # smaller defaults
            assert setting.default == field.default, setting.name


def test_help_joins_the_lines_of_a_docstring(here: Call) -> None:
    said = " ".join(here("compare", "--help").out.replace("│", " ").split())
    for name, text in field_docs(Settings).items():
        assert text in said, name


def test_the_name_of_a_comparison_says_what_is_compared() -> None:
    assert name_of(*BASE) == "compare-copy-4-alibi-rope"
    assert name_of("alibi", "RoPE", *BASE[2:]) == "compare-copy-4-alibi-rope"
    assert name_of(*BASE, "--steps", "20", "--d-model", "64") == "compare-copy-4-alibi-rope-steps-20-d_model-64"
    assert name_of(*BASE, "--steps", "500") == name_of(*BASE), "a default that is written out"
    assert name_of(*BASE, "--name", "mine") == "mine"


@pytest.mark.parametrize(
    "words", [["--steps", "20"], ["--learning-rate", "0.01"], ["--batch-size", "8"], ["--min-length", "2"],
              ["--num-heads", "8"], ["--positions", "shift"]]
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


@pytest.mark.medium
def test_two_comparisons_with_other_steps_are_both_in_the_report(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["compare", "nope", *BASE[2:], *SMALL, "--lengths", "4,8", "--results", results, "--on", "inline"]
    for steps in (2, 3):
        assert here(*words, "--steps", steps).code == 0
    assert "the run is done" in here(*words, "--steps", 2).err
    found = json.loads(here("report", "--results", results, "--json").out)
    assert [task["title"] for task in found["tasks"]] == ["Copy (steps 2)", "Copy (steps 3)"]
    assert len(found["studies"]) == 2
    more = here("compare", "rope", *words[2:], "--steps", 2, "--name", found["studies"][0]["name"])
    assert "no longer lists 1 run: NoPE on Copy" in more.err


@pytest.mark.medium
def test_lengths_that_are_asked_no_more_are_named(here: Call, tmp_path: Path) -> None:
    """Their scores leave the report, and come back without being computed again."""
    results = tmp_path / "results"
    words = ["compare", "nope", *BASE[2:], *SMALL, "--steps", 2, "--results", results]
    words += ["--on", "inline", "--lengths"]

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
    assert "the run is done" in again.err
    assert "any more" not in again.err
    assert lengths() == [4, 8, 16]


def test_the_help_says_what_a_name_is_made_of(here: Call) -> None:
    said = " ".join(here("compare", "--help").out.replace("│", " ").split())
    assert "[default: built from the task, the training length, the encodings" in said


TINY = "--task copy --train-length 4 --steps 4 --batch-size 2 --d-model 16 --num-layers 1 --num-heads 2 --examples 4"


@pytest.mark.parametrize("backend", ["fused", "flex"])
def test_a_backend_that_lacks_an_encoding_is_refused_before_anything_is_created(
    here: Call, tmp_path: Path, backend: str
) -> None:
    words = ["compare", "cope", *TINY.split(), "--results", tmp_path / "results", "--on", "inline"]
    ran = here(*words, "--backend", backend)
    assert ran.code == 2
    assert ran.err.startswith(f"lengthwise: CoPE on Copy: backend '{backend}' does not support this call: ")
    assert "use backend='auto' (--backend auto)" in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "results").exists()
    assert here(*words, "--backend", "reference").code == 0


def test_a_training_on_a_backend_without_gradients_is_refused(here: Call, tmp_path: Path) -> None:
    ran = here("compare", "rope", *TINY.split(), "--results", tmp_path / "results", "--backend", "flex")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "RoPE on Copy: backend 'flex': FlexAttention has no backward pass on a CPU; use" in ran.err
    assert not (tmp_path / "results").exists()


def test_after_a_wrong_setting_nobody_is_told_to_repeat_the_command(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lengthwise.config import ConfigError
    from lengthwise.studies import worker

    def train(run: Any, *_: Any, **__: Any) -> None:
        raise ConfigError("it is impossible") if run.label == "RoPE" else RuntimeError("it is full")

    monkeypatch.setattr(worker, "train", train)
    words = [*TINY.split(), "--results", tmp_path / "results", "--on", "inline"]
    ran = here("compare", "rope", *words)
    assert ran.code == 1
    last = "the run failed; correct what the message names first, because the same command fails again"
    assert ran.err.splitlines()[-1] == f"lengthwise: {last}"
    last = here("compare", "rope", "nope", *words).err.splitlines()[-1]
    assert last == "lengthwise: 2 of 2 runs failed; run the same command again to retry the other"
