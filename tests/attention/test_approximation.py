"""A bias whose pieces approximate a function: the reference evaluates the function, the others keep the stated bounds.

The bounds on FIRE's chords (its docstring): δ = max|f''| / (8 · 4095²) on the bias b and σ = max|f''| / (2 · 4095) on
the slope f'. What follows from them for the output and each gradient is derived beside each test; no tolerance is
fitted.
"""

import pytest
import torch

import lengthwise
from lengthwise import attention
from lengthwise.attention import BACKENDS, EncodingCache, Mask, TokenInfo, plan
from lengthwise.conformance.agreement import curvature
from lengthwise.encodings import FIRE
from lengthwise.forms import AttentionModifiers, DenseBias, PiecewiseLinearBias
from lengthwise.span import Span

HEADS, DIM, TOKENS = 2, 4, 40
WIDE = torch.float64
OTHERS = [name for name in BACKENDS if name not in ("reference", "flex")]
ROUNDING = 1e-12


def fire(activation="gelu", **settings):
    """With |f''| of about 3,000, so that the error of chords stands out from rounding."""
    torch.manual_seed(0)
    encoding = FIRE(num_heads=HEADS, activation=activation, L=8.0, **settings).double()
    with torch.no_grad():
        for layer in encoding.layers:
            layer.weight.mul_(3.0)
        encoding.layers[0].weight.mul_(4.0)
    return encoding


def qkv(queries=TOKENS, keys=TOKENS, batch=1):
    torch.manual_seed(1)
    return [torch.randn(batch, HEADS, n, DIM, dtype=WIDE) for n in (queries, keys, keys)]


def mlp_on_pairs(encoding, positions, queries):
    """f(ψ(i-j) / ψ(max(L, i))) of every pair, by the formula: [b, h, i, j]."""
    query = positions[:, -queries:, None]
    key = torch.minimum(positions[:, None], query)
    return encoding.f(encoding.coordinate(query, key)[..., None]).movedim(-1, 1)


def with_matrix(bias, q, k, v, causal_mask):
    logits = q @ k.mT * DIM**-0.5 + bias
    return logits.masked_fill(~causal_mask, -torch.inf).softmax(-1) @ v


