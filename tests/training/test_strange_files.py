"""Whole files with strange content in the place of a checkpoint or of weights: each is answered in one line."""

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ALiBi
from lengthwise.tasks import Copy
from lengthwise.training import CheckpointError, Stopped, load_weights, train
from lengthwise.training.tensor_file import read, write

RUN = Run(
    encoding=choose(ALiBi),
    task=choose(Copy, symbols=4),
    model=ModelConfig(d_model=8, num_layers=1, num_heads=2),
    training=TrainingConfig(train_length=3, steps=6, batch_size=4),
)


def stopped_at(step: int, place: Path) -> None:
    count = iter(range(step + 1))
    with pytest.raises(Stopped):
        train(RUN, place, checkpoint_every=1, should_stop=lambda: next(count) == step)


def odd_facts() -> list[tuple[str, Any]]:
    """(a fact, what it becomes; None: it is left out)"""
    texts = [None, "", "null", "[]", "3", "{", "[" * 100_000, "{}", '{"step": "3"}', '{"step": 10}', '{"step": -1}']
    texts += ['{"step": 3, "seconds": [], "busy": 1.0}', '{"step": 3}']
    return [(name, text) for name in ("format", "key", "made_with", "state") for text in texts]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stopped")
    stopped_at(3, place)
    return place / "checkpoint-00000003.safetensors"


@pytest.mark.parametrize(("name", "text"), odd_facts(), ids=lambda value: str(value)[:30])
def test_strange_facts_of_a_checkpoint(tmp_path: Path, checkpoint: Path, name: str, text: str | None) -> None:
    shutil.copy(checkpoint, tmp_path)
    change(tmp_path / "checkpoint-00000003.safetensors", facts=lambda facts: put(facts, name, text))
    answered(lambda: train(RUN, tmp_path))


def odd_tensors() -> dict[str, Callable[[dict[str, Any]], None]]:
    def first(part: str) -> Callable[[dict[str, Any]], str]:
        return lambda tensors: next(name for name in tensors if name.startswith(part))

    def replaced(part: str, value: torch.Tensor) -> Callable[[dict[str, Any]], None]:
        return lambda tensors: tensors.update({first(part)(tensors): value})

    return {
        "none": lambda tensors: tensors.clear(),
        "of no part": lambda tensors: tensors.update({"elsewhere": torch.ones(1)}),
        "one less": lambda tensors: tensors.pop(first("model/")(tensors)),
        "a model's of another shape": replaced("model/", torch.ones(7)),
        "a model's of another type": lambda tensors: tensors.update(
            {first("model/")(tensors): tensors[first("model/")(tensors)].to(torch.complex64)}
        ),
        "no history": lambda tensors: (
            [tensors.pop(name) for name in list(tensors) if name.startswith("history/")] and None
        ),
        "a history of another shape": replaced("history/", torch.ones(7)),
        "moments of another shape": replaced("optimizer/exp_avg:", torch.ones(7)),
        "moments of no parameter": lambda tensors: tensors.update({"optimizer/exp_avg:nobody": torch.ones(1)}),
        "moments of no kind": lambda tensors: tensors.update({"optimizer/x": torch.ones(1)}),
        "a count less": lambda tensors: tensors.pop(first("optimizer/step:")(tensors)),
    }


@pytest.mark.parametrize("what", odd_tensors())
def test_strange_tensors_of_a_checkpoint(tmp_path: Path, what: str) -> None:
    stopped_at(3, tmp_path)
    change(tmp_path / "checkpoint-00000003.safetensors", tensors=odd_tensors()[what])
    answered(lambda: train(RUN, tmp_path))


@pytest.mark.parametrize(
    "text",
    [None, "", "null", "[]", "{}", '{"curve": [], "seconds": 1, "parameters": 1, "backend": 3, "loop_overhead": 0}',
     '{"curve": [{"step": "x"}], "seconds": 1, "parameters": 1, "backend": "", "loop_overhead": 0}',
     '{"curve": [], "seconds": 1, "parameters": 1, "backend": "", "loop_overhead": 0, "tracked": {}, "peak_memory": "1"}'],
)  # fmt: skip
def test_strange_facts_of_weights(tmp_path: Path, text: str | None) -> None:
    train(RUN, tmp_path)
    change(tmp_path / "weights.safetensors", facts=lambda facts: put(facts, "trained", text))
    with pytest.raises(CheckpointError):
        load_weights(tmp_path, RUN)
    with pytest.warns(UserWarning, match="the run is trained again"):
        train(RUN, tmp_path)


def put(facts: dict[str, str], name: str, text: str | None) -> None:
    facts.pop(name)
    if text is not None:
        facts[name] = text


def change(path: Path, facts: Any = None, tensors: Any = None) -> None:
    """Write a file again, whole and with a checksum, with something else in it."""
    old_tensors, old_facts = read(path)
    if facts is not None:
        facts(old_facts)
    if tensors is not None:
        tensors(old_tensors)
    write(path, old_tensors, old_facts)


def answered(call: Callable[[], object]) -> None:
    """It works in spite of it, or is one plain line."""
    said = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except CheckpointError as error:
            said = str(error)
    assert "\n" not in said


# ---- what is written ----------------------------------------------------------------------------------------------


def test_files_have_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        train(RUN, tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "weights.safetensors").stat().st_mode) == 0o640


WRITER = """
import sys, torch
from pathlib import Path
from lengthwise.training.tensor_file import write
tensors = {"w": torch.zeros(16_000_000)}
print("ready", flush=True)
while True:
    write(Path(sys.argv[1], "weights.safetensors"), tensors, {"x": "1"})
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_that_stays(tmp_path: Path) -> None:
    """64 MB at a time, so that most of the time goes into writing; killed as soon as a temporary file is there."""
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        end = time.monotonic() + 30
        while not [p for p in tmp_path.iterdir() if p.name.startswith(".")] and time.monotonic() < end:
            time.sleep(0.001)
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")], "no kill came while a file was written"
    (tmp_path / "weights.safetensors").unlink(missing_ok=True)
    train(RUN, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
    assert json.loads(read(tmp_path / "weights.safetensors")[1]["trained"])["parameters"] > 0
