"""`lengthwise extend`: its report, training, interruptions, and bad input in one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from lengthwise.cli import main
from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import RoPE
from lengthwise.extend import unfinished
from lengthwise.extend.tune import Windows, newest_checkpoint
from lengthwise.huggingface import LengthwiseForCausalLM
from lengthwise.huggingface.export import export
from lengthwise.measurements.answer_file import read
from lengthwise.measurements.retention import Retention, Tuning
from lengthwise.tasks import Text
from lengthwise.training import build
from tests.evaluation.pretrained_folder import change
from tests.reach.models import folder, prose

MEASURED = ("--text", "text.txt", "--lengths", "64,128,256", "--examples", 4, "--targets", 16)
TUNED = ("--tune", "tune.txt", "--steps", 6, "--length", 96, "--accumulate", 2, "--warmup", 1, "--save-every", 2)
TUNED += ("--learning-rate", 3e-3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model of 64 positions and two texts, in which commands run."""
    change(folder(tmp_path / "tiny"), max_position_embeddings=64)
    (tmp_path / "text.txt").write_text(prose(2000))
    (tmp_path / "tune.txt").write_text(prose(2000, seed=1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: Any) -> int:
    return main(["extend", *map(str, words)])


def losses(answer: Any, method: str, length: int) -> list[float]:
    (row,) = (r for r in answer.rows if (r["method"], r.get("length")) == (method, length) and "losses" in r)
    return list(row["losses"])


def changes_of(path: str) -> list[Any]:
    """The changes of the cross-entropy by method and length."""
    shown = Retention().derive(read(Path(path) / "retention.jsonl").table, {})
    return [row for row in shown if row.get("change") is not None]


def built(path: str) -> list[Any]:
    return [row for row in read(Path(path) / "retention.jsonl").rows if "form" in row]


def weights(path: str) -> dict[str, torch.Tensor]:
    return load_file(Path(path) / "model.safetensors")


@pytest.mark.medium
def test_one_method_without_training(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "tiny" / "tokenizer_config.json").chmod(0o400)
    assert run("tiny", "--methods", "yarn:factor=4", *MEASURED, "--out", "new") == 0
    said = capfd.readouterr().out
    assert "whose training length is 64 tokens" in said and "native" in said
    assert not list(place.glob("*.unfinished")) and not list(place.glob(".*"))
    model = AutoModelForCausalLM.from_pretrained("new")
    assert model.config.rope_parameters["rope_type"] == "yarn" and model.config.max_position_embeddings == 256
    assert (
        AutoTokenizer.from_pretrained("new")("the").input_ids == AutoTokenizer.from_pretrained("tiny")("the").input_ids
    )
    answer = read(Path("new/retention.jsonl"))
    assert answer.question["train_length"] == 64 and "tune_sha256" not in answer.question
    assert [row["folder"] for row in answer.rows if "form" in row] == ["this folder"]
    changes = changes_of("new")
    assert [row["length"] for row in changes] == [64, 128, 256]
    for row in changes:
        old, new = (losses(answer, method, row["length"]) for method in ("own", "yarn:factor=4"))
        differences = [b - a for a, b in zip(old, new, strict=True)]
        assert len(differences) == 4 and row["changes"] == pytest.approx(differences)
        assert row["change"] == pytest.approx(sum(differences) / 4, abs=1e-7)
        assert f"{abs(row['change']):.3f} (" in said
    page = Path("new/retention.html").read_text()
    for word in (
        "What was lost, and what was gained?",
        "yarn:factor=4",
        "What it took",
        "--rope-scaling yarn --rope-freq-base 10000 --rope-scale 4",
    ):
        assert word in page
    assert "<script" not in page


@pytest.mark.slow
def test_the_page_fits_a_phone(place: Path, browser: Any) -> None:
    """Only tables and charts scroll, and long values of settings are wrapped."""
    assert run("tiny", "--methods", "pi:factor=2", *MEASURED, "--out", "new") == 0
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((place / "new" / "retention.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    wide = "box => box.scrollWidth > box.clientWidth"
    scrolled = f"[...document.querySelectorAll('div')].filter({wide}).map(box => box.innerText)"
    assert not [text for text in page.evaluate(scrolled) if text.startswith("Settings")]
    assert page.evaluate("document.querySelector('svg').getBoundingClientRect().width") >= 500, "its labels can be read"
    page.close()


@pytest.mark.medium
def test_the_measurement_before_is_that_of_reach(place: Path) -> None:
    assert run("tiny", "--methods", "pi:factor=2", *MEASURED, "--out", "new") == 0
    words = ("reach", "tiny", *MEASURED, "--tasks", "text", "--methods", "own,pi:factor=2", "--out", "r.jsonl")
    assert main([str(word) for word in words]) == 0
    extended, reach = read(Path("new/retention.jsonl")), read(Path("r.jsonl"))
    for length in (64, 128, 256):
        assert losses(extended, "own", length) == losses(reach, "own", length)
        after = losses(extended, "pi:factor=2", length)
        assert after == pytest.approx(losses(reach, "pi:factor=2", length), rel=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("lora", [(), pytest.param(("--lora", 2), marks=pytest.mark.slow)], ids=["full", "lora"])
def test_training_changes_the_weights_and_the_encoding(
    lora: tuple[Any, ...], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    if lora:
        pytest.importorskip("peft", reason="peft is not installed")
    assert run("tiny", "--methods", "fire", *MEASURED, "--out", "start") == 0
    assert run("tiny", "--methods", "yarn:factor=2,fire", *MEASURED, *TUNED, *lora, "--out", "new") == 0
    assert sorted(path.name for path in (place / "new").iterdir()) == [
        "fire",
        "retention.html",
        "retention.jsonl",
        "yarn-factor-2",
    ]
    assert all(row["change"] < 0 for row in changes_of("new") if row["length"] == 64), (
        "it learned the words of the text"
    )
    for row in built("new"):
        assert row["train_steps"] == [1, 2, 3, 4, 5, 6] and row["build_seconds"] > 0
        assert row["train_losses"][-1] < row["train_losses"][0]
    trained, start, own = weights("new/fire"), weights("start"), weights("tiny")
    assert trained.keys() == start.keys() and weights("new/yarn-factor-2").keys() == own.keys()
    encodings = [name for name in trained if "position_encodings" in name]
    assert encodings and all(not torch.equal(trained[name], start[name]) for name in encodings)
    for name in own:
        is_trained = not lora or ("proj" in name and "embed" not in name)
        assert torch.equal(weights("new/yarn-factor-2")[name], own[name]) != is_trained, name
    loaded = AutoModelForCausalLM.from_pretrained("new/fire")
    assert loaded.get_decoder().position_encodings
    capfd.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("lora", [(), ("--lora", 2)], ids=["full", "lora"])
def test_an_exported_run_is_trained_further(
    lora: tuple[Any, ...], place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = ModelConfig(d_model=32, num_layers=2, num_heads=2)
    training = TrainingConfig(train_length=64, steps=1)
    exported = Run(encoding=choose(RoPE), task=choose(Text), model=model, training=training)
    export(exported, build(exported)[0], place / "run")
    assert run("run", "--methods", "fire", *MEASURED, *TUNED, *lora, "--out", "new") == 0
    capfd.readouterr()
    (row,) = built("new")
    assert row["form"] == "lengthwise" and changes_of("new")[0]["change"] < 0
    loaded = AutoModelForCausalLM.from_pretrained("new")
    assert type(loaded) is LengthwiseForCausalLM and loaded.config.encoding["is"] == "FIRE"


def test_a_row_of_the_training_depends_on_the_seed_and_its_number_alone() -> None:
    settings: dict[str, Any] = {"length": 10, "learning_rate": 1.0, "warmup": 0, "save_every": 1}
    one = Windows(range(1000), [7], Tuning(steps=4, batch_size=6, accumulate=1, **settings), 5)
    two = Windows(range(1000), [7], Tuning(steps=9, batch_size=1, accumulate=3, **settings), 5)
    other = Windows(range(1000), [7], Tuning(steps=9, batch_size=1, accumulate=3, **settings), 6)
    assert len(one) == 24 and len(two) == 27
    rows = [one[n]["input_ids"].tolist() for n in range(24)]
    assert (
        rows == [two[n]["input_ids"].tolist() for n in range(24)] != [other[n]["input_ids"].tolist() for n in range(24)]
    )
    assert all(row[0] == 7 and row[1:] == list(range(row[1], row[1] + 9)) for row in rows)
    assert len({tuple(row) for row in rows}) > 20


# ---- interruptions ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_command_repeats_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of its steps is interrupted once, the command ends with the files of an uninterrupted one."""
    words = ("tiny", "--methods", "pi:factor=2,nope", *MEASURED)
    assert run(*words, "--out", "whole") == 0
    capfd.readouterr()
    calls: dict[str, list[str]] = {"write_start": [], "load_written": [], "write": []}

    def interrupting(name: str) -> Any:
        own = getattr(unfinished, name)

        def call(*arguments: Any) -> Any:
            calls[name].append(str(arguments[1]))
            result = own(*arguments)
            if calls[name].count(str(arguments[1])) == 1:
                raise KeyboardInterrupt
            return result

        return call

    for name in calls:
        monkeypatch.setattr(unfinished, name, interrupting(name))
    for _ in range(20):
        code = run(*words, "--out", "cut")
        said = capfd.readouterr()
        if code == 0:
            break
        assert code == 130 and "cut.unfinished, and the same command continues" in said.err
        assert not (place / "cut").exists()
    assert code == 0 and calls["write_start"] == ["pi:factor=2", "pi:factor=2", "nope", "nope"]
    assert not (place / "cut.unfinished").exists()
    for method in ("pi-factor-2", "nope"):
        names = sorted(path.name for path in (place / "whole" / method).iterdir())
        assert names == sorted(path.name for path in (place / "cut" / method).iterdir())
        for name in names:
            assert (place / "whole" / method / name).read_bytes() == (place / "cut" / method / name).read_bytes()
    assert changes_of("whole") == changes_of("cut")


@pytest.mark.medium
def test_unfinished_work_belongs_to_its_settings(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(unfinished, "write_start", interrupt)
        assert run("tiny", "--methods", "pi:factor=2", *MEASURED, *TUNED, "--out", "new") == 130
    assert "--learning-rate 0.003 instead of 0.001; name another" in refused(
        capfd, "tiny", "--methods", "pi:factor=2", *MEASURED, *TUNED[:-1], 0.001, "--out", "new"
    )
    assert "--methods pi:factor=2 instead of nope; --tune" in refused(
        capfd, "tiny", "--methods", "nope", *MEASURED, "--out", "new"
    )
    (place / "new.unfinished" / "retention.jsonl").unlink()
    expected = "new.unfinished is no unfinished work of lengthwise extend"
    assert expected in refused(capfd, "tiny", "--methods", "nope", *MEASURED, "--out", "new")


def test_an_incomplete_checkpoint_is_deleted(tmp_path: Path) -> None:
    for step, state in ((5, '{"global_step": 5}'), (10, '{"global_step": 10}'), (15, '{"global'), (20, None)):
        path = tmp_path / f"checkpoint-{step}"
        path.mkdir()
        if state is not None:
            (path / "trainer_state.json").write_text(state)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-5"]


@pytest.mark.slow
@pytest.mark.parametrize("lora", [[], ["--lora", "2"]], ids=["full", "lora"])
def test_a_killed_training_ends_with_the_same_weights(lora: list[str], place: Path) -> None:
    words = ["tiny", "--methods", "fire", *map(str, MEASURED), *map(str, TUNED), *lora, "--out"]
    words[words.index("--steps") + 1] = "24"

    command = [sys.executable, "-m", "lengthwise", "extend", *words, "cut"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoints, end = place / "cut.unfinished" / "work" / "fire" / "training", time.monotonic() + 200
    while time.monotonic() < end and process.poll() is None and not (checkpoints / "checkpoint-6").exists():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (checkpoints / "checkpoint-4" / "trainer_state.json").exists() and not (place / "cut").exists()
    for out in ("cut", "whole"):
        assert run(*words, out) == 0
    assert all(torch.equal(value, weights("whole")[name]) for name, value in weights("cut").items())
    assert changes_of("whole") == changes_of("cut")
    assert [row["train_losses"] for row in built("whole")] == [row["train_losses"] for row in built("cut")]


# ---- bad input ----------------------------------------------------------------------------------------------------


def refused(capfd: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command says about bad input, which is one line."""
    capfd.readouterr()
    assert run(*words) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("lengthwise: ") and said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tiny", "--methods", "yarn:factor=0.5"), "must be at least 1, got 0.5"),
        (("tiny", "--methods", "yran"), "no encoding 'yran'"),
        (("tiny", "--methods", "own"), "--methods names own, which is always measured"),
        (("tiny", "--methods", ""), "--methods is empty"),
        (("tiny", "--methods", "nope", "--lengths", "64k"), "--text text.txt has 7,"),
        (("tiny", "--methods", "nope", "--tasks", "needle"), "--tasks must contain text"),
        (("tiny", "--methods", "nope", "--tune", "text.txt"), "--tune and --text have the same content"),
        (("tiny", "--methods", "nope", "--tune", "tune.txt", "--length", "64k"), "--tune has 7,"),
        (("tiny", "--methods", "nope", "--tune", "none.txt"), "--tune none.txt cannot be read"),
        (("tiny", "--methods", "nope", "--tune", "tune.txt", "--dtype", "float16"), "not trained in float16"),
        (
            ("tiny", "--methods", "nope", "--tune", "tune.txt", "--learning-rate", "0"),
            "lengthwise: --learning-rate must be more than 0",
        ),
        (("tiny", "--methods", "nope", "--tune", "tune.txt", "--steps", "0"), "lengthwise: --steps must be from 1"),
        (("tiny", "--methods", "nope", "--tune", "tune.txt", "--lora", "0"), "lengthwise: --lora must be a rank"),
        (("tiny", "--methods", "nope", "--tune", ""), "--tune is empty; name a text file"),
        (("tiny", "--methods", "nope", "--batch-size", "0", "--tune", "tune.txt"), "lengthwise: --batch-size must be"),
        (("", "--methods", "nope"), ". has no config.json"),
        (("tiny", "--methods", "nope", "--steps", "9"), "--steps needs --tune"),
        (("tiny", "--methods", "nope", "--recompute"), "--recompute needs --tune"),
        (("tiny", "--methods", "nope", "--out", "tiny"), "tiny exists, and nothing is overwritten"),
        (("tiny", "--methods", "nope", "--out", "no/where"), "there is no folder"),
        (("missing", "--methods", "nope"), "missing does not exist"),
        (("mamba", "--methods", "nope"), "MambaModel has no attention layers"),
        (("images", "--methods", "nope"), "a gemma3 takes more than text"),
        (("empty", "--methods", "nope"), "empty has no config.json"),
        (("pickled", "--methods", "nope"), "a pickle can run code"),
        (("code", "--methods", "nope"), "code in the folder, auto_map, is never run"),
    ],
)
def test_bad_input(words: tuple[str, ...], message: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "empty").mkdir()
    if words[0] in ("mamba", "images"):
        folder(place / words[0], {"mamba": "mamba", "images": "gemma3"}[words[0]])
    shutil.copytree(place / "tiny", place / "pickled")
    (place / "pickled" / "model.safetensors").rename(place / "pickled" / "pytorch_model.bin")
    change(
        Path(shutil.copytree(place / "tiny", place / "code")), model_type="mine", auto_map={"AutoConfig": "mine.Mine"}
    )
    before = sorted(path.name for path in place.iterdir())
    out = () if "--out" in words else ("--out", "new")
    measured = MEASURED[:2] if {"--lengths"} & set(words) else MEASURED
    assert message in refused(capfd, *words, *measured, *out)
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.medium
def test_a_folder_with_our_encoding_is_extended_again(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("tiny", "--methods", "dynamicntk", *MEASURED, "--out", "new") == 0
    assert run("new", "--methods", "yarn:factor=2", *MEASURED, "--json", "--out", "again") == 0
    assert json.loads(Path("again/config.json").read_text())["model_type"] == "llama"
    assert run("tiny", "--methods", "nope", *MEASURED, "--out", "dropped") == 0
    said = refused(capfd, "dropped", "--methods", "yarn:factor=2", *MEASURED, "--out", "third")
    assert "the model has no positions in any layer, so YaRN(factor=2.0) would change nothing" in said


@pytest.mark.medium
def test_an_untested_version_of_transformers_has_one_warning(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", "6.1.0")
    assert run("tiny", "--methods", "nope", *MEASURED, "--out", "new") == 0
    assert capfd.readouterr().err.count("transformers 6.1.0 is not one of the tested versions, 5.14 to 5.24") == 1


@pytest.mark.medium
def test_a_training_without_memory_says_what_to_do(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lengthwise.extend import tune

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(tune._InOrder, "training_step", full)
    said = refused(capfd, "tiny", "--methods", "nope", *MEASURED, *TUNED, "--out", "new")
    assert "out of memory while nope was trained on 1 × 96 tokens; take a smaller --batch-size" in said
