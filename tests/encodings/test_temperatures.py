"""Temperatures: they go by position IDs, combine with any encoding, and leave what they combine with as it is."""

import pytest
import torch

from lengthwise import TokenInfo, attend, encodings
from lengthwise.attention import BACKENDS, Mask, plan
from lengthwise.config import ConfigError, choose
from lengthwise.encodings import ENCODINGS, Combined, Temperature
from lengthwise.forms import AttentionModifiers, ContentBias, KeyBias, QueryGain, RelativeKeyBias, ToeplitzBias
from lengthwise.span import Span

SIZES = {"num_heads": 2, "head_dim": 8, "d_model": 16, "train_length": 8}
TEMPERATURES = [make for make in ENCODINGS if issubclass(make, Temperature)]
SHORT = {"Llama4": {"step": 4}, "Ministral": {"step": 4}, "Beam": {"length": 4.0}, "Inkling": {"length": 4.0}}


def temperature(make):
    torch.manual_seed(0)
    built = choose(make, **SHORT.get(make.__name__, {})).build(**SIZES).double()
    with torch.no_grad():
        for p in built.parameters():
            p.copy_(torch.rand_like(p) + 0.2)
    return built


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("make", TEMPERATURES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "name", ["rope", *(pytest.param(n, marks=pytest.mark.slow) for n in ("alibi", "bandedbias", "transformerxl"))]
)
def test_with_any_encoding_the_logits_are_scaled_by_the_position(make, name):
    """Of padded and packed rows too: each document has the factors of its own positions."""
    base = ENCODINGS.parse(name).build(**SIZES).double()
    both, x = Combined(encoding=base, temperature=temperature(make)), numbers(4, 2, 20, 16)
    q, k, v = (numbers(n, 2, 2, 20, 8) for n in range(3))
    documents = torch.tensor([[0] * 9 + [1] * 11, [-1] * 6 + [5] * 14])
    out = attend(q, k, v, both, tokens=TokenInfo(documents=documents, x=x))
    for row, part in ((0, slice(0, 9)), (0, slice(9, 20)), (1, slice(6, 20))):
        alone = [t[row : row + 1, :, part] for t in (q, k, v)]
        wanted = attend(*alone, both, tokens=TokenInfo(x=x[row : row + 1, part]))
        torch.testing.assert_close(out[row : row + 1, :, part], wanted, rtol=0, atol=1e-12)
    # Scaling q by hand is the same, unless there is a bias.
    if name == "rope":
        gain = both.modifiers(Span.of(20)).gain.gain
        torch.testing.assert_close(attend(q, k, v, both), attend(q * gain[..., None], k, v, base), rtol=0, atol=1e-12)


def test_only_inklings_factor_multiplies_a_bias():
    alibi = encodings.ALiBi(num_heads=2)
    q, k, v = (numbers(n, 1, 2, 20, 8) for n in range(3))
    for make in TEMPERATURES:
        both = Combined(encoding=alibi, temperature=temperature(make))
        modifiers = both.modifiers(Span.of(20))
        assert modifiers.gain.scales_terms == (make is encodings.Inkling)
        bias = (
            alibi.modifiers(Span.of(20)).terms[0].table[:, (torch.arange(20)[:, None] - torch.arange(20)).clamp(min=0)]
        )
        gain = modifiers.gain.gain[..., None]
        logits = q @ k.mT * 8**-0.5 * gain + (bias * gain if make is encodings.Inkling else bias)
        hidden = torch.ones(20, 20, dtype=torch.bool).triu(1)
        wanted = logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        torch.testing.assert_close(attend(q, k, v, both), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["table", "content", "vectors"])
def test_every_backend_scales_terms_or_says_why_not(kind):
    """The output, and the gradients of the gain and of the term."""
    results = {}
    for name, backend in BACKENDS.items():
        q, k, v = (numbers(n, 1, 2, 20, 8).requires_grad_() for n in range(3))
        gain, table = (numbers(5, 1, 2, 20).abs() + 0.5).requires_grad_(), numbers(6, 2, 7).requires_grad_()
        vectors = numbers(7, 1, 9, 8).requires_grad_()
        terms = {
            "table": (ToeplitzBias(table),),
            "content": (ContentBias(numbers(8, 1, 2, 20, 8), vectors),),
            "vectors": (RelativeKeyBias(vectors, 0, numbers(9, 2, 8)), KeyBias(numbers(10, 2, 8))),
        }[kind]
        modifiers = AttentionModifiers(terms=terms, gain=QueryGain(gain, scales_terms=True))
        if reason := backend.unsupported_reason(modifiers, Span.of(20), Mask(20, 20), q):
            assert (name, kind) == ("fused", "table"), reason
            assert reason == "a QueryGain scales ToeplitzBias, and it multiplies q only"
            continue
        learns = name != "flex"
        with torch.set_grad_enabled(learns):
            out = plan(modifiers, Span.of(20), Mask(20, 20), q, backend=name)(q, k, v)
        leaves = [q, k, v, gain, table if kind == "table" else vectors]
        results[name] = [out, *(torch.autograd.grad(out, leaves, numbers(11, *out.shape)) if learns else ())]
    for found in results.values():
        for actual, wanted in zip(found, results["reference"], strict=False):
            torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"temperature": encodings.NoPE()}, "temperature must be an instance of Temperature, or None, got NoPE"),
        ({"sinks": True}, "sinks must be an instance of Sinks, or None, got bool"),
        ({"encoding": "rope"}, "encoding must be an encoding, got str"),
        (
            {"encoding": encodings.LogN(train_length=8), "temperature": encodings.Llama4()},
            "LogN cannot be given another temperature",
        ),
    ],
)
def test_what_cannot_be_combined(arguments, words):
    with pytest.raises(ConfigError, match=words):
        Combined(**{"encoding": encodings.NoPE(), **arguments})


def test_an_encoding_with_a_gain_of_its_own_takes_no_temperature():
    class Gained(encodings.NoPE):
        def modifiers(self, span):
            return encodings.LogN(train_length=8).modifiers(span)

    both = Combined(encoding=Gained(), temperature=encodings.Beam())
    with pytest.raises(ConfigError, match="has a QueryGain or a SinkLogit of its own"):
        attend(*(numbers(n, 1, 1, 4, 8) for n in range(3)), both)
