"""Measure a training step and its peak memory with each encoding, relative to the same model without encoding.

    python benchmarks/training_step.py [--lengths 128,512] [--pairs 8]

d_model 128, 4 layers, 4 heads, batch 32, bytes, one thread. Times are CPU times of whole steps (forward, backward, optimizer)
in the order NoPE, X, NoPE; the figures are the median and the range of the ratios. Memory is the peak resident memory of a new
process, minus its memory before the first step.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from record import save

from lengthwise.config import ModelConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.models import Decoder
from lengthwise.training.numerics import use_process

NAMES = ("FIRE", "FIRE:hidden_layers=1", "FIRE:activation=gelu", "KerpleLog", "T5", "ALiBi", "RoPE", "Sinusoidal")
BATCH, VOCABULARY = 32, 257


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
    """KiB from /proc (Linux): VmRSS now, VmHWM at most so far. getrusage would count the parent's memory before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    use_process(1)  # as a worker trains
    torch.set_flush_denormal(True)
    if args.memory_of:
        print(json.dumps(memory(args.memory_of, int(args.lengths))))
        return
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for length in map(int, args.lengths.split(",")):

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
    save("training_step", figures)


if __name__ == "__main__":
    main()
