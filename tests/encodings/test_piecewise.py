"""FIRE's straight pieces are its MLP: values and every gradient, at first and after training."""

import pytest
import torch
from torch import nn

from lengthwise.config import ConfigError
from lengthwise.encodings import FIRE, piecewise
from lengthwise.encodings.piecewise import GRID, grid_segments, relu_segments
from lengthwise.span import Span
from tests.pairwise import pairwise


def bias_of_segments(fire: FIRE, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    term = fire.modifiers(Span.of(int(i.max()) + 1)).terms[0]
    x = term.distance_feature[i - j] * term.query_scale[0, i]
    s = (x[:, None] >= term.knots).sum(1)
    return (term.slope[:, s] * x + term.intercept[:, s]).T


def trained(fire: FIRE) -> FIRE:
    """Fit steps, a spike and waves: weights as far from their start as training takes them."""
    x = torch.rand(2048, 1)
    target = torch.cat(
        [-(x > 0.4).float() * 6, torch.exp(-((x - 0.7) ** 2) * 500) * 5, torch.sin(30 * x) * 2, -8 * x], 1
    )
    optimiser = torch.optim.Adam(fire.parameters(), lr=1e-2)
    for _ in range(300):
        optimiser.zero_grad()
        (fire.f(x) - target).square().mean().backward()
        optimiser.step()
    return fire


@pairwise(hidden_layers=[0, 1, 2, 3], fitted=[False, True], seed=range(3))
def test_relu_is_exact_in_value_and_every_gradient(hidden_layers, fitted, seed):
    torch.manual_seed(seed)
    fire = FIRE(num_heads=4, hidden_layers=hidden_layers, L=20.0)
    fire = (trained(fire) if fitted else fire).double()
    i = torch.randint(1, 300, (4000,))
    j = (torch.rand(4000) * (i + 1)).long()
    direct = fire.f(fire.coordinate(i, j)[:, None])
    pieces = bias_of_segments(fire, i, j)
    torch.testing.assert_close(pieces, direct, rtol=0, atol=1e-11)
    weight = torch.randn_like(direct)
    expected = torch.autograd.grad((direct * weight).sum(), list(fire.parameters()))
    found = torch.autograd.grad((pieces * weight).sum(), list(fire.parameters()))
    for (name, _), a, b in zip(fire.named_parameters(), expected, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9, msg=name)


ABLATIONS = {
    "eq. 21": {"transform": "identity", "threshold": False},
    "eq. 21 without eps": {"transform": "identity", "threshold": False, "eps": 0.0},
    "eq. 22": {"threshold": False},
    "eq. 22 without eps": {"threshold": False, "eps": 0.0},
    "identity with a threshold": {"transform": "identity", "L": 20.0},
    "eq. 23 without eps": {"L": 20.0, "eps": 0.0},
}


@pairwise(hidden_layers=[0, 1, 2], final_activation=[False, True], ablation=ABLATIONS)
def test_every_ablation_is_exact_in_value_and_every_gradient(ablation, final_activation, hidden_layers):
    torch.manual_seed(4)
    settings = {**ABLATIONS[ablation], "final_activation": final_activation, "hidden_layers": hidden_layers}
    fire = FIRE(num_heads=6, **settings).double()
    with torch.no_grad():
        for p in fire.layers.parameters():
            p.uniform_(-1.5, 1.5)
        fire.final_activation = False
        fire.layers[-1].bias -= fire.f(torch.tensor([[2**0.5 - 1]]).double())[0]  # all are 0 where no pair is
        fire.final_activation = final_activation
    i = torch.cat([torch.zeros(3, dtype=torch.long), torch.randint(1, 300, (4000,))])
    j = (torch.rand(len(i)) * (i + 1)).long()
    x = fire.coordinate(i, j)
    assert x.min() == 0
    assert x.max() <= 1 + 1e-15
    direct = fire.f(x[:, None])
    pieces = bias_of_segments(fire, i, j)
    torch.testing.assert_close(pieces, direct, rtol=0, atol=1e-11)
    if final_activation:
        zeros = (direct == 0).double().mean(0)
        assert ((zeros > 0.1) & (zeros < 0.9)).any()  # or else no knot of the last activation is in use
    weight = torch.randn_like(direct)
    expected = torch.autograd.grad((direct * weight).sum(), list(fire.parameters()))
    found = torch.autograd.grad((pieces * weight).sum(), list(fire.parameters()))
    for (name, _), a, b in zip(fire.named_parameters(), expected, found, strict=True):
        assert a.isfinite().all(), name
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9, msg=name)


def test_what_has_no_role_is_no_parameter():
    names = {key: set(dict(FIRE(num_heads=2, **settings).named_parameters())) for key, settings in ABLATIONS.items()}
    layers = {f"layers.{n}.{what}" for n in range(3) for what in ("weight", "bias")}
    assert names["eq. 21"] == layers
    assert names["eq. 22"] == layers | {"c"}
    assert names["identity with a threshold"] == layers | {"L_multiplier"}
    assert set(dict(FIRE(num_heads=2).named_parameters())) == layers | {"c", "L_multiplier"}


