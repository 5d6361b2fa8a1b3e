"""NTK-by-parts, YaRN, dynamic YaRN and Llama 3: what they have in common, and by length."""

import math

import pytest
import torch

from lengthwise.encodings import DynamicYaRN, Llama3, NTKByParts, RoPE, YaRN
from lengthwise.span import Span

ONE = torch.tensor(1)


@pytest.mark.parametrize(
    ("head_dim", "train_length", "low", "high"),
    [(8, 64, 0, 2), (32, 102, 0, 5), (64, 512, 3, 16), (128, 2048, 16, 41), (128, 4096, 20, 46)],
)
def test_borders_of_the_index_ramp(head_dim: int, train_length: int, low: int, high: int) -> None:
    assert NTKByParts(head_dim=head_dim, train_length=train_length).ramp_bounds() == (low, high)
    exact = NTKByParts(head_dim=head_dim, train_length=train_length, truncate=False).ramp_bounds()
    assert low <= exact[0] < low + 1
    assert high - 1 < exact[1] <= high


@pytest.mark.parametrize("truncate", [True, False])
def test_the_ramp_never_runs_backwards(truncate: bool) -> None:
    """Where all pairs lie beyond one border: a base so small that all are fast, a window so short that all are slow."""
    theta = RoPE(head_dim=8, base=3.0).frequencies(ONE)
    fast = NTKByParts(head_dim=8, train_length=100_000, base=3.0, truncate=truncate)
    assert torch.equal(fast.frequencies(ONE), theta)
    for train_length in (1, 2, 3, 6):
        share = NTKByParts(head_dim=64, train_length=train_length, truncate=truncate).frequencies(ONE)
        share /= RoPE(head_dim=64).frequencies(ONE)
        assert share[0] == 1  # the first pair stays, as in the published code
        torch.testing.assert_close(share[1:], torch.full((31,), 0.25, dtype=torch.float64), rtol=1e-14, atol=0)


def test_llama_3_is_the_ramp_over_rotations_with_other_borders() -> None:
    made = Llama3(head_dim=128, train_length=8192, base=5e5)
    other = NTKByParts(
        head_dim=128, train_length=8192, base=5e5, factor=8.0, ramp="rotations", beta_fast=4.0, beta_slow=1.0
    )
    torch.testing.assert_close(made.frequencies(ONE), other.frequencies(ONE), rtol=1e-15, atol=0)


def test_dynamic_yarn_is_yarn_of_its_own_factor_at_every_length() -> None:
    made = DynamicYaRN(head_dim=16, train_length=64)
    length = torch.tensor([[3, 64], [65, 96], [640, 100_000]])
    frequencies, gain = made.frequencies(length), made.gain(length)
    assert frequencies.shape == (3, 2, 8)
    assert gain.shape == (3, 2, 1)
    for row in range(3):
        for column in range(2):
            n = length[row, column]
            yarn = YaRN(head_dim=16, train_length=64, factor=max(1.0, n.item() / 64))
            torch.testing.assert_close(frequencies[row, column], yarn.frequencies(n), rtol=1e-15, atol=0)
            assert gain[row, column].item() == pytest.approx(yarn.gain(n), rel=1e-15)
            assert torch.equal(made.frequencies(n), frequencies[row, column])
    assert torch.equal(frequencies[0, 0], RoPE(head_dim=16).frequencies(ONE))
    assert gain[0, 0] == 1


def test_dynamic_yarn_gives_each_document_its_own_length() -> None:
    """Three documents in a row of 96 tokens, and every angle and gain that of the document alone."""
    made = DynamicYaRN(head_dim=8, train_length=16)
    sizes = [10, 70, 16]
    at = torch.cat([torch.arange(size) for size in sizes])[None]
    own = torch.cat([torch.full((size,), size) for size in sizes])[None]
    together = made.modifiers(Span(at, at, 70, length_q=own, length_k=own)).rotation
    alone = [made.modifiers(Span.of(size)).rotation for size in sizes]
    for name in ("angle_q", "gain_q", "angle_k", "gain_k"):
        expected = torch.cat([getattr(one, name) for one in alone], 2)
        assert torch.equal(getattr(together, name), expected), name
    assert together.gain_q.unique().tolist() == [1.0, pytest.approx(1 + 0.1 * math.log(70 / 16))]


def test_scale_step_moves_on_in_steps() -> None:
    made = DynamicYaRN(head_dim=16, train_length=64, scale_step=32)
    length = torch.tensor([64, 65, 96, 97])
    assert made.effective_length(length).tolist() == [64, 96, 96, 128]
    gain = made.gain(length)[:, 0].tolist()
    assert gain[0] == 1
    assert gain[1] == gain[2] == pytest.approx(1.0405465108, abs=5e-11)  # 0.1 ln 1.5 + 1
    assert gain[3] == pytest.approx(1.0693147181, abs=5e-11)  # 0.1 ln 2 + 1
