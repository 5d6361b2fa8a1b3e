"""Check and measure attention on a GPU with each encoding, relative to attention without encoding and to torch's best.

    python benchmarks/gpu_attention.py [--length 8192] [--pairs 20] [--quick]

Run `lengthwise check --device cuda` before: FIRE uses its Triton kernels only on GPUs where they were tested.

First the kernels are compared with the float64 reference in float32, float16 and bfloat16. If that fails, nothing is
measured. Then, in bfloat16 with batch 4, 16 heads of 64 and of 128 dimensions, causal: the forward pass, and forward
and backward. All parameters of the encoding have gradients, and the time of the encoding itself is included. Times are
those of CUDA events around CALLS calls in a row (a model has several layers), in the order A, X, A on random inputs;
the figures are the median and the 10th and 90th percentile of the ratios. Denominators are our kernel without encoding,
and the fastest backend of torch's scaled_dot_product_attention without encoding. Memory is the peak above the memory of
the inputs. Then: FIRE relative to its MLP evaluated for all pairs with eager attention at 2,048 tokens, training at
32,768 tokens, a forward pass at 131,072, and one decoding step with a cache of 32,768.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import save
from torch.nn.attention import SDPBackend, sdpa_kernel

from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.fused import gpu
from lengthwise.encodings import ENCODINGS
from lengthwise.span import Span

NAMES = (
    "ALiBi",
    "T5",
    "KerpleLog",
    "Sandwich",
    "FIRE:hidden_layers=1",
    "FIRE",
    "FIRE:activation=gelu",
    "Sinks",
    "Shaw",
    "Shaw:values=false",
)
OURS = "NoPE"
TORCH = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
BATCH, HEADS, CALLS = 4, 16, 4
LIMITS = {
    "ALiBi": 1.08,
    "T5": 1.12,
    "KerpleLog": 1.25,
    "Sandwich": 1.25,
    "FIRE": 1.45,
}  # wanted, forward with backward, 64 dims


def check() -> dict[str, float]:
    """The largest errors against float64, of the size of each answer, by dtype and form; stops where one is
    too large.
    """
    path = Path(__file__).parent.parent / "tests" / "attention" / "fused" / "gpu_cases.py"
    spec = importlib.util.spec_from_file_location("gpu_cases", path)
    assert spec and spec.loader
    cases = sys.modules["gpu_cases"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    worst: dict[str, float] = {}
    failed = []
    for dtype, close in ((torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
        for case in cases.on_a_gpu(dtype):
            name = f"{str(dtype)[6:]} {case.kind}"
            error = max(cases.errors(case).values())
            worst[name] = max(worst.get(name, 0.0), error)
            if not error <= close:
                failed.append(f"{name}, {case.queries} x {case.keys}, {case.dim} dims: {error:.1e}")
    for name, error in worst.items():
        print(f"  {name:28} {error:.1e}")
    if failed:
        raise SystemExit("wrong, so nothing is measured:\n  " + "\n  ".join(failed))
    return worst


class Attention:
    """Attention of one encoding (or of torch, without) on random numbers."""

    backend = "fused"

    def __init__(
        self,
        name: str,
        length: int,
        dim: int,
        *,
        batch: int = BATCH,
        heads: int = HEADS,
        queries: int | None = None,
        device: str = "cuda",
    ):
        torch.manual_seed(0)
        shape = (batch, heads, length, dim)
        self.q, self.k, self.v, self.grad = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(4))
        if queries:
            self.q, self.grad = self.q[:, :, -queries:].contiguous(), self.grad[:, :, -queries:].contiguous()
        for x in (self.q, self.k, self.v):
            x.requires_grad_()
        self.name, self.dim = name, dim
        queries = queries or length
        self.span, self.mask = Span.of(length, queries, device), Mask(queries, length)
        self.encoding = None
        if name not in TORCH:
            made_for = {"num_heads": heads, "head_dim": dim, "d_model": heads * dim, "train_length": length}
            self.encoding = ENCODINGS.parse(name).build(**made_for).to(device)

    def out(self) -> torch.Tensor:
        if self.encoding is None:
            with sdpa_kernel(TORCH[self.name]):
                return F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.mask.queries > 1)
        attend = BACKENDS[self.backend].prepare(self.encoding.modifiers(self.span), self.span, self.mask)
        return attend(self.q, self.k, self.v, scale=self.dim**-0.5)

    def forward(self) -> None:
        with torch.no_grad():
            self.out()

    def backward(self) -> None:
        parameters = list(self.encoding.parameters()) if self.encoding is not None else []
        torch.autograd.grad(self.out(), [self.q, self.k, self.v, *parameters], self.grad)


class Flex(Attention):
    """The same by FlexAttention, which PyTorch compiles on a GPU."""

    backend = "flex"


class DenseBias(Attention):
    """A bias that depends on the distance as a tensor with an entry for every pair, which SDPA adds to the logits."""

    def out(self) -> torch.Tensor:
        term = self.encoding.modifiers(self.span).terms[0]  # type: ignore[union-attr]
        bias = term.dense(self.q, self.k, self.span, self.dim**-0.5).to(self.q.dtype)
        future = self.span.k[0] > self.span.q[0][:, None]
        return F.scaled_dot_product_attention(self.q, self.k, self.v, bias.masked_fill(future, -torch.inf))


class Eager(Attention):
    """FIRE as published: its MLP on every pair, a matrix of logits."""

    def out(self) -> torch.Tensor:
        position = self.span.k[0]
        x = self.encoding.coordinate(  # type: ignore[union-attr]
            position[:, None],
            position[None].minimum(position[:, None]),
        )
        bias = self.encoding.f(x.float()[..., None]).permute(2, 0, 1)  # type: ignore[union-attr]
        logits = (self.q @ self.k.mT).float() * self.dim**-0.5 + bias
        hidden = position[:, None] < position
        return logits.masked_fill(hidden, -torch.inf).softmax(-1).to(self.q.dtype) @ self.v


def milliseconds(action: Callable[[], None]) -> float:
    if not torch.cuda.is_available():
        begin = time.perf_counter()
        for _ in range(CALLS):
            action()
        return 1000 * (time.perf_counter() - begin) / CALLS
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(CALLS):
        action()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / CALLS


def ratio(base: Callable[[], None], other: Callable[[], None], pairs: int) -> dict[str, float]:
    for action in (base, other, base, other):
        action()
    ratios, plain = [], []
    for _ in range(pairs):
        a, x, b = milliseconds(base), milliseconds(other), milliseconds(base)
        ratios.append(2 * x / (a + b))
        plain.append(x)
    ordered = sorted(ratios)
    low, high = (ordered[round(p * (pairs - 1))] for p in (0.1, 0.9))
    return {"median": statistics.median(ratios), "p10": low, "p90": high, "ms": statistics.median(plain)}


def peak(action: Callable[[], None]) -> float:
    """MiB above what is there before."""
    action()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    action()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def table(length: int, dim: int, pairs: int) -> dict[str, Any]:
    ours, figures = Attention(OURS, length, dim), {}
    base_memory = peak(ours.backward)
    served = {}
    for name in TORCH:
        one = Attention(name, length, dim)
        try:
            one.backward()
        except RuntimeError as error:
            print(f"  torch's {name} does not serve: {str(error).splitlines()[0]}")
            continue
        served[name] = {what: ratio(getattr(ours, what), getattr(one, what), pairs) for what in ("forward", "backward")}
        figures[f"torch {name}"] = {**served[name], "memory": peak(one.backward) / base_memory}
    for what in ("forward", "backward"):
        best = min((f[what]["median"] for f in served.values()), default=float("nan"))
        figures[f"{OURS} of the best of torch, {what}"] = 1 / best
    for name in NAMES:
        one = Attention(name, length, dim)
        figures[name] = {
            what: ratio(getattr(ours, what), getattr(one, what), pairs) for what in ("forward", "backward")
        }
        figures[name]["memory"] = peak(one.backward) / base_memory
        del one
    print(f"\n{length} tokens, {dim} dims, of our kernel without encoding: median (10th-90th percentile)")
    for name, f in figures.items():
        if isinstance(f, float):
            print(f"  {name:40}{f:6.2f}")
            continue
        cells = "".join(
            f"{what} {f[what]['median']:5.2f} ({f[what]['p10']:.2f}-{f[what]['p90']:.2f})   "
            for what in ("forward", "backward")
        )
        wanted = f"   (wanted: {LIMITS[name]})" if dim == 64 and name in LIMITS else ""
        print(f"  {name:24}{cells}memory {f['memory']:.2f}{wanted}")
    return figures


def lengths(pairs: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    small = {"batch": 1, "heads": HEADS}
    fire = Attention("FIRE", 2048, 64, **small)
    found["FIRE's MLP over all pairs, 2048 tokens, of ours"] = ratio(
        fire.backward, Eager("FIRE", 2048, 64, **small).backward, pairs
    )
    found["FIRE, 32768 tokens, forward and backward, MiB"] = peak(Attention("FIRE", 32768, 64, **small).backward)
    found["FIRE, 131072 tokens, forward, MiB"] = peak(Attention("FIRE", 131072, 64, **small).forward)
    for name in ("T5", "FIRE"):
        step, plain = (Attention(n, 32768, 64, queries=1) for n in (name, OURS))
        found[f"{name}, a decoding step with 32768 keys"] = ratio(plain.forward, step.forward, pairs)
    for name, value in found.items():
        print(f"  {name}: {value}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="the checks, and 64 dims alone")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use: nothing to measure")
    if reason := gpu.unsupported_reason():
        raise SystemExit(reason)
    torch.backends.cuda.matmul.allow_tf32 = False
    print("against float64, largest error by dtype and form")
    figures: dict[str, Any] = {"errors": check()}
    for dim in (64,) if args.quick else (64, 128):
        figures[f"{dim} dims"] = table(args.length, dim, args.pairs)
    if not args.quick:
        figures["lengths"] = lengths(args.pairs)
    save("gpu_attention", figures)


if __name__ == "__main__":
    main()
