"""Measure a Llama of transformers whose attention lengthwise computes, relative to the model in transformers alone.

    python benchmarks/huggingface.py [--pairs 5] [--threads 1] [--save]

6 layers, width 256, 8 heads, d_ff 1024, a vocabulary of 512, T 1024, batch 4, float32, with the model's own SDPA. A
step is the forward pass with the loss, the backward pass and AdamW (fused).

- rope: `use(model)` with the model's own RoPE, relative to its own SDPA.
- fire: `use(model, "fire")`, relative to its own SDPA without any bias.
- t5: `use(model, "t5")`, relative to transformers with the same bias as a dense tensor [1, heads, T, T], which gets its
  gradient as a learned table of T5 (`position_bias` of transformers 5; eager attention of older versions).
- generate: 256 tokens after a prompt of 256, batch 1, relative to the model's own time.

Two models are timed in turns, one step each, in CPU time of the process; the figures are the median and the range of
the ratios of neighbouring steps. --save stores them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from record import save
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from lengthwise.encodings import T5
from lengthwise.huggingface import use

LENGTH, BATCH, HEADS, VOCAB, NEW = 1024, 4, 8, 512, 256


def model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=None, pad_token_id=None,
        attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(1, VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


class DenseT5(nn.Module):
    """The bias of T5 as transformers computes it: a dense tensor, which is added to the mask of SDPA."""

    def __init__(self, inner: LlamaForCausalLM):
        super().__init__()
        self.inner, self.table = inner, nn.Embedding(32, HEADS)
        encoding = T5(num_heads=HEADS)
        distance = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(min=0)
        self.register_buffer("buckets", encoding.bucket(distance))
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
        for module in inner.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq.zero_()  # no rotation

    def forward(self, x: Tensor, **options: Any) -> Any:
        bias = self.table(self.buckets).permute(2, 0, 1)[None].masked_fill(self.future, float("-inf"))
        return self.inner(x, attention_mask=bias, **options)


def step(module: nn.Module) -> Callable[[], None]:
    optimizer, x = torch.optim.AdamW(module.parameters(), fused=True), tokens(BATCH, LENGTH)

    def run() -> None:
        module(x, labels=x, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def generation(module: LlamaForCausalLM) -> Callable[[], None]:
    module.eval()
    x = tokens(1, NEW)

    def run() -> None:
        with torch.no_grad():
            found = module.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=NEW, do_sample=False)
        assert found.shape == (1, 2 * NEW)

    return run


def ratio(ours: Callable[[], None], theirs: Callable[[], None], pairs: int) -> dict[str, float]:
    ours()
    theirs()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(pairs):
        for name, run in (("ours", ours), ("theirs", theirs)):
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    ratios = [one / other for one, other in zip(seconds["ours"], seconds["theirs"], strict=True)]
    middle = {f"seconds_{name}": statistics.median(values) for name, values in seconds.items()}
    return {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios), **middle}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases: dict[str, Callable[[], tuple[Callable[[], None], Callable[[], None]]]] = {
        "rope": lambda: (step(use(model())), step(model())),
        "fire": lambda: (step(use(model(), "fire")), step(model())),
        "t5": lambda: (step(use(model(), "t5")), step(DenseT5(model()))),
        "generate": lambda: (generation(use(model())), generation(model())),
    }
    figures: dict[str, Any] = {"threads": options.threads}
    for name, make in cases.items():
        figures[name] = ratio(*make(), options.pairs)
        found = figures[name]
        print(f"{name}: {found['ratio']:.3f} ({found['low']:.3f}-{found['high']:.3f})", flush=True)
    if options.save:
        save("huggingface", figures)


if __name__ == "__main__":
    main()
