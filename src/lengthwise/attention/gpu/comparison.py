"""The GPU's kernels and the reference on the same small input: the output and every gradient. verdicts.py runs it, in a process
of its own.

The reference computes in float64 on the CPU, so that it has nothing in common with the device.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import torch
from torch import Tensor

from lengthwise.attention import fused, gpu, reference
from lengthwise.attention.gpu.call import power
from lengthwise.attention.gpu.verdicts import Form
from lengthwise.attention.masks import Mask
from lengthwise.forms import AttentionModifiers, PiecewiseLinearBias, RelativeKeyBias, Rotation, Term, ToeplitzBias
from lengthwise.positions import consecutive
from lengthwise.span import Span

WIDE = torch.float64
# How far an answer may be off, of its largest number: some ten roundings of sums in float32, and of what halves store.
CLOSE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
PIECES = {"pieces": 7, "many pieces": 200}


@dataclass(frozen=True)
class Shape:
    """One call of attention. `keys` and `queries` in blocks of the kernels, and some more, so that no block is full at the end."""

    name: str
    keys: float
    queries: float | None = None  # blocks; None: as many as keys; 0: one
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    causal: bool = True
    window: bool = False
    documents: bool = False
    gaps: bool = False
    rotated: bool = False


SHAPES = (
    Shape("grouped queries", 2.5, batch=2, heads=4, kv_heads=2),
    Shape("packed documents, rotated", 2.0, 1.0, batch=2, documents=True, rotated=True),
    Shape("positions with gaps, a window", 1.5, window=True, gaps=True),
    Shape("decoding", 3.0, 0.0, batch=2, heads=4, kv_heads=2),
    Shape("both ways", 1.5, causal=False),
)


def difference(form: Form, device: torch.device | str) -> str | None:
    """Return where kernels and reference differ by more than rounding, or None."""
    torch.manual_seed(0)
    for biases in _variants(form):
        # Pieces say nothing about keys after the query.
        shapes = [shape for shape in SHAPES if shape.causal or not PIECES.keys() & set(biases)]
        for shape in shapes:
            if found := Call(form, biases, shape).difference(device):
                return f"{shape.name}: {found}"
    return None


def _variants(form: Form) -> Iterator[tuple[str, ...]]:
    """The biases that a form stands for: a compiled graph with room for many pieces may have few."""
    yield form.biases
    if "many pieces" in form.biases:
        yield tuple("pieces" if bias == "many pieces" else bias for bias in form.biases)


class Call:
    """Random numbers for one call of attention, rounded to what the kernels take, and the answers to it."""

    def __init__(self, form: Form, biases: tuple[str, ...], shape: Shape) -> None:
        dtype: torch.dtype = getattr(torch, form.dtype)
        blocks = gpu.blocks(dtype, power(form.dim), bool(PIECES.keys() & set(biases)))
        block = max(max(size.queries, size.keys) for size in blocks)
        keys = int(shape.keys * block) + 5
        queries = keys if shape.queries is None else int(shape.queries * block) + 1
        documents = (torch.arange(keys) * 3 // keys).expand(shape.batch, -1) if shape.documents else None
        self.rotated, self.given = shape.rotated, documents is not None or shape.gaps
        self.positions = torch.arange(keys)[None] if documents is None else consecutive(documents)
        if shape.gaps:
            self.positions = torch.randint(0, 4, (shape.batch, keys)).cumsum(1)
        self.mask = Mask(queries, keys, shape.causal, documents, block + 3 if shape.window else None)
        self.scale, self.close = form.dim**-0.5, CLOSE[dtype]
        of_q, of_k = ((shape.batch, h, n, form.dim) for h, n in ((shape.heads, queries), (shape.kv_heads, keys)))
        self.numbers = {n: torch.randn(size).to(dtype) for n, size in (("q", of_q), ("k", of_k), ("v", of_k))}
        self.grad = torch.randn(of_q).to(dtype)
        for bias in biases:
            self.numbers |= self._bias(bias, block, shape.heads, form.dim)

    def _bias(self, bias: str, block: int, heads: int, dim: int) -> dict[str, Tensor]:
        if bias == "table":  # shorter than there are distances
            return {"table": torch.randn(heads, block + 9)}
        if bias == "vectors":
            return {"vectors": torch.randn(1, 11, dim), "vector": torch.randn(heads, dim)}
        count, own = PIECES[bias], self.positions[:, -self.mask.queries :]
        slope, knots = torch.randn(heads, count), _knots(count)
        jumps = (slope[:, :-1] - slope[:, 1:]) * knots  # continuous, as an MLP is
        intercept = torch.cat([torch.zeros(heads, 1), jumps.cumsum(1)], 1)
        u = torch.log1p(0.3 * torch.arange(int(self.positions.max()) + 1))
        w = 1 / torch.log1p(0.3 * own.float().clamp(min=block / 2))
        return {"slope": slope, "intercept": intercept, "u": u, "w": w}

    def difference(self, device: torch.device | str) -> str | None:
        """Return which answer of the kernels on the device is off, and by how much, or None."""
        found, wanted = self._answers(fused, device, None), self._answers(reference, "cpu", WIDE)
        largest = max(1.0, *(x.abs().max().item() for x in wanted.values()))
        for name, right in wanted.items():
            # Gradients of a bias are sums of what mostly cancels, so they are measured by the largest number of all.
            size = max(1.0, right.abs().max().item()) if name in ("output", "q", "k", "v") else largest
            off = (found[name].cpu().to(WIDE) - right).abs().max().item() / size
            if not off <= self.close:  # NaN is none
                what = name if name == "output" else f"the gradient of {name}"
                return f"{what} is off by {off:.1e} of the largest number, where at most {self.close:.0e} is rounding"
        return None

    def _answers(self, backend: ModuleType, device: torch.device | str, dtype: torch.dtype | None) -> dict[str, Tensor]:
        """The output and the gradient of every number, computed in the numbers' own dtypes or another."""
        leaves = {n: x.to(device, dtype or x.dtype).requires_grad_() for n, x in self.numbers.items()}
        positions, mask = self.positions.to(device), self.mask
        if mask.documents is not None:
            mask = replace(mask, documents=mask.documents.to(device))
        own, length = positions[:, -mask.queries :], int(positions.max()) + 1
        span = Span(own, positions, length) if self.given else Span.of(mask.keys, mask.queries, device)
        attend = backend.prepare(self._effect(leaves, span), span, mask)
        out = attend(*(leaves[name] for name in ("q", "k", "v")), scale=self.scale)
        gradients = torch.autograd.grad(out, list(leaves.values()), self.grad.to(device, out.dtype))
        return {"output": out.detach(), **dict(zip(leaves, gradients, strict=True))}

    def _effect(self, leaves: dict[str, Tensor], span: Span) -> AttentionModifiers:
        terms: list[Term] = []
        if "table" in leaves:
            terms.append(ToeplitzBias(leaves["table"], -3))
        if "vectors" in leaves:
            terms.append(RelativeKeyBias(leaves["vectors"], -4, leaves["vector"]))
        if "slope" in leaves:
            slope = leaves["slope"]
            knots = _knots(slope.shape[1]).to(slope)
            terms.append(PiecewiseLinearBias(slope, leaves["intercept"], knots, leaves["u"], leaves["w"]))
        speed = torch.tensor([0.1], dtype=WIDE, device=span.q.device)
        rotation = Rotation(span.q[..., None] * speed, span.k[..., None] * speed) if self.rotated else None
        return AttentionModifiers(rotation=rotation, terms=tuple(terms))


def _knots(pieces: int) -> Tensor:
    return torch.linspace(0.01, 0.9, pieces - 1)


def main() -> None:
    """Answer the question in the last argument with a line of JSON."""
    asked = json.loads(sys.argv[-1])
    device = torch.device(asked.pop("device"))
    form = Form(tuple(asked.pop("biases")), **asked)
    result, reason = "unavailable", None
    try:
        torch.zeros(1, device=device)
        reason = difference(form, device)
        result = "different" if reason else "equal"
    except Exception as error:
        from triton.compiler.errors import CompilationError

        result = "different" if isinstance(error, CompilationError) else "unavailable"
        reason = _words(error)
    print(json.dumps({"result": result, "reason": reason}))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
