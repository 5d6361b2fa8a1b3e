"""Every question says no at least once: encodings, backends and models that are wrong in ways that have happened."""

import math
import re
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.backends.reference import Reference
from lengthwise.conformance import QUESTIONS, EncodingCase, Verdict, cases
from lengthwise.encodings import (
    ENCODINGS,
    FIRE,
    T5,
    ALiBi,
    CoPE,
    DistanceBias,
    DynamicNTK,
    FoX,
    KerpleLog,
    Learned,
    LogN,
    NoPE,
    PositionEncoding,
    RoPE,
    Sinusoidal,
)
from lengthwise.forms import AttentionModifiers, DenseBias, Rotation, ToeplitzBias, biases
from lengthwise.models import Decoder
from lengthwise.span import Span

BY_NAME = {question.name: question for question in QUESTIONS}


def ask(question: str, make: type, backend: str = "reference") -> Any:
    return BY_NAME[question](EncodingCase.of(make), backend)


def named(name: str, base: type, **members: Any) -> type:
    return type(name, (base,), members)


# ---- encodings ---------------------------------------------------------------------------------------------------


def steep(self, distance):
    return ALiBi.bias(self, distance) * (1 + 1e-9)


def one_too_many(self, distance):
    return (T5.bucket(self, distance) + (distance == 16)).clamp(max=self.num_buckets - 1)


class Crowd(PositionEncoding):
    """What a pair gets depends on the other pairs of the call."""

    def modifiers(self, span):
        d = span.distance().double().clamp(min=0)
        return AttentionModifiers(terms=(DenseBias(-(d / d.amax().clamp(min=1))[:, None]),))


def all_visible(self, logits, q, visible, scale):
    return CoPE.add_bias(self, logits, q, torch.ones_like(visible), scale)


def all_between(self, features, span, documents):
    return FoX.content(self, features, span, None)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class WrongGradient(KerpleLog):
    def bias(self, distance):
        return Doubled.apply(KerpleLog.bias(self, distance))


class Dynamic(RoPE):
    """Turns slower in longer sequences, and lets the cache keep keys that were rotated for shorter ones."""

    shift_invariant: ClassVar[bool] = False

    def frequencies(self, length):
        return RoPE.frequencies(self, length) * (8 / length).clamp(max=1.0)


class ByIndex(Sinusoidal):
    """Counts where tokens lie, not what they claim."""

    def embed(self, x, positions):
        return Sinusoidal.embed(self, x, torch.arange(x.shape[1])[None])


class ByColumn(PositionEncoding):
    """A bias from key indices, and none from positions."""

    def modifiers(self, span):
        return AttentionModifiers(
            terms=(DenseBias(torch.arange(span.k.shape[1]).double().expand(1, 1, span.q.shape[1], -1) / 9),)
        )


class Remembers(ALiBi):
    """Scales by the longest sequence that it ever saw."""

    longest = 1

    def modifiers(self, span):
        self.longest = max(self.longest, span.length)
        return AttentionModifiers(terms=(ToeplitzBias(self.bias(torch.arange(span.length)) / self.longest),))


class CachedByLength(PositionEncoding):
    """One cache for all instances, keyed by length alone."""

    tables: ClassVar[dict[int, torch.Tensor]] = {}

    def __init__(self, *, num_heads: int, rate: float = 0.1):
        super().__init__()
        self.num_heads, self.rate = num_heads, rate

    def modifiers(self, span):
        if span.length not in self.tables:
            self.tables[span.length] = -self.rate * torch.arange(span.length).double().expand(self.num_heads, -1)
        return AttentionModifiers(terms=(ToeplitzBias(self.tables[span.length]),))


class Centred(Learned):
    """Mixes the rows of a batch."""

    def embed(self, x, positions):
        return Learned.embed(self, x - x.mean(0, keepdim=True), positions)


class Draws(ALiBi):
    def modifiers(self, span):
        torch.rand(1)
        return ALiBi.modifiers(self, span)


class Peeks(Learned):
    """Mixes the tokens of a row."""

    def embed(self, x, positions):
        return Learned.embed(self, x + 1e-3 * x.roll(-1, 1), positions)


class Deaf(ALiBi):
    def __init__(self, *, num_heads: int, steepness: float = 1.0):
        super().__init__(num_heads=num_heads)


class Unguessable(ALiBi):
    def __init__(self, *, num_heads: int, path: str = "here"):
        super().__init__(num_heads=num_heads)


