"""Every position scheme with every encoding: positions may jump and go back, and attention stays causal by index."""

import pytest
import torch

from lengthwise.config import ModelConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.models import Decoder
from lengthwise.positions import Digits, Randomized, Shift, Skip
from tests.other_numbers import slow_with_other_numbers

TOKENS = torch.tensor([list(b"12+345=975;"), list(b"a1b22c333d4")])
POSITION_SCHEMES = [Randomized(max_length=60), Shift(max_shift=9), Skip(target_length=60), Digits(max_offset=5)]


def model(make: type, backend: str) -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, num_layers=2, num_heads=2)
    return Decoder(config, choose(make), vocab_size=257, output_size=257, train_length=8, backend=backend).eval()


@pytest.mark.parametrize("make", slow_with_other_numbers(ENCODINGS), ids=lambda make: make.__name__)
@torch.no_grad()
def test_any_encoding_takes_any_positions(make):
    fast, plain = model(make, "auto"), model(make, "reference")
    for scheme in POSITION_SCHEMES:
        for documents in (None, torch.tensor([[0] * 5 + [1] * 6])):
            positions = scheme.positions(TOKENS, documents, torch.Generator().manual_seed(1), True)
            assert positions is not None
            logits = fast(TOKENS, positions=positions, documents=documents)
            expected = plain(TOKENS, positions=positions, documents=documents)
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5, msg=lambda m, la=scheme: f"{la}: {m}")
            changed = TOKENS.index_fill(1, torch.tensor([8, 9, 10]), 255)
            later = plain(changed, positions=positions, documents=documents)
            assert torch.equal(later[:, :8], expected[:, :8]), f"{scheme}: a token saw a later one"
