"""Measure the errors of the GPU kernels in Triton's interpreter on a CPU. Nothing here has run on a GPU.

    python benchmarks/gpu_errors.py [--lengths 128,256,1024] [--dtypes float32,bfloat16,float16] [--forms NAME,NAME]
                                    [--draws 6] [--heads 2] [--dims 64]

An error is the distance from the float64 reference, of the output or of a gradient. The figures are the root mean
square of our errors over the draws, relative to that of torch's scaled_dot_product_attention on a CPU with the bias as
a matrix in the dtype of q. Batch 1, causal, with the block sizes of a GPU. interpreted.py says in which precision the
interpreter computes. The results are stored as results/gpu_errors-<length>.json.

With few draws, the error of a gradient that is a single number (such as that of FIRE's c) is large or small by chance.
"""

import argparse
import math
import time
from typing import Any

import interpreted  # before anything that imports Triton
import torch
from attention import distances, table, whole_numbers
from record import save

FORMS = (
    "NoPE", "ALiBi", "T5", "KerpleLog", "FIRE:hidden_layers=1", "FIRE", "FIRE:activation=gelu", "T5 + FIRE",
    "Shaw:values=false", "TransformerXL", "BandedBias:band=64", "T5 + Shaw:values=false", "FoX",
)  # fmt: skip
MOST = 2.0
Squares = dict[str, tuple[float, float]]


def drawn(name: str, length: int, dtype: torch.dtype, draws: int, heads: int, dim: int) -> Squares:
    """Sums over the draws of the squared distances, ours and torch's."""
    sums: Squares = {}
    for seed in range(draws):
        for answer, pair in distances(name, length, dtype, seed, heads, dim).items():
            before = sums.get(answer, (0.0, 0.0))
            sums[answer] = before[0] + pair[0], before[1] + pair[1]
    return sums


def over_torchs(sums: Squares) -> dict[str, float]:
    return {answer: math.sqrt(own / its) for answer, (own, its) in sums.items() if own or its}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=whole_numbers, default=[128, 256, 1024])
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--dims", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    interpreted.ready_once()
    interpreted.as_on_a_gpu()
    for length in args.lengths:
        found: dict[str, Any] = {"in": "Triton's interpreter, not on a GPU", "draws": args.draws, "above 2": []}
        for dtype in args.dtypes.split(","):
            rows: dict[str, Any] = {}
            shown: dict[str, Any] = {}
            for name in args.forms.split(","):
                start = time.process_time()
                with interpreted.in_place_of_the_cpu():
                    sums = drawn(name, length, getattr(torch, dtype), args.draws, args.heads, args.dims)
                rows[name] = over_torchs(sums)
                plain = {answer: rows[name][answer] for answer in ("out", "q", "k", "v")}
                of_bias = {answer: x for answer, x in rows[name].items() if answer not in plain}
                shown[name] = {**plain, "worst parameter": max(of_bias.values(), default=None)}
                shown[name]["CPU s"] = time.process_time() - start
                found["above 2"] += [f"{dtype} {name} {a}: {x:.2f}" for a, x in rows[name].items() if not x <= MOST]
            table(f"{dtype}, T {length}, D {args.dims}: error against float64, ours over torch's", shown, 16)
            found[dtype] = rows
            save(f"gpu_errors-{length}", found)  # so that one that is cut off loses little
        print("above 2:", *(found["above 2"] or ["none"]), sep="\n  ")


if __name__ == "__main__":
    main()
