"""Measure the evaluation of long text: its memory in parts, its time in parts, and the time of both protocols.

    python benchmarks/long_evaluation.py [--train-length 512] [--rounds 5]

The model is untrained: d_model 128, 4 layers, 4 heads, one thread. The text is the source of Python's standard library.

- `memory`: how much the resident memory of a fresh process grows by an evaluation at 8 and at 64 times the training
  length, with the default of 16,384 tokens in a forward pass, so that the longer one is evaluated in parts. `cache` is
  the size of the keys and values of the longer text. `ratio` is (growth at 64 times − cache) / growth at 8 times. All
  sizes are MB.
- `parts`: CPU time of an evaluation of 16 times the training length in parts of a quarter of the text, relative to one
  forward pass.
- `protocols`: CPU time of an evaluation at 1 to 16 times the training length with the same targets at every length
  (`targets`), relative to pieces of text. Both have the same number of tokens at the longest length.

Two evaluations are compared in turn in one process. A figure is the median over the rounds, with the range.
"""

import argparse
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from record import save

from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import Division, evaluate
from lengthwise.tasks import Text
from lengthwise.training import build

MODEL = ModelConfig(d_model=128, num_layers=4, num_heads=4)
NAMES = ("RoPE", "FIRE")
TIMES = (1, 2, 4, 8, 16)


def run_of(name: str, train_length: int, **settings: Any) -> Run:
    task = choose(Text, path="python:source", chunk=64 * train_length, **settings)
    return Run(
        encoding=ENCODINGS.parse(name), task=task, model=MODEL, training=TrainingConfig(train_length=train_length)
    )


def megabytes() -> float:
    """Return the highest resident memory of this process. (`ru_maxrss` would begin with that of the process that
    started it.)
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))


def growth(name: str, train_length: int, times: int, answer: Any) -> None:
    """Send how much the highest resident memory of this process rises by one evaluation, in MB."""
    torch.set_num_threads(1)
    model, task = build(run_of(name, train_length))
    length = times * train_length
    evaluate(model, task, EvaluationConfig(lengths=(train_length,), tokens=train_length))
    task.examples(0, 1, length)
    for baseline in task.baselines():
        baseline.scores(task.examples(0, 1, train_length), [train_length])
    before = megabytes()
    evaluate(model, task, EvaluationConfig(lengths=(length,), tokens=max(16_384, length)))
    answer.send(megabytes() - before)


def in_a_fresh_process(*arguments: Any) -> float:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=growth, args=(*arguments, theirs))
    process.start()
    theirs.close()
    value = float(ours.recv())
    process.join()
    return value


def memory(name: str, train_length: int, rounds: int) -> dict[str, float]:
    cache = MODEL.num_layers * 2 * 64 * train_length * MODEL.d_model * 4 / 1e6
    pairs = [[in_a_fresh_process(name, train_length, times) for times in (8, 64)] for _ in range(rounds)]
    ratios = [(long - cache) / short for short, long in pairs]
    short, long = (statistics.median(pair[n] for pair in pairs) for n in (0, 1))
    return {"short": short, "long": long, "cache": cache, **summary(ratios)}


def seconds(name: str, train_length: int, config: EvaluationConfig, batch_tokens: int, **settings: Any) -> Any:
    model, task = build(run_of(name, train_length, **settings))

    def measured() -> float:
        begin = time.process_time()
        evaluate(model, task, config, division=Division(batch_tokens))
        return time.process_time() - begin

    return measured


def summary(ratios: list[float]) -> dict[str, float]:
    return {"ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios)}


def ratios(one: Any, other: Any, rounds: int) -> dict[str, float]:
    """Return how long `one` takes relative to `other`."""
    one(), other()
    return summary([one() / other() for _ in range(rounds)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train_length, figures = args.train_length, {}
    for name in NAMES:
        long = 16 * train_length
        whole = EvaluationConfig(lengths=(long,), tokens=2 * long)
        parts = ratios(
            seconds(name, train_length, whole, long // 4), seconds(name, train_length, whole, long), args.rounds
        )
        lengths = tuple(train_length * times for times in TIMES)
        both = EvaluationConfig(lengths=lengths, tokens=128 * train_length)
        protocols = ratios(
            seconds(name, train_length, both, 16_384, targets=64),
            seconds(name, train_length, both, 16_384),
            args.rounds,
        )
        rows = {"memory": memory(name, train_length, args.rounds), "parts": parts, "protocols": protocols}
        figures[name] = rows
        print(f"{name}: {rows}", flush=True)
    save("long_evaluation", figures)


if __name__ == "__main__":
    main()
