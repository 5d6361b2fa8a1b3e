"""Measure the effect of torch.compile on the time and the peak memory of a training step.

    python benchmarks/compiled_decoder.py [--lengths 128] [--pairs 8] [--names NoPE,RoPE,FIRE]

The model, data and step are those of training_step.py, with one thread and `model.compile(dynamic=True,
fullgraph=True)` (inductor). Times are CPU times of whole steps in the order eager, compiled, eager; the figures are the
median and the range of the ratios. Memory is measured as in training_step.py, after compilation. The time of
compilation is the wall time of the first step, and of the first step at another length.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
from record import save
from training_step import Step, resident

NAMES = "NoPE,RoPE,ALiBi,T5,FIRE"


def compiled(name: str, length: int) -> Step:
    step = Step(name, length)
    step.model.compile(dynamic=True, fullgraph=True)
    return step


def memory(name: str, length: int, compile_it: bool) -> float:
    """Peak MiB of a step above the state before it, in this process."""
    step = compiled(name, length) if compile_it else Step(name, length)
    whole = step.tokens
    step.tokens = whole[:, : length // 2]  # makes the graph, and what is as large as the model
    step()
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest resident memory begins anew
    step.tokens = whole
    step()
    return (resident("VmHWM") - before) / 1024


def seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="128")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--names", default=NAMES)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if args.memory_of:
        name, _, how = args.memory_of.partition("/")
        print(json.dumps(memory(name, int(args.lengths), how == "compiled")))
        return
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for length in map(int, args.lengths.split(",")):

        def peak(name: str, how: str, length: int = length) -> float:
            command = [sys.executable, __file__, "--lengths", str(length), "--memory-of", f"{name}/{how}"]
            return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

        print(
            f"\nT {length}\n{'compiled of eager':<20}{'time':>6}{'range':>14}{'memory':>9}{'first step':>13}"
            f"{'new length':>13}"
        )
        rows: dict[str, dict[str, float]] = {}
        for name in args.names.split(","):
            torch.compiler.reset()
            plain, fast = Step(name, length), compiled(name, length)
            first, whole = seconds(fast), fast.tokens
            fast.tokens = whole[:, : length // 2]
            other, fast.tokens = seconds(fast), whole
            plain()
            ratios, times = [], []
            for _ in range(args.pairs):
                a, x, b = plain(), fast(), plain()
                ratios.append(2 * x / (a + b))
                times += [a, b]
            rows[name] = r = {
                "time": statistics.median(ratios),
                "time_low": min(ratios),
                "time_high": max(ratios),
                "memory": peak(name, "compiled") / peak(name, "eager"),
                "first_step_seconds": first,
                "new_length_seconds": other,
                "eager_seconds": statistics.median(times),
            }
            spread = f"{r['time_low']:.2f}-{r['time_high']:.2f}"
            print(
                f"{name:<20}{r['time']:>6.2f}{spread:>14}{r['memory']:>9.2f}{first:>11.1f} s{other:>11.2f} s",
                flush=True,
            )
        figures[f"T {length}"] = rows
    save("compiled_decoder", figures)


if __name__ == "__main__":
    main()