class OneTable(PositionEncoding):
    """A table of the class, trained by everybody."""

    shift_invariant: ClassVar[bool] = False
    table = nn.Parameter(torch.randn(5000, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64))

    def __init__(self, *, d_model: int):
        super().__init__()
        self.weight = OneTable.table

    def embed(self, x, positions):
        return x + self.weight[positions].to(x.dtype)


class EndsInSilence(Learned):
    """Wraps around at the end of its table."""

    def embed(self, x, positions):
        return Learned.embed(self, x, positions % self.max_length)


class EndsBadly(PositionEncoding):
    """An index error, and no word about it before."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(num_heads, 600))

    def modifiers(self, span):
        return AttentionModifiers(
            terms=(DenseBias(self.table.double()[:, span.distance().clamp(min=0)].transpose(0, 1)),)
        )


class Overflows(ALiBi):
    def bias(self, distance):
        return (-torch.exp(distance.double() / 100)).clamp(min=-1e30).log().expand(len(self.slopes), -1)


class RoundedAngles(RoPE):
    """Frequencies in a buffer, which follows the model's dtype."""

    def __init__(self, *, head_dim: int):
        super().__init__(head_dim=head_dim)
        self.register_buffer("f", RoPE.frequencies(self, torch.tensor(1)), persistent=False)

    def frequencies(self, length):
        return self.f


class FloatAngles(RoPE):
    """Angles in float32: nothing is left of a fraction of a radian at 10^6."""

    def modifiers(self, span):
        f = self.frequencies(torch.tensor(span.length)).float()
        return AttentionModifiers(rotation=Rotation(*(p[:, None, :, None].float() * f for p in (span.q, span.k))))


class RoundedSlowAngles(RoundedAngles):
    """Turns so slowly that what rounding costs is small: 1e-5 radians at 10^6."""

    def __init__(self, *, head_dim: int):
        super().__init__(head_dim=head_dim)
        self.f /= 3000


class Apart(PositionEncoding):
    """A slope times either position in the slope's dtype, then the difference: large numbers without their digits."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.slope = nn.Parameter(torch.full((1, num_heads, 1, 1), 1.234567e-3))

    def modifiers(self, span):
        return AttentionModifiers(
            terms=(DenseBias(self.slope * span.k[:, None, None] - self.slope * span.q[:, None, :, None]),)
        )


class FloatSines(Sinusoidal):
    """Sines of angles in float32, whatever the model is in."""

    def table(self, positions):
        pair = torch.arange(0, self.d_model, 2).float()
        angle = positions[..., None].float() * self.base ** -(pair / self.d_model)
        parts = angle.sin(), angle.cos()
        return torch.cat(parts, -1) if self.layout == "concat" else torch.stack(parts, -1).flatten(-2)


class FloatLogN(RoPE):
    """Angles in float32 where no shift shows it: the logits go by the position anyway."""

    shift_invariant = False

    def modifiers(self, span):
        return replace(super().modifiers(span), gain=LogN(train_length=cases.TRAIN_LENGTH).modifiers(span).gain)

    def _angles_and_gain(self, positions, own, length):
        return positions[:, None].float() * self.frequencies(torch.tensor(1)).float(), None


class LogBias(DistanceBias):
    """A bias that grows with the logarithm of the distance, computed as a user may write it first."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.1, 1, num_heads))
        self.fixed = torch.linspace(0.1, 1, num_heads)[:, None]

    def bias(self, distance):
        return -self.slope.double()[:, None] * distance.double().log1p()


def float_distance(self, distance):
    """The product with the learned slope has digits that float32 does not have."""
    return -self.slope[:, None] * distance.float().log1p()


def float_bias(self, distance):
    return -self.slope.float()[:, None] * distance.double().log1p()


def float_by_default(self, distance):
    return -self.slope.double()[:, None] * distance.log1p()


def float_constants(self, distance):
    return -self.fixed * distance.double().log1p()


class Bent(DynamicNTK):
    """Depends on the length, as it may, and on where a pair stands too."""

    def _angles_and_gain(self, positions, own, length):
        angle, gain = super()._angles_and_gain(positions, own, length)
        return angle + 1e-3 * positions[:, None].double() ** 1.5, gain


class OfTheLongest(DynamicNTK):
    """Every document is rotated for the longest of the batch."""

    def modifiers(self, span):
        if span.length_q is not None:
            longest = span.length_k.amax()
            span = replace(span, length_q=longest.expand_as(span.length_q), length_k=longest.expand_as(span.length_k))
        return super().modifiers(span)


class Widens(Sinusoidal):
    def embed(self, x, positions):
        return x + self.table(positions)