PLACES = {
    "consecutive": {},
    "a step of decoding": {"queries": 1},
    "positions": {"positions": torch.arange(TOKENS).square()[None]},
    "packed": {"documents": (torch.arange(TOKENS) > 14).long()[None], "batch": 2},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_the_reference_evaluates_the_function(activation, place):
    """Value and every gradient, at rounding, where chords are off by 1e-6 and more."""
    given = dict(PLACES[place])
    encoding, (q, k, v) = fire(activation), qkv(given.pop("queries", TOKENS), batch=given.pop("batch", 1))
    positions, documents = given.get("positions", torch.arange(TOKENS)[None]), given.get("documents")
    if documents is not None:
        positions = torch.where(documents == 1, positions - 15, positions)
    seen = Mask(q.shape[2], TOKENS, documents=documents).visible(q.device)[:, None]
    leaves = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), *encoding.parameters()]
    wanted = with_matrix(mlp_on_pairs(encoding, positions, q.shape[2]), q, k, v, seen)
    got = lengthwise.attend(q, k, v, encoding, tokens=TokenInfo(**given), backend="reference")
    weight = torch.randn_like(got)
    answers = [[out, *torch.autograd.grad(out, leaves, weight)] for out in (got, wanted)]
    torch.testing.assert_close(*answers, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_outputs_and_gradients_are_within_the_stated_bounds(activation, backend):
    encoding, (q, k, v) = fire(activation), [x.requires_grad_() for x in qkv()]
    most = 1.02 * curvature(encoding.f)  # 2 %: second differences miss some of a narrow peak
    delta, sigma = most / (8 * 4095**2), most / (2 * 4095)
    span, mask = Span.of(TOKENS), Mask(TOKENS, TOKENS)
    modifiers = encoding.modifiers(span)
    (term,) = modifiers.terms
    zero = torch.zeros(1, HEADS, TOKENS, TOKENS, dtype=WIDE, requires_grad=True)  # its gradient is that of the logits
    out = plan(AttentionModifiers(terms=(term, DenseBias(zero))), span, mask, q, backend="reference")(q, k, v)
    weight = torch.randn_like(out)
    leaves, learned = [q, k, v], [encoding.c, encoding.L_multiplier]
    exact = torch.autograd.grad(out, [*leaves, *learned, zero], weight, retain_graph=True)
    got_out = plan(encoding.modifiers(span), span, mask, q, backend=backend)(q, k, v)
    got = torch.autograd.grad(got_out, [*leaves, *learned], weight)

    # Every logit is off by at most δ, so every weight by at most a share ε = e^(2δ) - 1 of itself, and so are weighted
    # sums.
    share, reach = float(torch.expm1(torch.tensor(2 * delta, dtype=WIDE))), float(v.detach().abs().max())
    off = float((got_out - out).detach().abs().max())
    assert 1e-12 < off <= share * reach + ROUNDING

    # dS = P (dP - <dP, P>): each factor P is off by a share ε, and <dP, P> by ε max|dP|, so |ΔdS| <= P (4 ε) max|dP|.
    weights = (q @ k.mT * DIM**-0.5 + term_of_pairs(term, span)).detach()
    weights = weights.masked_fill(~mask.visible(q.device)[:, None], -torch.inf).softmax(-1)
    largest = (weight @ v.mT).detach().abs().amax(-1, keepdim=True)
    change = 4 * share * (1 + share) * weights * largest
    allowed = [
        change @ k.detach().abs() * DIM**-0.5,
        change.mT @ q.detach().abs() * DIM**-0.5,
        share * weights.mT @ weight.abs(),
    ]
    for name, a, b, most_off in zip("qkv", got, exact, allowed, strict=False):
        assert ((a - b).detach().abs() <= most_off + ROUNDING).all(), name

    # A gradient of c or the multiplier is Σ dS f'(x) dx: f' is off by σ, dS as above.
    slopes = slopes_of_pairs(encoding, span)
    for place, name in ((3, "c"), (4, "L_multiplier")):
        turned = coordinate_slopes(encoding, span, getattr(encoding, name)).abs()
        most_off = (exact[5].abs() + change) * sigma * turned + change * slopes.abs() * turned
        off = abs(float(got[place] - exact[place]))
        # The parameter's own gradient is float64 here; sums of 1,600 products round to about 1e-11 of the largest.
        assert off <= float(most_off.sum()) + 1e-10, name


def term_of_pairs(term: PiecewiseLinearBias, span: Span):
    x = term.distance_feature[span.distance().clamp(min=0)] * term.query_scale[..., None]
    return term.exact(x[..., None]).movedim(-1, 1).detach()


def slopes_of_pairs(encoding, span):
    x = encoding.coordinate(span.q[..., None], torch.minimum(span.k[:, None], span.q[..., None])).detach()
    x = x.requires_grad_()
    found = []
    for h in range(HEADS):
        found.append(torch.autograd.grad(encoding.f(x[..., None])[..., h].sum(), x)[0])
    return torch.stack(found, 1)


def coordinate_slopes(encoding, span, parameter):
    """dx/dparameter of every pair."""
    step, before = 1e-6, float(parameter.detach())
    at = []
    for value in (before + step, before - step):
        with torch.no_grad():
            parameter.fill_(value)
            at.append(encoding.coordinate(span.q[..., None], torch.minimum(span.k[:, None], span.q[..., None])))
            parameter.fill_(before)
    return ((at[0] - at[1]) / (2 * step))[:, None]


@torch.no_grad()
def test_what_is_kept_for_decoding_evaluates_it_too():
    encoding, kept = fire(), EncodingCache()
    for keys in (20, 21, 22):
        q, k, v = (x[:, :, :keys] for x in qkv())
        wanted = with_matrix(
            mlp_on_pairs(encoding, torch.arange(keys)[None], 1), q[:, :, -1:], k, v, torch.ones(1, dtype=torch.bool)
        )
        got = lengthwise.attend(q[:, :, -1:], k, v, encoding, encoding_cache=kept, backend="reference")
        torch.testing.assert_close(got, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_statistics_in_blocks_evaluate_it(monkeypatch):
    """Without a kernel they are the reference's; the kernel's are within 2δ of these, relative to each mass."""
    encoding, (q, k, _) = fire(), qkv()
    by_kernel = attention.statistics(q, k, encoding)
    monkeypatch.setattr(BACKENDS["fused"], "statistics_unsupported_reason", lambda *_: "asked not to")
    by_blocks = attention.statistics(q, k, encoding)
    logits = q @ k.mT * DIM**-0.5 + mlp_on_pairs(encoding, torch.arange(TOKENS)[None], TOKENS)
    weights = logits.masked_fill(~Mask(TOKENS, TOKENS).visible(q.device)[:, None], -torch.inf).softmax(-1)
    own = weights.diagonal(dim1=2, dim2=3).mean(-1)
    torch.testing.assert_close(by_blocks.histogram[..., 0], own.detach(), rtol=1e-12, atol=0)
    share = 2.1 * curvature(encoding.f) / (8 * 4095**2)
    assert 1e-12 < float((by_kernel.histogram[..., 0] / own.detach() - 1).abs().max()) <= share


def test_pieces_that_are_exact_have_no_function():
    for settings in ({}, {"hidden_layers": 0, "activation": "gelu"}):
        (term,) = FIRE(num_heads=2, L=4.0, **settings).modifiers(Span.of(9)).terms
        assert term.exact is None