@pytest.mark.parametrize("settings", [{"eps": 0.0}, {"eps": 0.0, "transform": "identity"}, {}])
def test_position_0_alone_is_a_number(settings):
    fire = FIRE(num_heads=2, threshold=False, **settings)
    term = fire.modifiers(Span.of(1)).terms[0]
    x = term.distance_feature[0] * term.query_scale[0, 0]
    assert x == 0
    if fire.c is not None:
        assert torch.autograd.grad(x, fire.c) == (torch.tensor(0.0),)


@pytest.mark.medium
@pairwise(activation=["gelu", "silu", "tanh"], final_activation=[False, True], fitted=[False, True])
def test_the_grid_keeps_its_stated_error(activation, final_activation, fitted):
    torch.manual_seed(0)
    fire = FIRE(num_heads=4, activation=activation, final_activation=final_activation)
    fire = (trained(fire) if fitted else fire).double()
    i = torch.randint(1, 3000, (20_000,))
    j = (torch.rand(20_000) * (i + 1)).long()
    error = (fire.f(fire.coordinate(i, j)[:, None]) - bias_of_segments(fire, i, j)).abs().max()
    x = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None]
    step = 1e-4
    curvature = ((fire.f(x + step) - 2 * fire.f(x) + fire.f(x - step)) / step**2).abs().max()
    assert GRID >= 4096
    assert error <= 7.5e-9 * curvature * 1.02 + 1e-14


def test_knots_that_coincide_or_leave_the_interval():
    first, last = nn.Linear(1, 4), nn.Linear(4, 1)
    with torch.no_grad():
        first.weight[:] = torch.tensor([[2.0], [4.0], [1.0], [0.0]])
        first.bias[:] = torch.tensor([-1.0, -2.0, 5.0, 1.0])  # kinks at 0.5, 0.5, -5 and nowhere
        last.weight[:] = torch.tensor([[1.0, -3.0, 0.5, 2.0]])
    slope, intercept, knots = relu_segments([first, last])
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    s = (x[:, None] >= knots).sum(1)
    expected = last.double()(torch.relu(first.double()(x[:, None])))[:, 0]
    torch.testing.assert_close(slope[0, s] * x + intercept[0, s], expected, rtol=0, atol=1e-14)


def test_slopes_of_smooth_activations_are_as_far_off_as_is_said():
    """1.23e-4 max|f''|, for gradients with respect to x; it comes close to that where the curvature is largest."""
    weight = torch.zeros((), dtype=torch.float64)
    off, curved = [], []
    for f in (lambda x: 40 * x**2, lambda x: torch.sin(30 * x)):
        slope, _, knots = grid_segments(f, like=weight)
        x = torch.rand(100_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        found = slope[0, torch.searchsorted(knots, x.detach()[:, 0])]
        off.append(float((found - first.detach()[:, 0]).abs().max()))
        curved.append(float(second.abs().max()))
    for error, most in zip(off, curved, strict=True):
        assert 0.9 * 1.22e-4 * most < error < 1.23e-4 * most


def test_second_derivatives():
    torch.manual_seed(0)
    layers = [nn.Linear(1, 3), nn.Linear(3, 3), nn.Linear(3, 2)]
    numbers = [p.detach().double().requires_grad_() for layer in layers for p in (layer.weight, layer.bias)]
    for final in (False, True):
        assert torch.autograd.gradgradcheck(
            lambda *x, final=final: piecewise._ReluSegments.apply(final, *x)[:2], numbers
        )


def test_pieces_in_a_room():
    """In a compiled graph: the same segments, and behind a knot that no x reaches as many as there is room for."""
    torch.manual_seed(0)
    layers = [nn.Linear(1, 32), nn.Linear(32, 32), nn.Linear(32, 4)]
    numbers = [p for layer in layers for p in (layer.weight, layer.bias)]
    plain, room = relu_segments(layers), torch.ops.lengthwise.relu_segments(numbers, False, 100)
    many = plain[0].shape[1]
    assert 3 < many < 100
    assert [x.shape[-1] for x in room] == [100, 100, 99]
    for a, b, size in zip(plain, room, (many, many, many - 1), strict=True):
        assert torch.equal(a, b[..., :size])
        assert (b[..., size:] == (0 if a is not plain[2] else torch.inf)).all()
    weights = torch.randn(2, 4, many, dtype=torch.float64)
    found = [torch.autograd.grad([x[:, :many] for x in some[:2]], numbers, list(weights)) for some in (plain, room)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_the_operator_is_one_that_torch_can_compile():
    torch.manual_seed(0)
    numbers = [nn.Parameter(torch.randn(*shape)) for shape in ((5, 1), (5,), (2, 5), (2,))]
    torch.library.opcheck(torch.ops.lengthwise.relu_segments.default, (numbers, True, 20))


def test_a_room_that_is_too_small_says_so():
    torch.manual_seed(0)
    layers = [nn.Linear(1, 32), nn.Linear(32, 4)]
    numbers = [p for layer in layers for p in (layer.weight, layer.bias)]
    many = relu_segments(layers)[0].shape[1]
    with pytest.raises(ConfigError, match=f"at most {many - 1} segments, got {many}; run the model without"):
        torch.ops.lengthwise.relu_segments(numbers, False, many - 1)
