"""Measure training steps of two processes with one thread each, relative to one with two threads on the same batches.

    python benchmarks/several_devices.py [--steps 8] [--rounds 5] [--save]

Text of 256 bytes, d_model 256, 4 layers, batch 32, on two CPU cores; the two processes are connected by gloo over the
loopback interface. Each round measures the wall time of a few whole training steps of one process, of two processes
with DDP, and of two processes with FSDP2, in this order. The figures are the median and the range of the ratios of the
rounds. Close other programs.
"""

import argparse
import os
import statistics
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from record import save

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, NoPE, RoPE
from lengthwise.studies.ranks import join
from lengthwise.tasks import Text
from lengthwise.training import build
from lengthwise.training.numerics import reproducible, use_process
from lengthwise.training.ranks import Ranks
from lengthwise.training.trainer import Trainer

ENCODINGS = {"NoPE": NoPE, "RoPE": RoPE, "FIRE": FIRE}
SHARDINGS = ("ddp", "fsdp")


def run_of(encoding: Any) -> Run:
    return Run(
        encoding=choose(encoding),
        task=choose(Text),
        model=ModelConfig(d_model=256, num_layers=4, num_heads=4),
        training=TrainingConfig(train_length=256, steps=10_000, batch_size=32),
    )


def trainer_of(encoding: Any, ranks: Ranks) -> Trainer:
    run = run_of(encoding)
    trainer = Trainer(run, *build(run), torch.device("cpu"), ranks=ranks)
    trainer.model.train()
    return trainer


def seconds(trainer: Trainer, steps: int) -> float:
    begin = time.perf_counter()
    with reproducible(torch.device("cpu")):
        for _ in range(steps):
            trainer.step()
    return time.perf_counter() - begin


def serve(pipe: Connection, rendezvous: str, rank: int, steps: int) -> None:
    """Take steps with the asked encoding and sharding, and send their seconds."""
    use_process(1)
    join("cpu", torch.distributed.FileStore(rendezvous, 2), rank, 2, on_one_machine=True)
    trainers: dict[tuple[str, str], Trainer] = {}
    while True:
        name, sharding = pipe.recv()
        if (name, sharding) not in trainers:
            trainers[name, sharding] = trainer_of(ENCODINGS[name], Ranks(rank, 2, sharding))
            seconds(trainers[name, sharding], 1)
        torch.distributed.barrier()
        pipe.send(seconds(trainers[name, sharding], steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="store the figures in benchmarks/results/")
    args = parser.parse_args()
    use_process(2)
    context, pipes, processes, figures = get_context("spawn"), [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(2):
            pipe, child_pipe = context.Pipe()
            arguments = child_pipe, os.path.join(folder, "rendezvous"), rank, args.steps
            processes.append(context.Process(target=serve, args=arguments, daemon=True))
            processes[-1].start()
            pipes.append(pipe)
        for name, encoding in ENCODINGS.items():
            alone = trainer_of(encoding, Ranks())
            seconds(alone, 1)
            ratios: dict[str, list[float]] = {sharding: [] for sharding in SHARDINGS}
            for _ in range(args.rounds):
                one = seconds(alone, args.steps)
                for sharding in SHARDINGS:
                    for pipe in pipes:
                        pipe.send((name, sharding))
                    ratios[sharding].append(max(pipe.recv() for pipe in pipes) / one)
            for sharding, found in ratios.items():
                row = {"ratio": statistics.median(found), "ratio_low": min(found), "ratio_high": max(found)}
                figures[f"{name}, {sharding}"] = row | {"one_process_step": one / args.steps}
                print(f"{name:<5} {sharding:<5} {row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})")
        for process in processes:
            process.kill()
    if args.save:
        save("several_devices", figures)


if __name__ == "__main__":
    main()
