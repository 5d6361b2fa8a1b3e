"""FIRE's tables over distances and queries, whose gradients are written by hand, against autograd's."""

import math

import pytest
import torch

from lengthwise.encodings import piecewise
from lengthwise.encodings.fire import FIRE, _Tables
from lengthwise.forms import PiecewiseLinearBias, ToeplitzBias
from lengthwise.span import Span


def by_python(c: float, multiplier: float, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The tables of the first nine positions with L = 4."""
    unit = math.log1p(abs(c) * 4) or 1.0
    feature = [math.log1p(abs(c) * distance) / unit for distance in range(9)]
    values = [math.log1p(abs(c) * max(abs(multiplier * 4), query)) + eps for query in range(9)]
    scale = [unit / (value or 1.0) for value in values]
    return torch.tensor(feature, dtype=torch.float64), torch.tensor([scale], dtype=torch.float64)


@pytest.mark.parametrize("eps", [1e-6, 0.0])
@pytest.mark.parametrize("c", [0.1, -0.3, 0.0])
@pytest.mark.parametrize("multiplier", [1.0, -0.5, 0.0])
@pytest.mark.parametrize("in_torch", [True, False])
def test_tables_are_those_of_the_formula(
    in_torch: bool, multiplier: float, c: float, eps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in torch and in the compiled library, whose logarithm is that of Python."""
    if in_torch:
        monkeypatch.setattr(piecewise, "uses_library", lambda *_: False)
    encoding = FIRE(num_heads=2, L=4.0, eps=eps)  # the threshold lies among the queries, and some are equal to it
    assert encoding.c is not None and encoding.L_multiplier is not None
    with torch.no_grad():
        encoding.c.fill_(c)
        encoding.L_multiplier.fill_(multiplier)
    span = Span.of(9)
    (term,) = encoding.modifiers(span).terms
    assert isinstance(term, PiecewiseLinearBias)
    unit = encoding.psi(torch.tensor(4.0)) if c else torch.tensor(1.0, dtype=torch.float64)
    plain = encoding.psi(torch.arange(9)) / unit, unit / encoding._denominator(span.q)
    expected = plain if in_torch else by_python(encoding.c.item(), multiplier, eps)
    torch.testing.assert_close((term.distance_feature, term.query_scale), expected, rtol=0, atol=0)
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in plain]
    leaves = [encoding.c, encoding.L_multiplier]
    ours, theirs = (
        torch.autograd.grad(made, leaves, weights) for made in ((term.distance_feature, term.query_scale), plain)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("c", [0.1, -0.3, 0.0])
@pytest.mark.parametrize("settings", [{}, {"threshold": False}])
def test_derivative_of_the_distance_feature(
    settings: dict[str, bool], c: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what autograd gives for each distance."""
    monkeypatch.setattr(piecewise, "uses_library", lambda *_: False)
    encoding = FIRE(num_heads=2, L=4.0, **settings).double()
    assert encoding.c is not None
    with torch.no_grad():
        encoding.c.fill_(c)
    (term,) = encoding.modifiers(Span.of(9)).terms
    assert isinstance(term, PiecewiseLinearBias) and term.feature_derivative is not None
    rows = [torch.autograd.grad(x, encoding.c, retain_graph=True)[0] for x in term.distance_feature]
    torch.testing.assert_close(term.feature_derivative, torch.stack(rows), rtol=1e-12, atol=1e-12)
    assert term.feature_parameter is not None and term.feature_parameter.item() == c


def test_without_c_there_is_no_derivative() -> None:
    (term,) = FIRE(num_heads=2, transform="identity").modifiers(Span.of(9)).terms
    assert isinstance(term, PiecewiseLinearBias)
    assert term.feature_parameter is None and term.feature_derivative is None


def test_positions_are_whole_numbers_of_any_size() -> None:
    encoding = FIRE(num_heads=2, L=4.0)
    table_dtype, short = Span.of(9), Span(*(torch.arange(9, dtype=torch.int32)[None] for _ in range(2)), 9)
    found = []
    for span in (table_dtype, short):
        (term,) = encoding.modifiers(span).terms
        assert isinstance(term, PiecewiseLinearBias)
        found.append(
            (term.query_scale, *torch.autograd.grad(term.query_scale.sum(), [encoding.c, encoding.L_multiplier]))
        )
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_tables_have_second_derivatives() -> None:
    numbers = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.3, -0.7))
    given = torch.arange(6), torch.arange(3, 9)[None]
    assert torch.autograd.gradgradcheck(lambda c, m: _Tables.apply(c, m, *given, 8.0, 1e-6)[:2], tuple(numbers))


@pytest.mark.parametrize(
    "settings",
    [{}, {"final_activation": True}, {"transform": "identity"}, {"hidden_layers": 0, "final_activation": True}],
)
@pytest.mark.parametrize("multiplier", [1.0, -1.0])
def test_smooth_activations_have_an_exact_table_below_the_threshold(
    settings: dict[str, object], multiplier: float
) -> None:
    torch.manual_seed(0)
    encoding = FIRE(num_heads=2, L=12.0, activation="gelu", **settings).double()
    assert encoding.L_multiplier is not None
    with torch.no_grad():
        encoding.L_multiplier.fill_(multiplier)
    (term,) = encoding.modifiers(Span.of(12)).terms
    assert isinstance(term, ToeplitzBias)
    d = torch.arange(12)
    plain = encoding.f(encoding.coordinate(torch.tensor(11), 11 - d)[:, None]).T
    torch.testing.assert_close(term.table, plain, rtol=0, atol=1e-15)
    weight = torch.randn(plain.shape, dtype=plain.dtype)
    leaves = list(encoding.parameters())
    ours, theirs = (torch.autograd.grad(made, leaves, weight) for made in (term.table, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    # A query at the threshold or past it is divided by something of its own.
    assert isinstance(encoding.modifiers(Span.of(13)).terms[0], PiecewiseLinearBias)
