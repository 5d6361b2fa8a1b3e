"""Measure exact decoding with a rotation that depends on the current length, and the effect of `scale_step`.

    python benchmarks/scale_step.py [--rounds 3] [--new 256]

Dynamic NTK changes the rotation of every key with the length, and with it all inputs of upper layers. So the model
processes all tokens again whenever the scale changes. `scale_step=1` is the published form, with a new scale at every
token; a larger step keeps the scale for that many tokens. A decoder (d_model 128, 4 layers, 4 heads, one thread) for a
training length of 128 has read 256 tokens and decodes `--new` more, with batch 1 and untrained weights. Each round
measures all encodings in turn. The figures are ratios to RoPE in the same round (median, range), the number of times
that all tokens were processed again, and the difference of the last logits from those of one forward pass over all
tokens.
"""

import argparse
import statistics
import time

import torch
from record import save

from lengthwise.attention import KVCache
from lengthwise.config import Choice, ModelConfig, choose
from lengthwise.encodings import DynamicNTK, RoPE
from lengthwise.models import Decoder

TRAINED, READ = 128, 256
STEPS = (1, 16, 64, 256)


def decode(choice: Choice, tokens: torch.Tensor) -> tuple[float, int, float]:
    """Seconds for the tokens after the first `READ`, restarts of the cache, difference to one forward."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=128, num_layers=4, num_heads=4)
    model = Decoder(config, choice, vocab_size=64, output_size=64, train_length=TRAINED).eval()
    cache = KVCache(config.num_layers)
    with torch.no_grad():
        model(tokens[:, :READ], cache=cache)
        begin = time.perf_counter()
        for n in range(READ, tokens.shape[1]):
            last = model(tokens[:, n : n + 1], cache=cache)
        seconds = time.perf_counter() - begin
        off = float((last[:, -1] - model(tokens)[:, -1]).abs().max())
    return seconds, cache.restarts, off


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokens = torch.randint(64, (1, READ + args.new), generator=torch.Generator().manual_seed(0))
    ways = {"RoPE": choose(RoPE)} | {f"DynamicNTK, scale_step {n}": choose(DynamicNTK, scale_step=n) for n in STEPS}
    seen: dict[str, list[tuple[float, int, float]]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, choice in ways.items():
            seen[name].append(decode(choice, tokens))
    figures = {}
    for name, rounds in seen.items():
        ratios = [seconds / usual[0] for (seconds, _, _), usual in zip(rounds, seen["RoPE"], strict=True)]
        figures[name] = {
            "ratio": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
            "milliseconds_per_token": 1000 * statistics.median(s for s, _, _ in rounds) / args.new,
            "restarts": rounds[0][1],
            "off": max(off for _, _, off in rounds),
        }
        f = figures[name]
        print(
            f"{name:<28} {f['ratio']:6.2f} x RoPE ({f['low']:.2f} - {f['high']:.2f})  {f['restarts']:4d} restarts  "
            f"{f['milliseconds_per_token']:.2f} ms/token  off by {f['off']:.1e}"
        )
    save("scale_step", figures)


if __name__ == "__main__":
    main()
