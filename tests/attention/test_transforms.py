"""Transforms of torch.func, second derivatives and meta tensors: each works, or gets one line that says what to use."""

from typing import Any

import pytest
import torch

import lengthwise
from lengthwise import encodings
from lengthwise.attention import BACKENDS
from lengthwise.config import ConfigError

Q, K, V = torch.randn(3, 2, 4, 8, 16, generator=torch.Generator().manual_seed(0))
ENCODINGS = [
    None,
    encodings.RoPE(head_dim=16),
    encodings.ALiBi(num_heads=4),
    encodings.KerpleLog(num_heads=4),
    encodings.Shaw(head_dim=16),
    encodings.CoPE(head_dim=16),
]


def attend(q: Any, encoding: Any = None, **arguments: Any) -> Any:
    return lengthwise.attend(q, K.to(q.device), V.to(q.device), encoding, **arguments)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: type(e).__name__)
def test_auto_works_inside_of_transforms(encoding: Any) -> None:
    def one(q: Any, k: Any, v: Any) -> Any:
        return lengthwise.attend(q[None], k[None], v[None], encoding)[0]

    expected = attend(Q, encoding, backend="reference")
    torch.testing.assert_close(torch.func.vmap(one)(Q, K, V), expected)
    gradient = torch.func.grad(lambda q: attend(q, encoding).square().sum())(Q)
    x = Q.clone().requires_grad_()
    attend(x, encoding).square().sum().backward()
    torch.testing.assert_close(gradient, x.grad)
    out, change = torch.func.jvp(lambda q: attend(q, encoding), (Q,), (Q,))
    torch.testing.assert_close(out, expected)
    step = 1e-3
    slope = (attend((1 + step) * Q, encoding) - attend((1 - step) * Q, encoding)) / (2 * step)
    torch.testing.assert_close(change, slope.detach(), atol=2e-3, rtol=1e-2)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
def test_other_backends_say_what_to_use_inside_of_transforms(backend: str) -> None:
    says = f"backend '{backend}' does not support transforms of torch.func .*; use backend='reference'"
    with pytest.raises(ConfigError, match=says):
        torch.func.vmap(lambda q, k, v: lengthwise.attend(q[None], k[None], v[None], backend=backend))(Q, K, V)
    with pytest.raises(ConfigError, match=says):
        torch.func.jvp(lambda q: attend(q, backend=backend), (Q,), (Q,))


def test_an_encoding_with_gradients_of_its_own_says_so_inside_of_transforms() -> None:
    with pytest.raises(
        ConfigError, match=r"FIRE cannot be computed inside a transform of torch.func .*; use torch.autograd"
    ):
        torch.func.grad(lambda q: attend(q, encodings.FIRE(num_heads=4)).sum())(Q)


def second_derivative(**arguments: Any) -> Any:
    x = Q.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(attend(x, **arguments).square().sum(), x, create_graph=True)
    return gradient, torch.autograd.grad(gradient.square().sum(), x)[0]


@pytest.mark.parametrize("encoding", [None, encodings.KerpleLog(num_heads=4)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("backend", ["fused", "blocked"])
def test_a_second_derivative_says_what_to_use(backend: str, encoding: Any) -> None:
    if backend == "fused" and BACKENDS["fused"].gradients_unsupported_reason("cpu"):
        pytest.skip("no compiled kernel")
    with pytest.raises(
        NotImplementedError, match=f"^backend '{backend}' has no second derivative; use backend='reference'$"
    ):
        second_derivative(encoding=encoding, backend=backend)
    x = Q.clone().requires_grad_()
    (first,) = torch.autograd.grad(attend(x, encoding, backend=backend).square().sum(), x, create_graph=True)
    torch.testing.assert_close(first, second_derivative(encoding=encoding, backend="reference")[0])


def test_sdpa_has_those_second_derivatives_that_torch_has() -> None:
    with pytest.raises(RuntimeError, match=r"derivative for aten::.*attention.* is not implemented"):
        second_derivative(backend="sdpa")
    kerple = encodings.KerpleLog(num_heads=4)  # torch computes attention with a learned bias by matrix products
    expected = second_derivative(encoding=kerple, backend="reference")[1]
    torch.testing.assert_close(second_derivative(encoding=kerple, backend="sdpa")[1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "encoding", [None, encodings.RoPE(head_dim=16), encodings.FIRE(num_heads=4).to("meta")], ids=range(3)
)
def test_meta_tensors_are_refused(encoding: Any) -> None:
    with pytest.raises(ConfigError, match="q, k and v must have values, got meta tensors"):
        attend(Q.to("meta"), encoding)