class Idle(ALiBi):
    """A parameter for show."""

    def __init__(self, *, num_heads: int):
        super().__init__(num_heads=num_heads)
        self.temperature = nn.Parameter(torch.ones(num_heads))


class Cut(KerpleLog):
    """A table kept without its graph."""

    def bias(self, distance):
        return KerpleLog.bias(self, distance).detach() + self.r1[:, None] * 0


class Diagonal(KerpleLog):
    """The gradient of d^r at distance 0, forgotten."""

    def bias(self, distance):
        return -self.r1.double()[:, None] * torch.exp(self.r2.double()[:, None] * distance.log())


class Forgets(PositionEncoding):
    """Random numbers that are neither parameter nor buffer."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.slopes = torch.rand(num_heads)

    def modifiers(self, span):
        return AttentionModifiers(terms=(ToeplitzBias(-self.slopes.double()[:, None] * torch.arange(span.length)),))


class Unwritable(ALiBi):
    def __init__(self, *, num_heads: int, reach: Any = math.inf):
        super().__init__(num_heads=num_heads)
        self.bound = reach

    def bias(self, distance):
        return ALiBi.bias(self, distance).clamp(min=-self.bound)


class Takes(ALiBi):
    """Accepts whatever it is told."""

    def __init__(self, *, num_heads: int, steepness: Any = 1.0):
        super().__init__(num_heads=num_heads)


ENCODING_MUTANTS = [
    ("vectors", named("ALiBi", ALiBi, bias=steep), "is expected"),
    ("vectors", named("T5", T5, bucket=one_too_many), "is expected"),
    ("vectors", named("RoPE", NoPE, __init__=lambda self, *, head_dim, **_: NoPE.__init__(self)), "no rotation"),
    ("vectors", named("Learned", Learned, embed=EndsInSilence.embed), "no error"),
    (
        "vectors",
        named("FIRE", FIRE, modifiers=lambda self, span: FIRE.modifiers(self, Span(span.q + 1, span.k, span.length))),
        "",
    ),
    ("agrees", Crowd, "off by"),
    ("agrees", ByColumn, "off by"),
    ("agrees", WrongGradient, "along a direction"),
    ("decoding", Dynamic, "off by"),
    ("decoding", ByIndex, "off by"),
    ("packed", ByIndex, "off by"),
    ("packed", OfTheLongest, "layer: document 0 of 5 tokens: off by"),
    ("padding", ByIndex, "off by"),
    ("history", Remembers, "after other calls"),
    ("history", Centred, "a row alone"),
    ("history", Draws, "random"),
    ("future", Peeks, "from index 1 on"),
    ("future", named("CoPE", CoPE, add_bias=all_visible), "change earlier outputs"),
    ("packed", named("FoX", FoX, content=all_between), "document 0 change another document"),
    ("shift", named("ALiBi", ALiBi, shift_invariant=False), "declared not shift invariant"),
    ("shift", named("Sinusoidal", Sinusoidal, shift_invariant=True), "declared shift invariant"),
    ("shift", named("FIRE", FIRE, shift_invariant=True), "declared shift invariant"),
    ("shift", Bent, "depends on more than the distance"),
    ("shift", FloatLogN, "depends on more than the distance"),
    ("shift", named("DynamicNTK", DynamicNTK, shift_invariant=True), "declared shift invariant"),
    ("settings", Deaf, "steepness=1.5 has no effect"),
    ("settings", Unguessable, "alternatives"),
    ("settings", CachedByLength, "rate=.* has no effect"),
    ("instances", OneTable, "share a tensor"),
    ("lengths", EndsInSilence, "gives no error"),
    ("lengths", EndsBadly, "IndexError"),
    ("lengths", Overflows, "not finite"),
    ("precision", RoundedAngles, "off by"),
    ("precision", FloatAngles, "off by"),
    # By little more than is allowed, so that a looser limit lets them through (and bfloat16 finds them, if anything
    # does).
    ("precision", RoundedSlowAngles, "a rotated query in torch.float32, .*: off by"),
    ("precision", Apart, "attention in torch.float32, .*: off by"),
    ("precision", FloatSines, "the embedding in float64 is computed in float32, positions 999968"),
    ("precision", FloatLogN, "attention in float64 is computed in float32, positions 999968"),
    *(
        ("precision", named(compute.__name__, LogBias, bias=compute), "attention in float64 is computed in float32")
        for compute in (float_distance, float_bias, float_by_default, float_constants)
    ),
    ("precision", Widens, "has the dtype"),
    ("gradients", Idle, "temperature gets no gradient"),
    ("gradients", Cut, "r1 gets no gradient"),
    ("gradients", Diagonal, "not finite"),
    ("saving", Forgets, "other logits"),
    ("config", Unwritable, "JSON"),
    ("config", Takes, "is accepted"),
]


@pytest.mark.parametrize(
    ("question", "make", "words"),
    ENCODING_MUTANTS,
    ids=[f"{question}-{make.__name__}" for question, make, _ in ENCODING_MUTANTS],
)
def test_a_wrong_encoding_is_found(question: str, make: type, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CachedByLength.tables.clear()
    monkeypatch.setitem(ENCODINGS._all(), make.__name__, make)
    answer = ask(question, make)
    assert answer.verdict is Verdict.FAILED, answer
    assert re.search(words, answer.detail), answer.detail


def test_the_same_bias_in_float64_is_precise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODINGS._all(), "LogBias", LogBias)
    assert ask("precision", LogBias).verdict is Verdict.OK


def test_sharing_through_a_class_is_seen_by_instances_too() -> None:
    class Tuned(CachedByLength):
        """Each instance spoils the cache of the others."""

        def modifiers(self, span):
            self.tables.clear()
            self.tables[40] = torch.full((self.num_heads, 40), self.rate).double()
            return AttentionModifiers(terms=(ToeplitzBias(next(iter(self.tables.values())) * len(vars(type(self)))),))

        def __init__(self, *, num_heads: int, rate: float = 0.1):
            super().__init__(num_heads=num_heads, rate=rate)
            setattr(type(self), f"made_{id(self)}_{rate}_{torch.initial_seed()}", True)

    assert "changes this one" in ask("instances", Tuned).detail


# ---- backends ----------------------------------------------------------------------------------------------------


class BackendOf(Reference):
    """The reference, with another `prepare` and another `unsupported_reason`."""

    def __init__(self, prepare: Any, unsupported_reason: Any = BACKENDS["reference"].unsupported_reason) -> None:
        self.prepare, self.unsupported_reason = prepare, unsupported_reason


def no_gradient(modifiers, span, mask):
    terms = tuple(ToeplitzBias(t.table.detach()) if isinstance(t, ToeplitzBias) else t for t in modifiers.terms)
    return BACKENDS["reference"].prepare(
        AttentionModifiers(modifiers.rotation, terms, modifiers.values, modifiers.logit_transform), span, mask
    )


def wrong_heads(modifiers, span, mask):
    run = BACKENDS["reference"].prepare(modifiers, span, mask)
    spread = lambda x, h: x.repeat(1, h // x.shape[1], 1, 1)  # noqa: E731
    return lambda q, k, v, **rest: run(q, spread(k, q.shape[1]), spread(v, q.shape[1]), **rest)


def first_queries(modifiers, span, mask):
    """Fewer queries than keys are taken for the first, as some causal kernels do."""
    run = BACKENDS["reference"].prepare(modifiers, span, Mask(mask.keys, mask.keys, mask.causal, mask.documents))

    def attend(q, k, v, **rest):
        missing = k.shape[2] - q.shape[2]
        return run(torch.nn.functional.pad(q, (0, 0, 0, missing)), k, v, **rest)[:, :, : q.shape[2]]

    return (
        attend
        if not modifiers.terms and not modifiers.rotation
        else BACKENDS["reference"].prepare(modifiers, span, mask)
    )


def sees_one_more(modifiers, span, mask):
    run = BACKENDS["reference"].prepare(modifiers, span, Mask(mask.queries, mask.keys, False, mask.documents))
    return run if mask.queries > 1 else BACKENDS["reference"].prepare(modifiers, span, mask)


def no_documents(modifiers, span, mask):
    return BACKENDS["reference"].prepare(modifiers, span, Mask(mask.queries, mask.keys, mask.causal))


def wrong_ahead(modifiers, span, mask):
    """The columns of keys after the query in the wrong order: nothing that a causal mask shows."""

    def turn(t):
        return replace(t, table=torch.cat([t.table[:, : -t.first].flip(1), t.table[:, -t.first :]], 1))

    terms = tuple(turn(t) if isinstance(t, ToeplitzBias) and t.first < 0 else t for t in modifiers.terms)
    return BACKENDS["reference"].prepare(replace(modifiers, terms=terms), span, mask)


def half_precision(modifiers, span, mask):
    run = BACKENDS["reference"].prepare(modifiers, span, mask)

    def attend(q, k, v, **rest):
        return run(q.bfloat16(), k.bfloat16(), v.bfloat16(), **rest).to(q.dtype)

    return attend


BACKEND_MUTANTS = [
    ("agrees", KerpleLog, no_gradient, "gradient of r1"),
    ("agrees", ALiBi, wrong_heads, "off by"),
    ("agrees", ALiBi, wrong_ahead, "bidirectional: output: off by"),
    ("agrees", NoPE, first_queries, "off by"),
    ("agrees", RoPE, half_precision, "off by"),
    ("vectors", ALiBi, half_precision, "is expected"),
    ("decoding", NoPE, first_queries, "off by"),
    ("future", RoPE, sees_one_more, "change earlier outputs"),
    ("packed", ALiBi, no_documents, "off by"),
    ("padding", T5, no_documents, "off by"),
    ("precision", RoPE, half_precision, "off by"),
]


@pytest.mark.parametrize(
    ("question", "make", "prepare", "words"),
    BACKEND_MUTANTS,
    ids=[f"{question}-{prepare.__name__}" for question, _, prepare, _ in BACKEND_MUTANTS],
)
def test_a_wrong_backend_is_found(
    question: str, make: type, prepare: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "broken", BackendOf(prepare))
    answer = ask(question, make, "broken")
    assert answer.verdict is Verdict.FAILED, answer
    assert words in answer.detail


@pytest.mark.parametrize("make", [ALiBi, T5])
def test_a_reference_that_is_wrong_for_keys_after_the_query_is_found(
    make: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all agree with the reference, plain numbers alone can find it; causal attention never does."""
    right = biases.column
    monkeypatch.setattr(
        biases,
        "column",
        lambda distance, *table: (right(distance, *table) - (distance < 0).long()).clamp(min=0),
    )
    answer = ask("agrees", make, "reference")
    assert answer.verdict is Verdict.FAILED, answer
    assert "bidirectional: off by" in answer.detail


