"""FIRE's tables from the compiled library against the same in PyTorch: segments, tables, every gradient."""

import math

import pytest
import torch
from torch import nn

from lengthwise import native
from lengthwise.encodings import FIRE, piecewise
from lengthwise.encodings.fire import _Tables
from lengthwise.native import segments
from lengthwise.span import Span

pytestmark = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no library here: {native.unsupported_reason()}"
)


def bidirectional(make, monkeypatch):
    """What `make` gives with the library, and without."""
    assert segments.is_available()
    found = make()
    with monkeypatch.context() as patch:
        patch.setattr(segments, "is_available", lambda: False)
        return found, make()


def odd_mlp(seed: int, dtype: torch.dtype) -> tuple[list[nn.Linear], bool]:
    """0 to 3 hidden layers of 1 to 40 units: dead and equal ones, slopes of 0, kinks at the ends and outside."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (), generator=g))  # noqa: E731
    sizes = [1, *[draw(1, 41 if seed % 2 else 9) for _ in range(draw(0, 4))], draw(1, 9)]
    layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=g) * 2)
            layer.bias.copy_(torch.randn(layer.bias.shape, generator=g))
            if layer is layers[0] and seed % 3:  # kinks all over the interval
                layer.bias.copy_(-layer.weight[:, 0] * torch.rand(layer.bias.shape, generator=g))
            for unit in range(len(layer.bias)):
                odd = draw(0, 12)
                if odd == 0:  # dead
                    layer.weight[unit], layer.bias[unit] = 0.0, -1.0
                elif odd == 1:  # always 0 and always 1
                    layer.weight[unit], layer.bias[unit] = 0.0, float(draw(0, 2))
                elif odd == 2:  # as the first
                    layer.weight[unit], layer.bias[unit] = layer.weight[0], layer.bias[0]
                elif odd == 3 and layer is layers[0]:  # a kink at 0, 1, -5, 0.5
                    layer.weight[unit], layer.bias[unit] = 2.0, -2.0 * (0.0, 1.0, -5.0, 0.5)[draw(0, 4)]
    return [layer.to(dtype) for layer in layers], bool(draw(0, 2))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pieces_of_odd_mlps(dtype, monkeypatch):
    many = set()
    for seed in range(150):
        layers, final = odd_mlp(seed, dtype)
        numbers = [p for layer in layers for p in (layer.weight, layer.bias)]
        torch.manual_seed(seed)
        x, weight = torch.rand(300, dtype=torch.float64), torch.randn(300, dtype=torch.float64)

        def made(layers=layers, final=final, numbers=numbers, x=x, weight=weight):
            slope, intercept, knots = piecewise.relu_segments(layers, final=final)
            s = torch.searchsorted(knots, x, right=True)
            values = slope[:, s] * x + intercept[:, s]
            return values, knots, torch.autograd.grad(values, numbers, weight.expand_as(values))

        # Units that are alike have kinks that differ by rounding: how many pieces lie between them may differ too.
        (values, knots, ours), (wanted, its_knots, theirs) = bidirectional(made, monkeypatch)
        assert segments.supports(numbers)
        many.add(len(knots))
        assert values.dtype == knots.dtype == torch.float64
        torch.testing.assert_close(values, wanted, rtol=1e-11, atol=1e-11)
        for a, b in ((knots, its_knots), (its_knots, knots)):
            assert (a[:, None] - b).abs().amin(1).le(1e-11).all() if len(b) else not len(a), seed
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == dtype
            close = 1e-6 if dtype == torch.float32 else 1e-11
            torch.testing.assert_close(a, b, rtol=close, atol=close * max(1.0, float(b.abs().max())))
    assert min(many) == 0 and max(many) > segments.INITIAL_SEGMENTS  # none, and more than there was room for at first


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", range(6))
def test_what_is_no_number_stays_none(at, bad, monkeypatch):
    torch.manual_seed(0)
    layers = [nn.Linear(1, 5), nn.Linear(5, 5), nn.Linear(5, 2)]
    numbers = [p for layer in layers for p in (layer.weight, layer.bias)]
    with torch.no_grad():
        numbers[at].flatten()[1] = bad

    def made():
        slope, intercept, knots = piecewise.relu_segments(layers)
        return [slope, intercept, knots, *torch.autograd.grad(slope.sum() + intercept.sum(), numbers)]

    for a, b in zip(*bidirectional(made, monkeypatch), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_gradients_are_those_of_the_values():
    torch.manual_seed(0)
    layers = [nn.Linear(1, 12), nn.Linear(12, 9), nn.Linear(9, 3)]
    numbers = [p.detach().double().requires_grad_() for layer in layers for p in (layer.weight, layer.bias)]
    with torch.no_grad():
        numbers[1].copy_(-numbers[0][:, 0] * torch.rand(12))
    many = piecewise._ReluSegments.apply(False, *numbers)[0].shape[1]
    x = torch.rand(50, dtype=torch.float64)

    def values(*numbers):
        slope, intercept, knots = piecewise._ReluSegments.apply(False, *numbers)
        s = torch.searchsorted(knots, x, right=True)
        return slope[:, s] * x + intercept[:, s]

    assert many > 8 and segments.supports(numbers)
    assert torch.autograd.gradcheck(values, numbers)
    assert torch.autograd.gradgradcheck(values, numbers)


@pytest.mark.parametrize("eps", [1e-6, 0.0])
@pytest.mark.parametrize("c", [0.1, -0.3, 0.0])
@pytest.mark.parametrize("multiplier", [1.0, -0.5, 0.0])
@pytest.mark.parametrize("batch", [1, 3])
def test_gradients_of_tables(c, multiplier, eps, batch, monkeypatch):
    given = [torch.tensor(x, requires_grad=True) for x in (c, multiplier)]
    torch.manual_seed(0)
    query = torch.arange(9)[None] if batch == 1 else torch.randint(0, 9, (batch, 9))  # some at the threshold, 4
    weights = torch.randn(12, dtype=torch.float64), torch.randn(9, batch, dtype=torch.float64).T

    def made():
        tables = _Tables.apply(*given, torch.arange(12), query, 4.0, eps)[:2]
        return torch.autograd.grad(tables, given, weights)

    ours, theirs = bidirectional(made, monkeypatch)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_the_operator_is_one_that_torch_can_compile():
    torch.manual_seed(0)
    numbers = [nn.Parameter(torch.randn(*shape)) for shape in ((5, 1), (5,), (2, 5), (2,))]
    assert piecewise.uses_library(*numbers)
    torch.library.opcheck(torch.ops.lengthwise.relu_segments.default, (numbers, True, 20))


def test_others_are_left_to_torch(monkeypatch):
    """Half precision, layers in which torch multiplies faster, no library: the same function by the other way."""
    calls = []
    monkeypatch.setattr(segments, "relu_segments", lambda *given: calls.append(given))
    for layers in (
        [nn.Linear(1, 4).half(), nn.Linear(4, 2).half()],
        [nn.Linear(1, segments.MAX_WIDTH + 1), nn.Linear(65, 2)],
    ):
        assert piecewise.relu_segments(layers)[0].shape[0] == 2
    fire = FIRE(num_heads=2, hidden_layers=1)
    monkeypatch.setattr(segments, "is_available", lambda: False)
    fire.modifiers(Span.of(3))
    assert not calls
