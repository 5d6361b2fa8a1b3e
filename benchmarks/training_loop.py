"""Measure the overhead of the training loop: the share of a step outside the forward pass, backward pass and optimizer.

    python benchmarks/training_loop.py [--steps 60] [--rounds 3]

This runs `training.train` with checkpoints and progress reports, on the built-in text (T 128) and on copy (128 tokens):
d_model 128, 4 layers, batch 32, one thread. The share comes from monotonic clocks around the three parts of each step.
The figures are the median and the range over the rounds.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from record import save

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, NoPE
from lengthwise.tasks import Copy, Text
from lengthwise.training import train

CASES = {
    "Text, NoPE": (Text, 128, NoPE),
    "Text, FIRE": (Text, 128, FIRE),
    "Copy, NoPE": (Copy, 63, NoPE),
    "Copy, FIRE": (Copy, 63, FIRE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    for name, (task, length, encoding) in CASES.items():
        shares, rates = [], []
        for seed in range(args.rounds):
            run = Run(
                encoding=choose(encoding),
                task=choose(task),
                model=ModelConfig(d_model=128, num_layers=4, num_heads=4),
                training=TrainingConfig(train_length=length, steps=args.steps, batch_size=32),
                seed=seed,
            )
            with tempfile.TemporaryDirectory() as folder:
                done = train(run, Path(folder), checkpoint_seconds=5.0, on_progress=lambda progress: None)
            shares.append(done.loop_overhead)
            rates.append(args.steps / done.seconds)
        figures[name] = {
            "overhead": statistics.median(shares),
            "low": min(shares),
            "high": max(shares),
            "steps_per_second": statistics.median(rates),
        }
        f = figures[name]
        print(
            f"{name:<12} {f['overhead']:.1%} outside ({f['low']:.1%} - {f['high']:.1%}), {f['steps_per_second']:.1f} "
            "steps/s"
        )
    save("training_loop", figures)


if __name__ == "__main__":
    main()
