"""T5's buckets against whole numbers alone: where a border is itself a distance, rounding must not move it."""

import pytest
import torch

from lengthwise.encodings import T5
from lengthwise.span import Span


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


@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (18, 128), (4, 2), (10, 6), (64, 2048)])
def test_both_ways_have_half_of_the_buckets_each(buckets, reach):
    half = buckets // 2
    distances = [*range(-2 * reach, 2 * reach + 2), 10**6, -(10**6)]
    found = T5(num_heads=1, num_buckets=buckets, max_distance=reach, bidirectional=True).bucket(torch.tensor(distances))
    assert found.tolist() == [exact_bucket(abs(d), half, reach) + half * (d < 0) for d in distances]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_reach_is_where_the_bias_stops_changing(bidirectional):
    t5 = T5(num_heads=2, num_buckets=8, max_distance=20, bidirectional=bidirectional)
    far = torch.arange(20, 4000)
    assert t5.constant_beyond == 20
    for ways in (far, -far):
        assert (t5.bias(ways) == t5.bias(ways[:1])).all()
    near, span = t5.modifiers(Span.of(1000)).terms[0], Span.of(1000)
    both = span.distance()[0] if bidirectional else span.distance()[0].tril()
    table = near.table[:, (both - near.first).clamp(0, near.table.shape[1] - 1)]
    torch.testing.assert_close(table.flatten(1), t5.bias(both.flatten()), rtol=0, atol=0)