@pytest.mark.medium
def test_a_refusal_is_an_answer_and_has_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    no_bias = lambda modifiers, *_: "it has no biases" if modifiers.terms else None  # noqa: E731
    monkeypatch.setitem(BACKENDS, "narrow", BackendOf(BACKENDS["reference"].prepare, no_bias))
    answer = ask("agrees", ALiBi, "narrow")
    assert (answer.verdict, answer.detail) == (Verdict.REFUSED, "it has no biases")
    assert ask("agrees", RoPE, "narrow").verdict is Verdict.OK

    falls_back = lambda modifiers, span, mask, q, backend: BACKENDS["sdpa"].prepare(modifiers, span, mask)  # noqa: E731
    monkeypatch.setattr(cases, "plan", falls_back)
    answer = ask("agrees", ALiBi, "narrow")
    assert answer.verdict is Verdict.FAILED
    assert "it runs, but unsupported_reason returns" in answer.detail


# ---- models ------------------------------------------------------------------------------------------------------


class HiddenTable(Decoder):
    """Two encodings are on: the one that was asked for, and a table."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        if not isinstance(self.encodings[0], NoPE):
            self.extra = nn.Parameter(torch.zeros(1, 64, self.config.d_model))


class HiddenSines(Decoder):
    """Two encodings are on, and no parameter shows it."""

    def _span(self, *arguments: Any):
        span, mask = super()._span(*arguments)
        self.now = span.q
        return span, mask

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.dropout.forward = lambda x: x + self.now[..., None].sin()  # type: ignore[method-assign]


class Unshared(Decoder):
    """`share_encoding` is not looked at."""

    def __init__(self, config: Any, encoding: Any, **settings: Any):
        super().__init__(config, encoding, **settings)
        more = config.num_layers - len(self.encodings)
        self.encodings.extend(
            encoding.build(num_heads=4, head_dim=16, d_model=64, train_length=16) for _ in range(more)
        )
        self.module_indices = [(layer,) for layer in range(config.num_layers)]


@pytest.mark.parametrize(
    ("question", "make", "decoder", "words"),
    [
        ("alone", T5, HiddenTable, "extra"),
        ("alone", RoPE, HiddenSines, "reads positions"),
        ("gradients", FIRE, Unshared, "as declared"),
    ],
)
def test_a_wrong_model_is_found(
    question: str, make: type, decoder: type, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "Decoder", decoder)
    answer = ask(question, make)
    assert answer.verdict is Verdict.FAILED, answer
    assert words in answer.detail


def test_every_question_has_said_no() -> None:
    said = {question for question, *_ in ENCODING_MUTANTS} | {question for question, *_ in BACKEND_MUTANTS} | {"alone"}
    assert said == set(BY_NAME)
