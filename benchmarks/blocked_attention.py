"""Measure the blocked attention (plain PyTorch) relative to full matrices: the reference, and torch's sdpa.

    python benchmarks/blocked_attention.py [--lengths 128,256,512,1024,2048] [--pairs 5] [--names FIRE,Shaw]
                                           [--against reference]

Batch 4, 8 heads of 64 dimensions, causal, float32, one thread; a forward and a backward pass. All parameters of the
encoding have gradients, and the time of the encoding itself is included. Times are CPU times in the order A, blocked,
A; the figures are the median and the range of the ratios. "sdpa, no encoding" is torch's fused attention without a
bias. Memory is the peak resident memory of a new process, minus its memory before the first pass.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from record import save

from lengthwise.attention import BACKENDS, Mask, with_content
from lengthwise.encodings import ENCODINGS
from lengthwise.span import Span

NAMES = ("ALiBi", "T5", "FIRE", "FoX", "TransformerXL", "Shaw", "CoPE", "DAPE")
PLAIN = "NoPE"
BATCH, HEADS, DIM = 4, 8, 64
AGAINST = ("reference", "sdpa", "no encoding")


class Pass:
    """Forward and backward of one encoding on one backend, on random numbers."""

    def __init__(self, name: str, backend: str, length: int):
        torch.manual_seed(0)
        self.given = [torch.randn(BATCH, HEADS, length, DIM).requires_grad_() for _ in range(3)]
        self.x, self.weight = torch.randn(BATCH, length, HEADS * DIM), torch.randn(BATCH, HEADS, length, DIM)
        made_for = {"num_heads": HEADS, "head_dim": DIM, "d_model": HEADS * DIM, "train_length": length}
        self.encoding = ENCODINGS.parse(name).build(**made_for)
        self.backend, self.span, self.mask = BACKENDS[backend], Span.of(length), Mask(length, length)

    def modifiers(self) -> Any:
        modifiers = self.encoding.modifiers(self.span)
        if self.encoding.reads_content():
            return with_content(modifiers, self.encoding, self.encoding.features(self.x), self.span, self.mask)
        return modifiers

    def refused(self) -> bool:
        return self.backend.unsupported_reason(self.modifiers(), self.span, self.mask, self.given[0]) is not None

    def __call__(self) -> float:
        start = time.process_time()
        out = self.backend.prepare(self.modifiers(), self.span, self.mask)(*self.given, scale=DIM**-0.5)
        torch.autograd.grad(out, [*self.given, *self.encoding.parameters()], self.weight)
        return time.process_time() - start


def memory(name: str, backend: str, length: int) -> float:
    """Peak MiB above the state before the first pass, in this process."""
    Pass(name, backend, 64)()  # what is loaded once is not counted
    one = Pass(name, backend, length)
    before = resident("VmRSS")
    one()
    one()
    return (resident("VmHWM") - before) / 1024


def resident(field: str) -> int:
    """KiB from /proc (Linux): VmRSS now, VmHWM at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field)))


def peak(name: str, backend: str, length: int) -> float:
    command = [sys.executable, __file__, "--lengths", str(length), "--memory-of", name, backend]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def measure(name: str, length: int, pairs: int, against: list[str]) -> dict[str, Any]:
    blocked, figures = Pass(name, "blocked", length), {}
    blocked()
    for label in against:
        other = (PLAIN, "sdpa") if label == "no encoding" else (name, label)
        base = Pass(*other, length)
        if base.refused():
            continue
        base()
        ratios = []
        for _ in range(pairs):
            a, x, b = base(), blocked(), base()
            ratios.append(2 * x / (a + b))
        figures[label] = {
            "time": statistics.median(ratios),
            "time_low": min(ratios),
            "time_high": max(ratios),
            "peak_mib": peak(*other, length),
        }
    figures["blocked"] = {
        "seconds": statistics.median(blocked() for _ in range(3)),
        "peak_mib": peak(name, "blocked", length),
    }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="128,256,512,1024,2048")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--names", default=",".join(NAMES), help="encodings")
    parser.add_argument("--against", default=",".join(AGAINST), help="what it is compared with")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        name, backend = args.memory_of
        print(json.dumps(memory(name, backend, int(args.lengths))))
        return
    names, against = args.names.split(","), args.against.split(",")
    if unknown := sorted(set(against) - set(AGAINST)):
        parser.error(f"--against {', '.join(unknown)} is not known; there are {', '.join(AGAINST)}")
    results: dict[str, Any] = {}
    for length in map(int, args.lengths.split(",")):
        print(f"\nT {length}: time of blocked, of the other's (range); peak MiB of blocked and of the other")
        print(f"{'':<16}{'ms':>7}{'MiB':>6}" + "".join(f"{label:>28}" for label in against))
        for name in names:
            figures = results.setdefault(f"T {length}", {})[name] = measure(name, length, args.pairs, against)
            own, cells = figures["blocked"], ""
            for label in against:
                r = figures.get(label)
                cell = (
                    f"{r['time']:.2f} ({r['time_low']:.2f}-{r['time_high']:.2f}) {r['peak_mib']:>5.0f}"
                    if r
                    else "unsupported_reason"
                )
                cells += f"{cell:>28}"
            print(f"{name:<16}{own['seconds'] * 1e3:>7.0f}{own['peak_mib']:>6.0f}{cells}", flush=True)
        save("blocked_attention", results)  # after every length: the long ones take their time, and may be cut off


if __name__ == "__main__":
    main()
