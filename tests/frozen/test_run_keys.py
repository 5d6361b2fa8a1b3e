"""The keys of runs, as recorded in run_keys.json: they find stored results, so a key that changes loses its results."""

import dataclasses
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import (
    Choice,
    Curriculum,
    ModelConfig,
    Run,
    TrainingConfig,
    alternate,
    choose,
)
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, FIRE, T5, NoPE, RoPE, SSMax, YaRN
from lengthwise.positions import POSITION_SCHEMES, Randomized
from lengthwise.studies import continued, grid, load
from lengthwise.studies.shipped import shipped_studies
from lengthwise.tasks import SCAN, TASKS, Addition, Copy, Glue, LinearRegression, Text
from tests.frozen.comparison import load as load_record

LINES = "Call me Ishmael. Some years ago, never mind how long precisely, I thought I would sail about a little.\n" * 40
TRAINING = TrainingConfig(train_length=8)


def run(**settings: Any) -> Run:
    return Run(**{"encoding": choose(RoPE), "task": choose(Copy), "training": TRAINING, **settings})


def trained(**settings: Any) -> Run:
    return run(training=TrainingConfig(train_length=8, **settings))


def built_in_classes(folder: Path) -> dict[str, dict[str, Run]]:
    """Return a run with the default settings of every encoding, task, position scheme and mixer."""
    text = folder / "text.txt"
    text.write_text(LINES, encoding="utf-8")
    tasks = {make.__name__: choose(make) for make in TASKS if make is not Text} | {"Text": choose(Text, path=str(text))}
    return {
        "encodings": {make.__name__: run(encoding=choose(make)) for make in ENCODINGS},
        "tasks": {name: run(task=task) for name, task in tasks.items()},
        "position schemes": {make.__name__: trained(positions=choose(make)) for make in POSITION_SCHEMES},
        "mixers": {name: run(encoding=choose(NoPE), model=ModelConfig(mixer=name)) for name in MIXERS},
    }


def with_settings() -> dict[str, Run]:
    """Return runs that differ from the defaults in every kind of setting."""
    window, nope = choose(RoPE, window=512), choose(NoPE, temperature=choose(SSMax), sinks=True)
    rope, yarn = run(), choose(YaRN, factor=4.0)
    return {
        "encoding: settings": run(encoding=choose(FIRE, hidden_layers=1, L=256.0)),
        "encoding: pattern": run(encoding=alternate(window, window, window, nope)),
        "encoding: sinks": run(encoding=choose(T5, sinks=True)),
        "encoding: own for each layer": run(encoding=choose(T5), model=ModelConfig(share_encoding=False)),
        "encoding: shared": run(encoding=choose(FIRE), model=ModelConfig(share_encoding=True)),
        "task: settings": run(task=choose(Copy, symbols=200, pattern="repeated")),
        "task: scratchpad": run(task=choose(Addition, scratchpad="minimal")),
        "task: digits": run(task=choose(Addition, pad=True, hints=10, reverse=True, reverse_operands=True)),
        "task: split": run(task=choose(SCAN, split="tr25")),
        "task: one of several": run(task=choose(Glue, tasks="rte+cola")),
        "model: Llama": run(model=ModelConfig.llama(d_model=64, num_kv_heads=2, qk_norm=True)),
        "model: T5": run(model=ModelConfig.t5(d_model=64, num_layers=2, dropout=0.1)),
        "model: Mamba": run(encoding=choose(NoPE), model=ModelConfig.mamba(d_model=64, state_size=8)),
        "training: optimizer": trained(steps=99, learning_rate=3e-3, schedule="linear", warmup=0.1, weight_decay=0.1,
                                       clip=0.5),
        "training: batches": trained(batch_size=64, accumulation=4, min_length=2),
        "training: positions": trained(positions=choose(Randomized, max_length=64)),
        "training: fixed set": trained(train_examples=100, data_seed=3),
        "training: bfloat16": trained(precision="bfloat16"),
        "training: curriculum": run(
            task=choose(LinearRegression, dims=4),
            training=TrainingConfig(train_length=8, curriculum=Curriculum(every=100, length=2, dims=1)),
        ),
        "seed": run(seed=7),
        "parent: evaluated": run(encoding=yarn, training=TrainingConfig(train_length=8, steps=0), parent=rope),
        "parent: trained": run(encoding=yarn, training=TrainingConfig(train_length=32, steps=10), parent=rope),
    }  # fmt: skip


