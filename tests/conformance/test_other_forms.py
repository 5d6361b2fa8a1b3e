"""Encodings in forms that none of the listed ones uses yet answer the same questions: the suite needs no edit."""

from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from lengthwise.attention import Mask
from lengthwise.conformance import QUESTIONS, EncodingCase, Verdict, backends_of
from lengthwise.conformance.cases import differentiable_backends
from lengthwise.encodings import ENCODINGS, PositionEncoding, RoPE
from lengthwise.forms import (
    AttentionModifiers,
    DenseBias,
    KeyBias,
    LogitTransform,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    ToeplitzBias,
)


class Vectors(PositionEncoding):
    """Shaw: a vector for each distance up to `distance_bound`, on keys and, if asked, on values."""

    def __init__(self, *, head_dim: int, reach: int = 16, on_values: bool = True):
        super().__init__()
        self.on_values = on_values
        self.keys = nn.Parameter(torch.randn(1, reach + 1, head_dim))
        self.values = nn.Parameter(torch.randn(1, reach + 1, head_dim)) if on_values else None

    def modifiers(self, span):
        values = () if self.values is None else (RelativeValues(self.values.double()),)
        return AttentionModifiers(terms=(RelativeKeyBias(self.keys.double()),), values=values)


class FourTerms(PositionEncoding):
    """Transformer-XL's shape: content, query and distance, a vector for keys, a vector for distances."""

    def __init__(self, *, num_heads: int, head_dim: int):
        super().__init__()
        self.u = nn.Parameter(torch.randn(num_heads, head_dim))
        self.v = nn.Parameter(torch.randn(num_heads, head_dim))

    def modifiers(self, span):
        pair = torch.arange(self.u.shape[1] // 2, dtype=torch.float64)
        angle = torch.arange(min(span.length, 100))[:, None] * 0.01 ** (pair / len(pair))
        table = torch.cat([angle.sin(), angle.cos()], -1)[None]
        return AttentionModifiers(terms=(RelativeKeyBias(table, vector=self.v), KeyBias(self.u)))


class Shared(PositionEncoding):
    """A dense bias, alike for all heads."""

    shift_invariant: ClassVar[bool] = False

    def __init__(self, *, rate: float = 0.3):
        super().__init__()
        self.rate = rate

    def modifiers(self, span):
        q, k = span.q.double(), span.k.double()
        bias = torch.sin(self.rate * q[:, None, :, None]) * torch.cos(k)[:, None, None]
        return AttentionModifiers(terms=(DenseBias(bias),))


class Counts(PositionEncoding):
    """A rewrite of whole rows: what a row already looks at pushes the rest down (CoPE and DAPE have this shape)."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, 1))

    def modifiers(self, span):
        def rewrite(logits, q, visible, scale, span):
            gates = torch.sigmoid(logits).masked_fill(~visible, 0.0)
            return logits - self.weight.to(logits.dtype) * gates.flip(-1).cumsum(-1).flip(-1)

        return AttentionModifiers(logit_transform=LogitTransform(rewrite))


class Gated(PositionEncoding):
    """A bias from content: how much every token between a query and a key lets through (FoX has this shape)."""

    def __init__(self, *, num_heads: int, d_model: int):
        super().__init__()
        self.gate = nn.Linear(d_model, num_heads)

    def features(self, x):
        dtype = torch.promote_types(x.dtype, torch.float32)
        gate = nn.functional.linear(x.to(dtype), self.gate.weight.to(dtype), self.gate.bias.to(dtype))
        return nn.functional.logsigmoid(gate)

    def content(self, features, span, documents):
        visible = Mask(span.q.shape[1], span.k.shape[1], True, documents).visible(features.device)
        seen = visible[:, None] * features.double().mT[:, :, None]  # what each query sees of the gates, [b, h, i, j]
        after = seen.flip(-1).cumsum(-1).flip(-1) - seen
        return (DenseBias(after),)


class Stretched(RoPE):
    """xPos' shape: rotate, and stretch by gains that cancel but for the distance; a bias on top."""

    def __init__(self, *, num_heads: int, head_dim: int):
        super().__init__(head_dim=head_dim, layout="half")
        self.num_heads = num_heads

    def modifiers(self, span):
        f = self.frequencies(torch.tensor(span.length))
        angles = [p[:, None, :, None] * f for p in (span.q, span.k)]
        gains = torch.exp(-1e-7 * angles[0]), torch.exp(1e-7 * angles[1])
        turn = Rotation(*angles, *gains, self.layout)
        return AttentionModifiers(
            rotation=turn,
            terms=(ToeplitzBias(-0.1 * torch.arange(span.length).double().sqrt()[None].expand(self.num_heads, -1)),),
        )


FORMS = [Vectors, FourTerms, Shared, Counts, Gated, Stretched]
MADE = pytest.mark.parametrize("make", FORMS, ids=lambda make: make.__name__)
SECONDS = ("agrees", "decoding")  # take about a second
ASKED = pytest.mark.parametrize(
    "question",
    [pytest.param(q, id=q.name, marks=[pytest.mark.medium] * (q.name in SECONDS)) for q in QUESTIONS],
)


@MADE
@ASKED
def test_form(make: Any, question: Any, refused_form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one backend that serves the form, another one for the next question; `agrees` compares all of them."""
    backends = [""]
    if question.on_backend:
        backends = [name for name in differentiable_backends() if refused_form(make, name) is None]
        turn = (FORMS.index(make) + QUESTIONS.index(question)) % len(backends)
        backends = differentiable_backends() if question.name == "agrees" else backends[turn:][:1]
    require(make, question, backends, refused_form, monkeypatch, variants=False)


@pytest.mark.slow
@MADE
@ASKED
def test_form_with_every_setting(make: Any, question: Any, refused_form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require(make, question, differentiable_backends() if question.on_backend else [""], refused_form, monkeypatch)


@pytest.mark.slow
@MADE
def test_form_on_every_backend(make: Any, refused_form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agrees = next(question for question in QUESTIONS if question.name == "agrees")
    require(make, agrees, backends_of(agrees), refused_form, monkeypatch)


def require(
    make: Any, question: Any, backends: list[str], refused_form: Any, monkeypatch: Any, variants: bool = True
) -> None:
    monkeypatch.setitem(ENCODINGS._all(), make.__name__, make)
    for backend in backends:
        answer = question(EncodingCase.of(make), backend, variants=variants)
        assert answer.verdict is not Verdict.FAILED, (backend, answer.detail)
        words = refused_form(make, backend) if backend else None
        assert (answer.verdict is Verdict.REFUSED) == (words is not None), (backend, answer)
        assert (words or "") in answer.detail
        if question.name == "vectors" and not words:
            assert answer.verdict is Verdict.NOT_APPLICABLE
