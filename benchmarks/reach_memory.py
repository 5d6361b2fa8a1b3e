"""Measure the peak memory of `lengthwise reach` at 16 times the training length, relative to the weights and the cache.

    python benchmarks/reach_memory.py [--train-length 512] [--times 16] [--layers 30] [--methods own,yarn:factor=16]
                                      [--keep]

The model has the sizes of SmolLM-135M (width 576, 9 heads, of which 3 for keys and values, 49,152 tokens) and random
weights in float32. The peak is the highest resident memory of a process while it reads one text, minus that before the
model is loaded (VmHWM and VmRSS of Linux). Each method has a process of its own. The target is a ratio of at most 1.25.
--keep stores the results.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import save

RESET_PEAK = Path("/proc/self/clear_refs")
SIZES = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def child(folder: str, length: int, method: str) -> dict[str, Any]:
    """Read one text of random tokens, and return the figures. Imports and the kernel's first call do not count."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    from lengthwise.reach.methods import applied
    from lengthwise.reach.model import Reader, use_process

    use_process(1)
    tiny = LlamaForCausalLM(
        LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    tokens = torch.randint(SIZES["vocab_size"], (length,), generator=torch.Generator().manual_seed(0)).tolist()
    with applied(tiny, method) as model:
        Reader(model).losses([token % 100 for token in tokens[:64]], [10])
    del tiny, model
    gc.collect()
    before = memory("VmRSS")
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    weights = sum(parameter.nbytes for parameter in loaded.parameters())
    RESET_PEAK.write_bytes(b"5")
    begin = time.perf_counter()
    with applied(loaded, method) as model:
        reader = Reader(model)
        reader.losses(tokens, reader.sampled_rows(length - 1, 64))
    peak = memory("VmHWM") - before
    return {
        "weights_bytes": weights,
        "cache_bytes": reader.cache_bytes,
        "peak_bytes": peak,
        "ratio": round(peak / (weights + reader.cache_bytes), 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-length", type=int, default=512)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--methods", default="own,yarn:factor=16")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        folder, length, method = args.child
        print(json.dumps(child(folder, int(length), method)))
        return
    from transformers import LlamaConfig, LlamaForCausalLM

    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        config = LlamaConfig(**SIZES, num_hidden_layers=args.layers, max_position_embeddings=args.train_length)
        LlamaForCausalLM(config).save_pretrained(folder)
        print(f"{'':<18}{'weights':>10}{'cache':>10}{'peak':>10}{'ratio':>8}{'time':>10}")
        for method in args.methods.split(","):
            length = args.train_length * args.times
            words = [sys.executable, __file__, "--child", folder, str(length), method]
            found = json.loads(
                subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            )
            figures[f"{method} at {length}"] = {name: value for name, value in found.items() if name != "seconds"}
            sizes = "".join(
                f"{found[name] / 2**20:>7.0f}MiB" for name in ("weights_bytes", "cache_bytes", "peak_bytes")
            )
            print(f"{method:<18}{sizes}{found['ratio']:>8.3f}{found['seconds']:>9.0f}s", flush=True)
    if args.keep:
        save("reach_memory", {"train_length": args.train_length, "layers": args.layers, **figures})


if __name__ == "__main__":
    main()
