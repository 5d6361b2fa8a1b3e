"""How files are written: their permissions, and what a kill leaves."""

import json
import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ALiBi
from lengthwise.tasks import Copy
from lengthwise.training import train
from lengthwise.training.tensor_file import read

RUN = Run(
    encoding=choose(ALiBi),
    task=choose(Copy, symbols=4),
    model=ModelConfig(d_model=8, num_layers=1, num_heads=2),
    training=TrainingConfig(train_length=3, steps=6, batch_size=4),
)


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
