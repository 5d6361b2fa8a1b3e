"""kill -9 at random moments changes no bit of the result."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is Unix")

# Dropout, accumulation, random lengths, a learned encoding: everything that could have state. Steps of a few
# milliseconds with a checkpoint after each or every fourth, so that a good part of the kills hit the writing of one.
WORKER = """
    import hashlib
    from pathlib import Path
    from lengthwise.config import *
    from lengthwise.encodings import FIRE
    from lengthwise.tasks import Copy
    from lengthwise.evaluation import evaluate
    from lengthwise.training import train

    def work(folder, steps, every):
        run = Run(
            encoding=choose(FIRE),
            task=choose(Copy, symbols=5),
            model=ModelConfig(d_model=16, num_layers=2, num_heads=2, dropout=0.1),
            training=TrainingConfig(train_length=6, min_length=2, steps=steps, batch_size=8, accumulation=2),
        )
        say = lambda p: print("step", p.step, flush=True)
        trained = train(run, Path(folder), checkpoint_every=every, on_progress=say)
        sha = hashlib.sha256()
        for name, t in sorted(trained.model.state_dict().items()):
            sha.update(t.numpy().tobytes())
        config = EvaluationConfig(lengths=(6, 12), examples=32)
        scores = [s.mean.hex() for s in evaluate(trained.model, trained.task, config)]
        return sha.hexdigest(), scores, [row["loss"] for row in trained.curve]
"""


def start(folder, steps, every):
    code = f"{textwrap.dedent(WORKER)}\nwork({str(folder)!r}, {steps}, {every})"
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # the bits are the same for one number of threads
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
    )


def finish(folder, steps, every):
    """The result, from this process."""
    names: dict = {}
    exec(textwrap.dedent(WORKER), names)
    return names["work"](folder, steps, every)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_kills_at_random_moments_change_no_bit(tmp_path):
    steps = 800
    whole = finish(tmp_path / "whole", steps, 1000)
    chance, folder, moments, half_written = random.Random(0), tmp_path / "killed", [], 0
    while len(moments) < 10:
        process = start(folder, steps, chance.choice([1, 4]))
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("step"), f"finished before the kills were over: {moments}"
        time.sleep(chance.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL, "finished before it was killed"
        moments.append(int([first, *rest.splitlines()][-1].split()[1]))
        half_written += any(p.name.startswith(".lengthwise-") for p in folder.iterdir())
    assert finish(folder, steps, 1000) == whole
    assert sorted(p.name for p in folder.iterdir()) == ["weights.safetensors"]
    assert moments[-1] > moments[0], "every start began from nothing"
    print(f"killed near steps {moments}; {half_written} times while a checkpoint was being written")
