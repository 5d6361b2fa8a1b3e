"""Measure how many examples per second each sequence task generates at length 20, on one core.

    python benchmarks/task_speed.py [--length 20] [--batches 64,1024] [--rounds 7] [--names Copy,Sorting]

If a split has no examples of that length, its largest shorter length is used. Each round calls `task.sample(...)`
(random examples of the split as a batch of tokens) or, for "asked", `task.examples(...)` (different examples of the
test split, as in an evaluation), for 0.05 s of the process' CPU time with one thread. The figures are the median and
the range over the rounds, with splits and batch sizes in turn. Lists of examples that a task stores are created before.
"""

import argparse
import statistics
import time

import torch
from record import save

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import TASKS, generator
from lengthwise.tasks.sequences import SequenceTask

OTHERS = {  # settings that make other work than the defaults
    "Copy": [{"times": 2}, {"pattern": "repeated"}, {"pattern": "replaced"}],
    "Reverse": [{"answer": "back"}],
    "Sorting": [{"items": "numbers"}],
    "SCAN": [{"split": "tr25"}],
}
SPLITS = ("train", "test", "asked")


def longest(task: SequenceTask, length: int, split: str) -> int | None:
    """The longest length up to this one that the split has."""
    for n in range(length, 0, -1):
        try:
            task.check_length(n, "test" if split == "asked" else split)
        except ConfigError:
            continue
        return n
    return None


def rate(task: SequenceTask, length: int, split: str, batch: int, seconds: float = 0.05) -> float:
    draws, done, start = generator(0, split), 0, time.process_time()
    while (spent := time.process_time() - start) < seconds:
        done += len(
            task.examples(done, batch, length) if split == "asked" else task.sample(draws, batch, length, split)
        )
    return done / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--batches", default="64,1024")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--names", help="only these tasks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    batches = [int(batch) for batch in args.batches.split(",")]
    makes = [make for make in TASKS if issubclass(make, SequenceTask)]
    if args.names:
        makes = [make for make in makes if make.__name__ in args.names.split(",")]
    figures = {}
    print(f"{'':<34}{'split':>6}{'length':>8}" + "".join(f"{f'batch {batch}':>38}" for batch in batches))
    for choice in [choose(make, **settings) for make in makes for settings in [{}, *OTHERS.get(make.__name__, [])]]:
        task = choice.build()
        lengths = {split: longest(task, args.length, split) for split in SPLITS}
        there = {split: length for split, length in lengths.items() if length is not None}
        rates: dict[tuple[str, int], list[float]] = {(split, batch): [] for split in there for batch in batches}
        for split, batch in rates:
            task.sample(generator(0), batch, there[split], "test" if split == "asked" else split)
        for _ in range(args.rounds):
            for split, batch in rates:
                rates[split, batch].append(rate(task, there[split], split, batch))
        for split, length in there.items():
            found = {batch: rates[split, batch] for batch in batches}
            figures[f"{choice.label}, {split}"] = {"length": length} | {
                f"batch {batch}": {"median": statistics.median(r), "low": min(r), "high": max(r)}
                for batch, r in found.items()
            }
            cells = "".join(
                f"{f'{statistics.median(r):,.0f} /s ({min(r):,.0f} - {max(r):,.0f})':>38}" for r in found.values()
            )
            print(f"{choice.label:<34}{split:>6}{length:>8}{cells}", flush=True)
    save("task_speed", figures)


if __name__ == "__main__":
    main()
