"""Measure a training step of our Mamba, relative to that of transformers with the same weights.

    python benchmarks/mamba_step.py [--lengths 100,200,512] [--pairs 3] [--layers 2] [--keep]

On a CPU, transformers uses a loop in plain PyTorch. Width 256, state 16, 4 rows of tokens from 64 symbols,
cross-entropy, AdamW (fused); float32, one thread. Except for the embeddings, the time of a step is proportional to the
number of layers, which is 32 in the published comparison. Nothing is measured unless loss and gradients are the same.
Times are CPU times of whole steps in the order theirs, ours; the figures are the median and the range of the ratios.
--keep stores the results. Needs `pip install '.[outside]'`.
"""

import argparse
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from record import save
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models import MixerModel
from lengthwise.models.conversion import mamba_from_transformers, mamba_to_transformers

WIDTH, STATE, SYMBOLS, BATCH = 256, 16, 64, 4


class Theirs(nn.Module):
    def __init__(self, ours: MixerModel):
        super().__init__()
        from transformers import MambaConfig, MambaForCausalLM

        config = MambaConfig(
            vocab_size=SYMBOLS,
            hidden_size=WIDTH,
            state_size=STATE,
            num_hidden_layers=ours.config.num_layers,
            tie_word_embeddings=False,
        )
        self.model = MambaForCausalLM(config).train()
        self.model.load_state_dict(mamba_to_transformers(ours.state_dict()))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits


class Step:
    def __init__(self, model: nn.Module, tokens: Tensor):
        self.model, self.tokens = model, tokens
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def loss(self) -> Tensor:
        return F.cross_entropy(self.model(self.tokens[:, :-1]).flatten(0, 1), self.tokens[:, 1:].flatten())

    def __call__(self) -> float:
        start = time.process_time()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()
        return time.process_time() - start


def require_equal(ours: Step, theirs: Step) -> float:
    """The largest difference of a gradient, relative to the largest number in it."""
    for step in (ours, theirs):
        step.loss().backward()
    torch.testing.assert_close(ours.loss(), theirs.loss(), rtol=1e-5, atol=0)
    given = {name.removeprefix("model."): p.grad for name, p in theirs.model.named_parameters() if p.grad is not None}
    expected = mamba_from_transformers(given)
    worst = 0.0
    for name, p in ours.model.named_parameters():
        assert p.grad is not None
        worst = max(worst, float((p.grad - expected[name]).abs().max() / expected[name].abs().max()))
    if worst > 1e-3:
        raise SystemExit(f"the gradients differ by {worst:.1e} of their largest number")
    return worst


def compare(length: int, layers: int, pairs: int) -> dict[str, Any]:
    torch.manual_seed(0)
    tokens = torch.randint(0, SYMBOLS, (BATCH, length + 1))
    config = ModelConfig.mamba(d_model=WIDTH, num_layers=layers, state_size=STATE)
    model = MixerModel(config, vocab_size=SYMBOLS, output_size=SYMBOLS, train_length=length)
    ours, theirs = Step(model, tokens), Step(Theirs(model), tokens)
    worst = require_equal(ours, theirs)
    ours(), theirs()
    times = [(theirs(), ours()) for _ in range(pairs)]
    ratios = [mine / other for other, mine in times]
    return {
        "theirs_seconds": statistics.median(t[0] for t in times),
        "ours_seconds": statistics.median(t[1] for t in times),
        "ratio": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "gradients_differ_by": worst,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="100,200,512")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a machine that does nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    figures: dict[str, Any] = {}
    print(f"{'':<8}{'theirs':>10}{'ours':>10}{'ratio':>10}{'range':>16}{'gradients':>12}")
    for length in map(int, args.lengths.split(",")):
        figures[f"T {length}"] = r = compare(length, args.layers, args.pairs)
        print(
            f"T {length:<6}{r['theirs_seconds']:>9.2f}s{r['ours_seconds']:>9.3f}s{r['ratio']:>10.4f}"
            f"{r['low']:>9.4f}-{r['high']:.4f}{r['gradients_differ_by']:>12.0e}",
            flush=True,
        )
    if args.keep:
        save("mamba_step", {"layers": args.layers, **figures})


if __name__ == "__main__":
    main()
