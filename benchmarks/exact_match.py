"""Measure the cost of an exact match: a teacher-forced forward pass, relative to greedy decoding with the same result.

    python benchmarks/exact_match.py [--length 40] [--examples 256] [--pairs 5]

The task is Copy, with the same examples and the same untrained model: d_model 64, 3 layers, one thread. The figures are
CPU seconds per example of one forward pass (`evaluate`), and of decoding (`evaluate(decode=True)`): with the key-value
cache, all examples at once or one by one, and without a cache. All are measured in turn in one process. A ratio is
relative to the forward pass of the same turn; the figures are the median and the range.
"""

import argparse
import statistics
import time

import torch
from record import save

from lengthwise.config import EvaluationConfig, ModelConfig
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import Division, evaluate
from lengthwise.evaluation.decoding import left_padded
from lengthwise.models import Decoder
from lengthwise.tasks import Copy

WAYS = ("cached", "one_by_one", "uncached")
FEW = 16  # examples of the slow ways
NAMES = ("NoPE", "RoPE", "ALiBi", "T5", "FIRE")


class Asked:
    """One model, and the ways to ask it for its exact match. Each says its CPU seconds per example."""

    def __init__(self, name: str, length: int, examples: int):
        torch.manual_seed(0)
        self.task, self.length = Copy(), length
        self.config = EvaluationConfig(lengths=(length,), examples=examples)
        sizes = {"vocab_size": self.task.vocab_size, "output_size": self.task.output_size}
        shape = ModelConfig(d_model=64, num_layers=3, num_heads=4)
        self.model = Decoder(shape, ENCODINGS.parse(name), **sizes, train_length=self.task.tokens(20)).eval()

    def forward(self) -> float:
        return self._evaluate(decode=False)

    def cached(self) -> float:
        return self._evaluate(decode=True)

    def one_by_one(self) -> float:
        begin = time.process_time()
        few = EvaluationConfig(lengths=self.config.lengths, examples=FEW)
        evaluate(self.model, self.task, few, decode=True, division=Division(1))
        return (time.process_time() - begin) / FEW

    def uncached(self) -> float:
        prompts, _ = left_padded(self.task.examples(0, FEW, self.length))
        begin = time.process_time()
        with torch.no_grad():
            self.model.generate(prompts, self.task.answer_tokens(self.length), stop=self.task.eos, cached=False)
        return (time.process_time() - begin) / FEW

    def _evaluate(self, decode: bool) -> float:
        begin = time.process_time()
        evaluate(self.model, self.task, self.config, decode=decode)
        return (time.process_time() - begin) / self.config.examples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    print(f"copy, length {args.length}, {args.examples} examples: ms an example, and how often one forward")
    print(f"{'':<8}{'forward':>9}" + "".join(f"{way.replace('_', ' '):>26}" for way in WAYS))
    for name in NAMES:
        model = Asked(name, args.length, args.examples)
        model.forward()  # once for the kernel
        turns = [{way: getattr(model, way)() for way in ("forward", *WAYS)} for _ in range(args.pairs)]
        rows = {"forward": {"ms": 1e3 * statistics.median(turn["forward"] for turn in turns)}}
        for way in WAYS:
            ratios = [turn[way] / turn["forward"] for turn in turns]
            rows[way] = {
                "ms": 1e3 * statistics.median(turn[way] for turn in turns),
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
            }
        figures[name] = rows
        line = "".join(
            f"{r['ms']:>10.2f}{r['ratio']:>7.1f}{'':1}({r['ratio_low']:.1f}-{r['ratio_high']:.1f})".rjust(26)
            for r in map(rows.__getitem__, WAYS)
        )
        print(f"{name:<8}{rows['forward']['ms']:>9.2f}{line}", flush=True)
    save("exact_match", figures)


if __name__ == "__main__":
    main()
