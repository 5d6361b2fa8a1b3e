"""Linear maps by oneDNN and the gated activation: the numbers of plain torch, and their gradients."""

import pytest
import torch
import torch.nn.functional as F

from lengthwise.models import linear
from lengthwise.models.linear import Linear, swiglu

needs_onednn = pytest.mark.skipif(linear._PRODUCT is None, reason="this torch has no oneDNN")


def numbers(*shape, seed=0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def maps(i, o, bias=True) -> Linear:
    torch.manual_seed(0)
    return Linear(i, o, bias=bias)


def calls(monkeypatch) -> list:
    """What oneDNN is called with from now on."""
    found, product = [], linear._PRODUCT
    monkeypatch.setattr(linear, "_PRODUCT", lambda x, w, b: found.append(tuple(x.shape)) or product(x, w, b))
    return found


@needs_onednn
@pytest.mark.parametrize(("i", "o"), [(64, 192), (192, 64), (33, 70), (64, 64)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["plain", "strided", "of another's gradient"])
def test_a_map_and_its_gradients(i, o, bias, kind, monkeypatch):
    monkeypatch.setattr(linear, "MIN_PRODUCTS", 0)
    one, asked = maps(i, o, bias), calls(monkeypatch)
    x = numbers(3, 50, 2 * i)[..., :i] if kind == "strided" else numbers(3, 50, i)
    x, g = x.requires_grad_(), numbers(3, 50, o, seed=1)
    g = g.transpose(0, 1).contiguous().transpose(0, 1) if kind == "of another's gradient" else g
    out = one(x)
    assert asked
    found = [out, *torch.autograd.grad(out, [x, *one.parameters()], g)]
    wide, parameters = (
        x.detach().double().requires_grad_(),
        [p.detach().double().requires_grad_() for p in one.parameters()],
    )
    out = F.linear(wide, *parameters)
    expected = [out, *torch.autograd.grad(out, [wide, *parameters], g.double())]
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.double(), b, atol=2e-4, rtol=0)  # sums of at most 192 numbers of size 1, or of 150


@needs_onednn
def test_gradients_that_nobody_asked_for(monkeypatch):
    monkeypatch.setattr(linear, "MIN_PRODUCTS", 0)
    one, x = maps(8, 4), numbers(5, 8)
    one(x).sum().backward()  # the input needs none
    assert x.grad is None
    one.requires_grad_(False)
    x.requires_grad_()
    one(x).sum().backward()
    torch.testing.assert_close(x.grad, one.weight.sum(0).expand(5, 8))
    with torch.no_grad():
        assert not one(x).requires_grad


@needs_onednn
def test_where_torch_does_it(monkeypatch):
    asked, one = calls(monkeypatch), maps(512, 512)
    x = numbers(16, 512)
    one(x)
    assert len(asked) == 1
    one(x[:1])  # small
    one.double()(x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert one.float()(x).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        one(x)
    assert one.to("meta")(x.to("meta")).device.type == "meta"
    assert len(asked) == 1


@needs_onednn
def test_the_same_bits_every_time():
    one, x = maps(256, 512), numbers(64, 256)
    assert all(torch.equal(one(x), one(x)) for _ in range(3))


@pytest.mark.parametrize("rows", [(640,), (3, 50), (1, 1), (2, 128), (129,)])
@pytest.mark.parametrize("strided", [False, True])
def test_the_gated_activation_has_the_bits_of_its_formula(rows, strided):
    h, g = numbers(*rows, 88), numbers(*rows, 44, seed=1)
    if strided:  # torch computes the exponentials of what lies apart in another way
        h, g = h.mT.contiguous().mT, g.mT.contiguous().mT
    one, other = h.clone().requires_grad_(), h.clone().requires_grad_()
    gate, up = other.chunk(2, -1)
    out, expected = swiglu(one), F.silu(gate) * up
    out.backward(g)
    expected.backward(g)
    for a, b in ((out, expected), (one.grad, other.grad)):
        torch.testing.assert_close(a, b, atol=1e-6 if strided else 0, rtol=1e-6 if strided else 0)


def test_the_gradient_of_the_gated_activation():
    h = numbers(3, 4, 10).double().requires_grad_()
    assert torch.autograd.gradcheck(swiglu, (h,))
