"""p-RoPE turns the fastest pairs of the whole head, as many as the published codes do."""

import torch

from lengthwise.encodings import PRoPE, RoPE

HERE = torch.tensor(1)


def test_what_turns_is_rope_and_the_rest_stays() -> None:
    rope = RoPE(head_dim=16).frequencies(HERE)
    for pairs in range(1, 9):
        theta = PRoPE(head_dim=16, p=pairs / 8).frequencies(HERE)
        assert torch.equal(theta[:pairs], rope[:pairs])
        assert not theta[pairs:].any()
    # `rotary_fraction` spaces anew what it turns: half of 16 dims are 8, and the slowest of 4 is 1/1000.
    assert float(RoPE(head_dim=16, rotary_fraction=0.5).frequencies(HERE)[-1]) < float(rope[3]) / 30


def test_fractions_of_a_pair_are_rounded_down() -> None:
    """int(p · d // 2) of google-deepmind/gemma and Hugging Face transformers, where the product is exact."""
    for head_dim in range(2, 130, 2):
        for sixteenths in range(1, 17):
            turning = int(sixteenths / 16 * head_dim // 2)
            if turning:
                assert PRoPE(head_dim=head_dim, p=sixteenths / 16).rotated_pairs == turning
    assert PRoPE(head_dim=512, p=0.25).rotated_pairs == 64
    # And where it is not: 0.58 of 100 dims are 58, though 0.58 * 50 is 28.999999999999996.
    for head_dim in range(2, 130, 2):
        for pairs in range(1, head_dim // 2 + 1):
            assert PRoPE(head_dim=head_dim, p=pairs / (head_dim // 2)).rotated_pairs == pairs