def from_text(folder: Path) -> dict[str, Run]:
    """Return the runs of a grid whose encodings, tasks and position schemes are spelled as on the command line."""
    model = ModelConfig(d_model=64, num_layers=4, num_heads=4)
    runs = grid(
        ["nope", "fire-s", "fire:hidden_layers=1", "rope(window=512)*3+nope(temperature=ssmax)"],
        ["copy:symbols=20", f"text:path={folder / 'text.txt'},targets=4"],
        2,
        model=model,
        training={"copy": TRAINING, "text": TrainingConfig(train_length=64, steps=10)},
        positions=["consecutive", "randomized:max_length=4096"],
    )
    runs = (*runs, *continued(runs[:1], ["alibi"], steps=0))
    return {f"{run.label}, {run.task.label}, seed {run.seed}": run for run in runs}


def study_keys(name: str) -> list[Any]:
    """Return the number of runs of a shipped study, and a hash of their keys in order."""
    keys = [with_the_same_text(run).key for run in load(name).runs]
    return [len(keys), hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]]


def with_the_same_text(run: Run) -> Run:
    """Return a run whose text has the same hash with every version of Python, whose standard library is the text of
    studies.
    """

    def same(task: Choice) -> Choice:
        return choose(Text, **{**dict(task.settings), "sha256": "0" * 64}) if task.cls is Text else task

    parent = None if run.parent is None else with_the_same_text(run.parent)
    return dataclasses.replace(run, task=same(run.task), parent=parent)


def record() -> dict[str, Any]:
    """Return what run_keys.json is to contain."""
    with tempfile.TemporaryDirectory() as folder:
        return current_keys(Path(folder)) | {"studies": {name: study_keys(name) for name in shipped_studies()}}


def current_keys(folder: Path) -> dict[str, dict[str, str]]:
    runs = {**built_in_classes(folder), "settings": with_settings(), "from text": from_text(folder)}
    return {kind: {name: run.key for name, run in named.items()} for kind, named in runs.items()}


RECORDED = load_record("run_keys")


def test_keys_are_the_recorded_ones(tmp_path: Path) -> None:
    current = current_keys(tmp_path)
    for kind, named in current.items():
        added = named.keys() - RECORDED[kind].keys()
        assert not added, f"after adding {added}: python -m tests.frozen.record run_keys"
    assert current == {kind: RECORDED[kind] for kind in current}
    keys = [key for named in current.values() for key in named.values()]
    same = {"RoPE", "Copy", "Consecutive"}  # the run with all defaults
    assert len(set(keys)) == len(keys) - (len(same) - 1), "two different runs have the same key"


def test_every_shipped_study_is_recorded() -> None:
    expected = list(shipped_studies())
    assert list(RECORDED["studies"]) == expected, "after adding a study: python -m tests.frozen.record run_keys"


@pytest.mark.parametrize("name", shipped_studies())
def test_the_runs_of_a_study_have_the_recorded_keys(name: str) -> None:
    assert study_keys(name) == RECORDED["studies"][name]


def test_a_default_that_changes_a_little_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RECORDED["encodings"]["FIRE"]
    assert run(encoding=choose(FIRE)).key == recorded
    assert run(encoding=choose(FIRE, c=0.1001)).key != recorded
    monkeypatch.setattr(FIRE, "version", FIRE.version + 1)
    assert run(encoding=choose(FIRE)).key != recorded
