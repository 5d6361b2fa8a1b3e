"""The slices of gpu_day.py that measure attention with each encoding, by our kernels, PyTorch's and others.

In bfloat16, causal. All parameters of the encoding have gradients, and the time of the encoding itself is included.
Times are those of CUDA events around CALLS calls in a row (a model has several layers), in the order A, X, A on random
inputs; the figures are the median and the 10th and 90th percentile of the ratios. Memory is the peak above the memory
of the inputs.
"""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from gpu_setting import Figures, Measurement, Setting
from torch.nn.attention import SDPBackend, sdpa_kernel

from lengthwise.attention import BACKENDS, Mask
from lengthwise.encodings import ENCODINGS
from lengthwise.span import Span

NAMES = (
    "ALiBi",
    "T5",
    "KerpleLog",
    "Sandwich",
    "FIRE:hidden_layers=1",
    "FIRE",
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


def attention(setting: Setting) -> Iterator[Measurement]:
    """Attention with each encoding, SDPA, FlexAttention and a dense bias, relative to ours without an encoding."""
    kinds: dict[str, Callable[..., Attention]] = {
        name if name in NAMES else f"torch {name}": functools.partial(Attention, name) for name in (*TORCH, *NAMES)
    }
    kinds = {OURS: functools.partial(Attention, OURS)} | kinds  # with itself: what differs by chance
    slow = {"FIRE:activation=gelu": functools.partial(Attention, "FIRE:activation=gelu")}
    slow |= {"dense bias of T5": functools.partial(DenseBias, "T5")}
    slow |= {f"FlexAttention, {name}": functools.partial(Flex, name) for name in ("NoPE", "ALiBi", "T5")}
    lengths, dims, sizes = (8192, 2048, 32768), (64, 128), {}
    if setting.tiny:
        lengths, dims, sizes = (64,), (16,), {"batch": 1, "heads": 2}
        kinds, slow = {"T5": kinds["T5"]}, {"dense bias of T5": slow["dense bias of T5"]}

    @functools.lru_cache(maxsize=1)
    def ours(length: int, dim: int) -> Attention:
        return Attention(OURS, length, dim, device=setting.device, **sizes)

    def compare(make: Callable[..., Attention], length: int, dim: int) -> Figures:
        base, other = ours(length, dim), make(length, dim, device=setting.device, **sizes)
        pairs = 2 if setting.tiny else 7
        figures: Figures = {
            what: ratio(getattr(base, what), getattr(other, what), pairs) for what in ("forward", "backward")
        }
        if setting.device != "cpu":
            figures["MiB"] = peak(other.backward)
        return figures

    for some in (kinds, slow):
        for length, dim in itertools.product(lengths, dims):
            for name, make in some.items():
                yield f"{name}, {length} tokens, {dim} dims", functools.partial(compare, make, length, dim)


def network_and_decoding(setting: Setting) -> Iterator[Measurement]:
    """FIRE's network on all pairs relative to our kernel, decoding steps relative to no encoding, and long inputs."""
    sizes: dict[str, Any] = {"heads": 2 if setting.tiny else 16, "device": setting.device}
    pairs = 2 if setting.tiny else 7

    def network(length: int, batch: int) -> Figures:
        fused, eager = (make("FIRE", length, 64, batch=batch, **sizes) for make in (Attention, Eager))
        return ratio(fused.backward, eager.backward, pairs)

    def decoding(name: str, keys: int) -> Figures:
        plain, step = (Attention(x, keys, 64, queries=1, **sizes) for x in (OURS, name))
        return ratio(plain.forward, step.forward, pairs)

    def memory(length: int, what: str) -> Figures:
        return {"MiB": peak(getattr(Attention("FIRE", length, 64, batch=1, **sizes), what))}

    for length, batch in ((64, 1),) if setting.tiny else ((1024, 1), (1024, 4), (2048, 1), (2048, 4), (4096, 1)):
        yield f"FIRE's network on all pairs, {length} tokens, batch {batch}", functools.partial(network, length, batch)
    for name in ("T5", "FIRE"):
        keys = 64 if setting.tiny else 32768
        yield f"{name}, a decoding step with {keys} keys", functools.partial(decoding, name, keys)
    if not setting.tiny:
        for length, what in ((32768, "backward"), (131072, "forward")):
            yield f"FIRE, {length} tokens, {what}", functools.partial(memory, length, what)
