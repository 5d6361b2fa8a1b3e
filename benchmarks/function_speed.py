"""Measure the time to generate data of functions to learn in context, relative to a training step.

    python benchmarks/function_speed.py [--rounds 7] [--layers 16] [--names Conjunction,CNF]

For each class of functions: one batch of 64 prompts of 50 examples in 16 dimensions, including the conversion to
vectors. The training step (forward, backward, AdamW) is that of the published model: like Llama, 16 layers, width 256,
8 heads, ALiBi, 100 tokens. One thread, CPU time. Each round takes one step, and then the median of 5 batches of every
class. The figures are the median and the range of the ratios. A class may take at most 3 % of the step.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import get_args

import torch
from record import save

from lengthwise.config import ModelConfig, choose
from lengthwise.encodings import ALiBi
from lengthwise.models import Decoder
from lengthwise.tasks import TASKS, LinearRegression, generator
from lengthwise.tasks.functions import FunctionTask
from lengthwise.tasks.functions.regression import Inputs

PROMPTS, EXAMPLES, DIMS = 64, 50, 16
MOST = 0.03


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--names", help="only these classes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    makes = [make for make in TASKS if issubclass(make, FunctionTask)]
    if args.names:
        makes = [make for make in makes if make.__name__ in args.names.split(",")]
    tasks = {make.__name__: make(dims=DIMS) for make in makes}
    # Inputs at right angles have no prompt of 50 examples in 16 dims.
    others = [kind for kind in get_args(Inputs) if kind not in ("normal", "orthogonal")]
    if not args.names:
        tasks |= {f"LinearRegression, {kind}": LinearRegression(dims=DIMS, inputs=kind) for kind in others}
    draws = generator(0)
    torch.manual_seed(0)
    config = ModelConfig.llama(d_model=256, num_layers=args.layers, num_heads=8, d_ff=1024)
    model = Decoder(config, choose(ALiBi), vocab_size=None, input_width=DIMS, output_size=1, train_length=2 * EXAMPLES)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    reader = LinearRegression(dims=DIMS)
    batch = reader.sample(draws, PROMPTS, EXAMPLES)

    def step() -> None:
        reader.loss(model(batch.inputs), batch).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def data(task: FunctionTask) -> float:
        return statistics.median(
            seconds(lambda: task.training_batch(draws, PROMPTS, EXAMPLES, EXAMPLES)) for _ in range(5)
        )

    step()
    for task in tasks.values():
        data(task)
    steps: list[float] = []
    drawn: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(args.rounds):
        steps.append(seconds(step))
        for name, task in tasks.items():
            drawn[name].append(data(task))
    print(f"a step: {statistics.median(steps):.2f} s ({min(steps):.2f} - {max(steps):.2f})")
    figures: dict[str, dict[str, float]] = {"step": {"seconds": statistics.median(steps)}}
    for name, times in drawn.items():
        ratios = [took / of for took, of in zip(times, steps, strict=True)]
        figures[name] = {
            "milliseconds": 1000 * statistics.median(times),
            "median": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }
        late = "" if max(ratios) < MOST else f"  MORE THAN {MOST:.0%}"
        print(
            f"{name:<34}{1000 * statistics.median(times):8.2f} ms {statistics.median(ratios):8.3%} of a step "
            f"({min(ratios):.3%} - {max(ratios):.3%}){late}",
            flush=True,
        )
    save("function_speed", figures)


if __name__ == "__main__":
    main()
