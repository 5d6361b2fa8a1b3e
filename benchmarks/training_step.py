"""Measure a training step and its peak memory with each encoding, and a step on several threads beside transformers.

python benchmarks/training_step.py [--parts encodings,threads] [--lengths 128,512] [--pairs 8]

encodings  each encoding relative to the same model without encoding: d_model 128, 4 layers, 4 heads, batch 32, bytes,
           one thread. Times are CPU times of whole steps (forward, backward, optimizer) in the order NoPE, X, NoPE; the
           figures are the median and the range of the ratios. Memory is the peak resident memory of a new process,
           minus its memory before the first step
threads    a model like Llama (6 layers, width 256, 8 heads, d_ff 1024, 2,048 tokens a step as vectors) on one thread,
           two, and so on up to the machine's cores: with RoPE, relative to the same model with the same weights in
           transformers with SDPA, and with FIRE, relative to that model too. Wall time of whole steps in turn. Needs
           `pip install '.[outside]'`
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attention import spread, table, thread_counts, whole_numbers
from record import save

from lengthwise.config import ModelConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.models import Decoder
from lengthwise.training.numerics import use_process

NAMES = ("FIRE", "FIRE:hidden_layers=1", "FIRE:activation=gelu", "KerpleLog", "T5", "ALiBi", "RoPE", "Sinusoidal")
BATCH, VOCABULARY = 32, 257
TRANSFORMERS = "transformers, SDPA"
Figures = dict[str, Any]


class Step:
    """One training step of one encoding, on its own model and data."""

    def __init__(self, name: str, length: int):
        torch.manual_seed(0)
        config = ModelConfig(d_model=128, num_layers=4, num_heads=4)
        choice = ENCODINGS.parse(name)
        self.model = Decoder(config, choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=length)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.tokens = torch.randint(0, VOCABULARY, (BATCH, length + 1))

    def __call__(self) -> float:
        start = time.process_time()
        logits = self.model(self.tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten()).backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return time.process_time() - start


def memory(name: str, length: int) -> float:
    """Peak MiB above the state before the first step, in this process."""
    step = Step(name, length)
    before = resident("VmRSS")
    step()
    step()
    return (resident("VmHWM") - before) / 1024


def resident(field: str) -> int:
    """KiB from /proc (Linux): VmRSS now, VmHWM at most so far. getrusage would count the parent's memory
    before exec.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def encodings(args: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for length in args.lengths:

        def peak(name: str, length: int = length) -> float:
            command = [sys.executable, __file__, "--lengths", str(length), "--memory-of", name]
            return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

        steps = {name: Step(name, length) for name in ("NoPE", *NAMES)}
        for step in steps.values():
            step()
        base, plain = peak("NoPE"), []
        rows: dict[str, dict[str, float]] = {}
        for name in NAMES:
            ratios = []
            for _ in range(args.pairs):
                a, x, b = steps["NoPE"](), steps[name](), steps["NoPE"]()
                ratios.append(2 * x / (a + b))
                plain += [a, b]
            rows[name] = {
                "time": statistics.median(ratios),
                "time_low": min(ratios),
                "time_high": max(ratios),
                "memory": peak(name) / base,
            }
        rows["NoPE"] = {"seconds": statistics.median(plain), "peak_mib": base}
        figures[f"T {length}"] = rows
        print(f"\nT {length}: NoPE {rows['NoPE']['seconds'] * 1e3:.0f} ms a step, peak {base:.0f} MiB")
        print(f"{'of NoPE':<24}{'time':>7}{'range':>16}{'memory':>9}")
        for name in NAMES:
            r = rows[name]
            print(f"{name:<24}{r['time']:>7.2f}{r['time_low']:>9.2f}-{r['time_high']:.2f}{r['memory']:>12.2f}")
    return figures


def threads(args: argparse.Namespace) -> Figures:
    return {f"T {length}": on_threads(length, args.pairs) for length in args.lengths}


def on_threads(length: int, pairs: int, layers: int = 6, tokens: int = 2048) -> Figures:
    """The seconds of a step on each number of threads, and the ratios to transformers' step right before it."""
    import llama_step

    torch.manual_seed(0)
    x = torch.randn(tokens // length, length, llama_step.INPUTS)
    y = torch.randn(tokens // length, length, 1)
    rope, theirs = llama_step.ours("default", layers), llama_step.Theirs("default", layers, "sdpa")
    rope.load_state_dict(llama_step.by_our_names(theirs.state_dict(), layers), strict=False)
    llama_step.require_equal(rope, theirs, layers, x, y)
    fire = Decoder(
        rope.config, ENCODINGS.parse("FIRE"), input_width=llama_step.INPUTS, output_size=1, train_length=length
    )
    models = {TRANSFORMERS: theirs, "RoPE": rope, "FIRE": fire}
    steps = {name: llama_step.Step(model, x, y, time.perf_counter) for name, model in models.items()}
    rows: Figures = {name: {} for name in steps}
    for count in thread_counts():
        torch.set_num_threads(count)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(pairs + 1):
            for name, step in steps.items():
                seconds = step()
                if turn:  # the first starts threads and makes memory and moments
                    times[name].append(seconds)
        for name, of in times.items():
            rows[name][f"{count} ms"] = statistics.median(of) * 1e3
            if name != TRANSFORMERS:
                ratios = [mine / its for mine, its in zip(of, times[TRANSFORMERS], strict=True)]
                rows[name][f"{count} of transformers"] = spread(ratios)
    torch.set_num_threads(1)
    table(f"T {length}: milliseconds of a step, and relative to transformers' on as many threads", rows, 26)
    return rows


PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {"encodings": encodings, "threads": threads}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--lengths", type=whole_numbers, default=[128, 512])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    use_process(1)  # as a worker trains
    torch.set_flush_denormal(True)
    if args.memory_of:
        print(json.dumps(memory(args.memory_of, args.lengths[0])))
        return
    for part in args.parts.split(","):
        if part not in PARTS:
            parser.error(f"there is no part {part}; there are {', '.join(PARTS)}")
        save("training_step" if part == "encodings" else f"training_step-{part}", PARTS[part](args))


if __name__ == "__main__":
    main()
