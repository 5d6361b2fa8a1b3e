"""T5's buckets against whole numbers alone: where a border is itself a distance, rounding must not move it."""

import pytest
import torch

from lengthwise.encodings import T5


def exact_bucket(distance: int, buckets: int, reach: int) -> int:
    """d is past border k where ln(d/m) / ln(D/m) · (B - m) >= k, that is where d^(B-m) m^k >= D^k m^(B-m)."""
    m, rest = buckets // 2, buckets - buckets // 2
    if distance < m:
        return max(distance, 0)
    passed = [k for k in range(rest) if distance**rest * m**k >= reach**k * m**rest]
    return min(buckets - 1, m + max(passed))


# With 9 buckets to 128, distances 8, 16, 32 and 64 are borders; with 6 to 81, 9 and 27.
@pytest.mark.parametrize(
    ("buckets", "reach"), [(9, 128), (6, 81), (2, 2), (2, 100), (3, 2), (5, 6), (7, 4), (32, 17), (32, 128), (64, 2048)]
)
def test_buckets_are_exact_at_every_border(buckets, reach):
    distances = [*range(-2, 2 * reach + 2), 10**6]
    found = T5(num_heads=1, num_buckets=buckets, max_distance=reach).bucket(torch.tensor(distances)).tolist()
    assert found == [exact_bucket(d, buckets, reach) for d in distances]
