"""FIRE's Theorem 3.1: FIRE can equal T5, ALiBi, KERPLE or Sandwich exactly, up to any length that is chosen beforehand.

The constructions set the threshold to that length, L = bound. Then the denominator is ψ(L) for every query up to it,
and FIRE depends only on the distance d:

    ALiBi          ψ(x) = x                f(x) = -m L x
    KERPLE, log    ψ(x) = ln(1 + r2 x)     f(x) = -r1 ln(1 + r2 L) x
    KERPLE, power  ψ(x) = x                f(x) = -r1 L^r2 · x^r2                  one unit that takes x to x^r2
    T5             ψ(x) = x                f(x) = E[0] + Σ_k (E[k] - E[k-1]) · [x >= s_k / L]   one step for each border
    Sandwich       ψ(x) = x                f(x) = Σ_p cos(L x / 10000^(2p/D)) · H/8h - const      one cosine for each p

with m, r1, r2, E of one head. FIRE has a single c for all heads, so every head is a FIRE of its own.

The bias is compared as the MLP computes it. If the construction is a plain `FIRE` (ALiBi; KERPLE, log), attention with
it is compared too, on every backend that supports it. This tests the linear segments that models and `attend` use.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.attention import TokenInfo, attend, unsupported_reason
from lengthwise.config import ConfigError
from lengthwise.conformance.cases import HEAD_DIM, EncodingCase, differentiable_backends, numbers
from lengthwise.conformance.theorems.results import EPS, Result, Theorem
from lengthwise.encodings import FIRE, T5, ALiBi, DistanceBias, KerpleLog, KerplePower, PositionEncoding, Sandwich
from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.base import project
from lengthwise.forms import AttentionModifiers, DenseBias
from lengthwise.span import Span

BOUNDS = (16, 49, 512, 1000, 4096)  # distance / bound is rounded for 49 and 1,000, and exact for powers of two
HEADS = 12
TOKENS = 97  # the most tokens in an attention call
PLAIN = (ALiBi, KerpleLog)  # their constructions are of the class FIRE itself
_ROWS = 256  # queries whose pairs are in memory together


class PairwiseFIRE(FIRE):
    """FIRE with an activation for which there are no linear segments, so that its MLP is evaluated for every pair."""

    def modifiers(self, span: Span) -> AttentionModifiers:
        return AttentionModifiers(terms=(DenseBias(self.pairwise_bias(span)),))


class StepFIRE(PairwiseFIRE):
    def activate(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return (x >= 0).to(x.dtype)


class CosineFIRE(PairwiseFIRE):
    def activate(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return x.cos()


class PowerFIRE(PairwiseFIRE):
    exponent = 1.0

    def activate(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return x**self.exponent


class Heads(PositionEncoding):
    """An encoding whose heads are FIREs of one head each, for `attend` and for models."""

    shared_across_layers = False
    shift_invariant = False

    def __init__(self, *, fires: Iterable[FIRE]):
        super().__init__()
        self.fires = nn.ModuleList(fires)

    def __iter__(self) -> Iterator[FIRE]:
        return iter(cast(list[FIRE], list(self.fires)))

    def modifiers(self, span: Span) -> AttentionModifiers:
        return AttentionModifiers(terms=(DenseBias(torch.cat([fire.pairwise_bias(span) for fire in self], 1)),))


def as_fire(encoding: DistanceBias, bound: int) -> Heads:
    """Return FIREs, one for each head, in float64, that have the bias of `encoding` for all positions up to `bound`.

    `encoding` is a T5, ALiBi, KerpleLog, KerplePower or Sandwich. Raise `ConfigError` for any other.

    >>> fires = as_fire(ALiBi(num_heads=2), bound=512)
    >>> [f.f(f.coordinate(torch.tensor(512), torch.tensor(496))[None]).item() for f in fires]   # distance 16
    [-1.0, -0.0625]
    """
    require_positive_int("as_fire", bound=bound)
    with torch.no_grad():
        match encoding:
            case ALiBi():
                slopes = encoding.bias(torch.tensor([1]))[:, 0]
                return Heads(fires=[_fire(FIRE, bound, (slope * bound, 0.0)) for slope in slopes])
            case KerpleLog():
                pairs = zip(project(encoding.r1, 0.01), project(encoding.r2, 0.01), strict=True)
                return Heads(fires=[_logarithm(bound, float(r1), float(r2)) for r1, r2 in pairs])
            case KerplePower():
                pairs = zip(project(encoding.r1, 0.01), project(encoding.r2, 0.01, 2.0), strict=True)
                return Heads(fires=[_power(bound, float(r1), float(r2)) for r1, r2 in pairs])
            case T5():
                distance = torch.arange(bound + 1)
                bucket, values = encoding.bucket(distance), encoding.bias(distance)
                borders = distance[1:][bucket[1:] != bucket[:-1]]  # the bias changes only here
                steps, width = (1.0, -borders.double() / bound), len(borders)
                jumps = [(row[borders] - row[borders - 1], row[0]) for row in values]
                return Heads(fires=[_fire(StepFIRE, bound, steps, layer, width=width) for layer in jumps])
            case Sandwich():
                cpu = torch.device("cpu")
                theta, divisors = encoding.frequencies(cpu), encoding.divisors(cpu)
                angles, width = (bound * theta[:, None], 0.0), len(theta)
                sums = [(1 / float(by), -width / float(by)) for by in divisors]
                return Heads(fires=[_fire(CosineFIRE, bound, angles, layer, width=width) for layer in sums])
    raise ConfigError(
        f"encoding must be a T5, ALiBi, KerpleLog, KerplePower or Sandwich, got {type(encoding).__name__}"
    )


Layer = tuple[Tensor | float, Tensor | float]  # weight and bias; a number fills the whole tensor
F = TypeVar("F", bound=FIRE)


def _logarithm(bound: int, r1: float, r2: float) -> FIRE:
    fire = FIRE(num_heads=1, hidden_layers=0, L=float(bound), eps=0.0).double()
    assert fire.c is not None
    fire.c.fill_(r2)
    return _fill(fire, (-r1 * fire.psi(torch.tensor(bound)), 0.0))


def _power(bound: int, r1: float, r2: float) -> FIRE:
    fire = _fire(PowerFIRE, bound, (1.0, 0.0), (-r1 * float(bound) ** r2, 0.0))
    fire.exponent = r2
    return fire


def _fire(make: type[F], bound: int, *layers: Layer, width: int = 1) -> F:
    """Return a FIRE with ψ(x) = x, the threshold at the bound, no eps, and the given layers."""
    hidden = len(layers) - 1
    fire = make(num_heads=1, hidden_layers=hidden, width=width, transform="identity", L=float(bound), eps=0.0)
    return _fill(fire.double(), *layers)


def _fill(fire: F, *layers: Layer) -> F:
    for linear, (weight, bias) in zip(cast(list[nn.Linear], list(fire.layers)), layers, strict=True):
        linear.weight.copy_(torch.as_tensor(weight, dtype=torch.float64))
        linear.bias.copy_(torch.as_tensor(bias, dtype=torch.float64))
    return fire


@torch.no_grad()
def difference(fire: FIRE, table: Float[Tensor, " n"], bound: int) -> float:
    """Return the largest |b(i, j) - table[i - j]| of a one-head FIRE over all pairs j <= i <= bound.

    The coordinate is computed for every pair. f is evaluated for every distance of the last query, and otherwise only
    for pairs whose coordinate differs from the last query's at that distance.
    """
    distance = torch.arange(bound + 1)
    last = fire.coordinate(torch.tensor(bound), bound - distance)
    errors = [(fire.f(last[:, None])[:, 0] - table).abs().max()]
    for rows in distance.split(_ROWS):
        query = rows[:, None]
        key = torch.minimum(distance[: int(rows[-1]) + 1], query)
        x = fire.coordinate(query, key)
        other = x != last[query - key]
        if other.any():
            errors.append((fire.f(x[other][:, None])[:, 0] - table[(query - key)[other]]).abs().max())
    return float(torch.stack(errors).max())  # NaN if any is NaN


@torch.no_grad()
def rounding(fire: FIRE) -> float:
    """Return the bound on the rounding error of f and of the bias that it is compared with, together, in float64.

    The bound is relative to the sizes that f's last layer adds up. One operation has a relative error of EPS/2, and a
    library function such as a logarithm EPS. `lost` is the error of the last layer's inputs, `other` that of the other
    bias:

        linear     one division; with ψ = ln(1 + c d) ψ(d) and ψ(L) as well, twice each
                   other: a product, and the weight
        steps      nothing: d / L and s_k / L are rounded alike, so that x >= s_k / L exactly where d >= s_k
                   other: the jumps
        cosines    the angle w x by w, x and their product, in the other bias d times a frequency; the cosine itself
                   other: a sum of n squared sines, each of them off by 2 EPS
        a power    x^r by r times what x loses, and itself; other: d^r, L^r and two products

    The last layer multiplies n of these and adds them to its own bias. Products with 0 and 1 are exact. A sum of some
    of the jumps is at most the sum of all upward jumps, or of all downward jumps.
    """
    layers = cast(list[nn.Linear], list(fire.layers))
    first, last, bias = layers[0].weight.abs()[:, 0], layers[-1].weight[0], layers[-1].bias
    n, sizes, jumps = len(last), float(last.abs().sum() + bias.abs().sum()), torch.cat([last, bias])
    lost, summed, other = torch.zeros_like(last), (n + 1) / 2 * sizes, 1.0
    match fire:
        case StepFIRE():
            summed = n / 2 * float(torch.maximum(jumps.clamp(min=0).sum(), jumps.clamp(max=0).sum().abs()))
            other = 0.5
        case CosineFIRE():
            lost, other = 2 * first + 1, n / 2 + 2
        case PowerFIRE():
            lost, other = lost + fire.exponent / 2 + 1, 3.0
        case _:
            lost = lost + (0.5 if fire.c is None else 4.5)
    return EPS * (float(last.abs() @ lost) + summed + other * sizes)


@torch.no_grad()
def in_attention(fires: Heads, encoding: DistanceBias, bound: int, backend: str) -> Iterator[tuple[float, float]]:
    """Yield the difference of attention with each FIRE from attention with `encoding`, and the allowed difference.

    They are compared at the first positions and at positions that are spread up to the bound.
    """
    together = torch.arange(min(bound + 1, TOKENS))
    scattered = torch.linspace(0, bound, len(together), dtype=torch.float64).long()
    for positions in (together, scattered):
        n = len(positions)
        q, k, v = (numbers(314 + m, 2, HEADS, n, HEAD_DIM) for m in range(3))
        scaled, largest = HEAD_DIM**-0.5 * float((q.abs() @ k.abs().mT).max()), float(v.abs().max())
        # Consecutive positions are passed as None, because a backend may treat them differently.
        info = TokenInfo(None if n == bound + 1 or positions is together else positions[None])
        expected = attend(q, k, v, encoding, tokens=info, backend=backend)
        for h, fire in enumerate(fires):
            head = slice(h, h + 1)
            actual = attend(q[:, head], k[:, head], v[:, head], fire, tokens=info, backend=backend)
            layer = cast(nn.Linear, fire.layers[-1])
            # The error of the bias as above and of slope · x + intercept, and that of the logits' sums on both sides. A
            # weight has twice that as relative error, and the sums of weights and values are rounded once for every
            # key.
            lost = rounding(fire) + 4 * EPS * float(layer.weight.abs().sum() + layer.bias.abs().sum())
            lost += 2 * (HEAD_DIM + 2) * EPS * scaled
            yield float((actual - expected[:, head]).abs().max()), (2 * lost + 2 * n * EPS) * largest


def subjects(make: type[PositionEncoding]) -> Iterator[DistanceBias]:
    """Yield an instance for every changed setting, with parameters far from their initial values and bounds."""
    cases = EncodingCase.of(make).variants()
    if make is T5:  # the FIRE paper's baseline, and buckets for far keys
        cases.append(EncodingCase(T5, (("num_buckets", 64), ("max_distance", 2048))))
    for n, case in enumerate(cases):
        encoding = cast(DistanceBias, case.build(num_heads=HEADS))
        with torch.no_grad():
            for m, parameter in enumerate(encoding.parameters()):
                parameter.copy_(numbers(310 + 10 * n + m, *parameter.shape) * 1.5)
        yield encoding


def prove(make: type[PositionEncoding]) -> Iterator[Result]:
    encodings = list(subjects(make))
    for bound in BOUNDS:
        pairs = []
        for encoding in encodings:
            with torch.no_grad():
                table = encoding.bias(torch.arange(bound + 1))
            for fire, head in zip(as_fire(encoding, bound), table, strict=True):
                pairs.append((difference(fire, head, bound), rounding(fire)))
        yield Result.of(THEOREM, make, f"all pairs to position {bound:,}, settings: {len(encodings)}", pairs)
        if make in PLAIN:
            for backend in differentiable_backends():
                constructions = [(as_fire(encoding, bound), encoding) for encoding in encodings]
                used = [e for fires, original in constructions for e in (original, *fires)]
                if not any(_unsupported_reason(encoding, backend) for encoding in used):
                    compared = (in_attention(*both, bound, backend) for both in constructions)
                    pairs = list(chain.from_iterable(compared))
                    where = f"attention to position {bound:,}, settings: {len(encodings)}, {backend}"
                    yield Result.of(THEOREM, make, where, pairs)


def _unsupported_reason(encoding: PositionEncoding, backend: str) -> str | None:
    return unsupported_reason(backend, encoding.modifiers(Span.of(2)), Span.of(2))


THEOREM = Theorem(
    name="FIRE expresses others",
    statement="FIRE has the bias of T5, ALiBi, KERPLE and Sandwich, exactly, for all positions up to any bound",
    source="Li et al. 2024, theorem 3.1 and appendix A",
    about=lambda: (ALiBi, T5, KerpleLog, KerplePower, Sandwich),
    prove=prove,
    selects_all=(FIRE,),
)
