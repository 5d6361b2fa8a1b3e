"""Stick-breaking attention: weights counted by hand, no order but that of the tokens, and steps equal to one pass."""

import pytest
import torch
from torch import Tensor

from lengthwise import attend
from lengthwise.attention import Bins, TokenInfo, statistics
from lengthwise.config import ConfigError
from lengthwise.encodings import ENCODINGS, Combined, NoPE, Sinks, StickBreaking


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("backend", ["auto", "reference", "blocked"])
def test_equal_logits_halve_what_is_left(backend: str) -> None:
    zeros, v = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    weights = attend(zeros, zeros, v, StickBreaking(), backend=backend)[0, 0]
    expected = [[0, 0, 0, 0], [1 / 2, 0, 0, 0], [1 / 4, 1 / 2, 0, 0], [1 / 8, 1 / 4, 1 / 2, 0]]
    assert torch.equal(weights, torch.tensor(expected))
    with_current = attend(zeros, zeros, v, StickBreaking(current=True), backend=backend)[0, 0]
    assert torch.equal(with_current[3], torch.tensor([1 / 16, 1 / 8, 1 / 4, 1 / 2]))


@pytest.mark.parametrize("backend", ["reference", "blocked"])
def test_steps_over_packed_documents_equal_one_pass(backend: str) -> None:
    q, k, v = numbers(2, 3, 2, 4, 70, 8).unbind(0)
    documents = torch.tensor([[-1] * 5 + [0] * 30 + [1] * 35, [0] * 70])
    encoding, start = StickBreaking(), 0
    whole = attend(q, k, v, encoding, tokens=TokenInfo(documents=documents), backend="reference")
    for stop in (3, 4, 40, 69, 70):
        tokens = TokenInfo(documents=documents[:, :stop])
        step = attend(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], encoding, tokens=tokens, backend=backend)
        torch.testing.assert_close(step, whole[:, :, start:stop])
        start = stop
    torch.testing.assert_close(whole[:1, :, 35:], attend(*(x[:1, :, 35:] for x in (q, k, v)), encoding))


def test_statistics_count_the_weights_as_they_are() -> None:
    zeros = torch.zeros(1, 1, 4, 8)
    mass = statistics(zeros, zeros, StickBreaking(), bins=Bins(first=1)).first
    assert mass.item() == pytest.approx((0 + 1 / 2 + 1 / 4 + 1 / 8) / 4)


def test_a_sink_is_refused() -> None:
    words = "StickBreaking has no softmax, to which a sink could be added; omit"
    with pytest.raises(ConfigError, match=f"{words} sinks=True"):  # before a run starts
        ENCODINGS.parse("stickbreaking(window=8,sinks=true)")
    with pytest.raises(ConfigError, match=f"{words} the sinks"):
        Combined(encoding=StickBreaking(), sinks=Sinks(num_heads=1))


def test_an_encoding_that_does_not_declare_that_it_has_no_softmax_is_refused_with_a_sink() -> None:
    class Undeclared(StickBreaking):
        has_softmax = True

    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(ConfigError, match="has no softmax, to which a sink could be added; omit the sinks"):
        attend(q, q, q, Combined(encoding=Undeclared(), sinks=Sinks(num_heads=1)))
    attend(q, q, q, Combined(encoding=NoPE(), sinks=Sinks(num_heads=1)))
