"""FoX where another encoding says the same, and in half precision."""

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lengthwise import attend
from lengthwise.attention import TokenInfo
from lengthwise.config import ConfigError
from lengthwise.encodings import ALiBi, FoX
from lengthwise.span import Span


@pytest.mark.parametrize("backend", ["reference", "sdpa", "blocked"])
def test_gates_that_read_nothing_are_alibi(backend: str) -> None:
    """f = e^-slope; packed documents too, whose tokens stand in turns."""
    fox, alibi = FoX(num_heads=4, d_model=6).double(), ALiBi(num_heads=4)
    torch.nn.init.zeros_(fox.w)
    fox.b.data.copy_(-torch.tensor(alibi.slopes, dtype=torch.float64).expm1().log())
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    for documents in (None, torch.tensor([[1, 2, 1, 2, 2, 1, 1, 2, 1]])):
        got = attend(q, k, v, fox, tokens=TokenInfo(documents=documents, x=x), backend=backend)
        wanted = attend(q, k, v, alibi, tokens=TokenInfo(documents=documents), backend=backend)
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)


def test_gates_stay_in_float32_under_autocast() -> None:
    fox, x = FoX(num_heads=2, d_model=32), torch.randn(1, 7, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fox.features(x)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, fox.features(x), atol=0, rtol=0)
    assert fox.bfloat16().features(x.bfloat16()).dtype == torch.float32


def test_nothing_is_lost_in_a_long_sum() -> None:
    """20,000 gates of about 1/2 are -14,000 nats, which float32 counts in thousandths; near keys get their own few."""
    length = 20_000
    fox = FoX(num_heads=1, d_model=1)
    log_f = -torch.rand(1, length, 1, generator=torch.Generator().manual_seed(0)) * 1.4
    span, q = Span.of(length, 1), torch.zeros(1, 1, 1, 1)
    bias = fox.content(log_f, span, None)[0].dense(q, q, span, 1.0)[0, 0, 0]
    gates = log_f[0, :, 0].tolist()
    for distance in (0, 1, 2, 10, 100, length - 1):
        wanted = math.fsum(gates[length - distance :])
        assert float(bias[length - 1 - distance]) == pytest.approx(wanted, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("documents", [None, torch.arange(600)[None] // 250])
def test_no_tensor_is_as_large_as_all_pairs(documents: torch.Tensor | None) -> None:
    largest = 0

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max([largest, *(x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor))])
            return out

    q = torch.randn(1, 1, 600, 8, requires_grad=True)
    with Look():
        attend(
            q, q, q, FoX(num_heads=1, d_model=4), tokens=TokenInfo(x=torch.randn(1, 600, 4), documents=documents)
        ).sum().backward()
    assert largest <= 64 * 600  # a block of queries


def test_a_document_goes_by_its_own_gates_to_the_last_bit() -> None:
    """Whatever is before it, infinity and NaN too; and a gate that is none spoils what comes after it alone."""
    fox, log_f = FoX(num_heads=2, d_model=1), -torch.rand(1, 40, 2, dtype=torch.float64)
    documents = torch.tensor([[n * n % 7 % 3 for n in range(40)]])
    at = documents[0] == 1

    def total(x: torch.Tensor) -> torch.Tensor:
        return fox.content(x, Span.of(40), documents)[0].prefix_sum[0]

    for bad in (-3.0, -math.inf, math.nan):
        other = torch.where(at[:, None], log_f, bad)
        assert torch.equal(total(other)[:, at], total(log_f)[:, at])
        spoiled = log_f.clone()
        spoiled[0, 20] = bad
        before = (torch.arange(40) < 20) | (documents[0] != documents[0, 20])
        assert torch.equal(total(spoiled)[:, before], total(log_f)[:, before])


def test_an_input_of_another_width_gets_a_plain_answer() -> None:
    q = torch.randn(1, 2, 5, 4)
    with pytest.raises(ConfigError, match="FoX: the last dimension of x must be d_model = 6, got 8"):
        attend(q, q, q, FoX(num_heads=2, d_model=6), tokens=TokenInfo(x=torch.randn(1, 5, 8)))
