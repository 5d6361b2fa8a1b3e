"""Log-n scaling does nothing up to the trained length."""

import math

import torch

from lengthwise import attend
from lengthwise.encodings import Combined, LogN, NoPE, RoPE


def numbers(seed: int, length: int) -> torch.Tensor:
    return torch.randn(1, 2, length, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_up_to_the_trained_length_it_changes_nothing() -> None:
    log_n = LogN(train_length=20)
    for encoding, plain in (
        (Combined(encoding=RoPE(head_dim=8), temperature=log_n), RoPE(head_dim=8)),
        (log_n, NoPE()),
    ):
        for length, equal in ((20, True), (21, False)):
            q, k, v = (numbers(seed, length) for seed in range(3))
            got, wanted = (attend(q, k, v, e) for e in (encoding, plain))
            assert torch.equal(got[:, :, :20], wanted[:, :, :20])
            assert torch.equal(got, wanted) == equal


def test_past_it_a_query_is_sharper_by_the_keys_that_it_sees() -> None:
    q, k, v = (numbers(seed, 100) for seed in range(3))
    got = attend(q, k, v, LogN(train_length=20))
    for i in (20, 63, 99):
        gain = math.log(i + 1) / math.log(20)
        wanted = attend(q[:, :, i : i + 1] * gain, k[:, :, : i + 1], v[:, :, : i + 1], NoPE())
        torch.testing.assert_close(got[:, :, i : i + 1], wanted, rtol=0, atol=1e-12)
