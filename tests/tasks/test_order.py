"""A random order of any number of things, place by place."""

import pytest
import torch

from lengthwise.tasks.base import generator
from lengthwise.tasks.splits import shuffled


def order(size, *seed):
    return shuffled(torch.arange(size), size, generator(*seed)).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 17, 64, 1000, 4097])
def test_everything_is_somewhere_once(size):
    for seed in range(5):
        assert sorted(order(size, seed)) == list(range(size))


def test_the_generator_decides():
    assert order(50, 1, "epoch", 0) == order(50, 1, "epoch", 0)
    orders = {tuple(order(50, seed, "epoch", n)) for seed in range(20) for n in range(20)}
    assert len(orders) == 400


def test_each_place_by_itself():
    whole = order(1000, 3)
    assert [int(shuffled(torch.tensor([n]), 1000, generator(3))) for n in (0, 17, 999)] == [
        whole[n] for n in (0, 17, 999)
    ]
    assert shuffled(torch.tensor([999, 0, 999]), 1000, generator(3)).tolist() == [whole[999], whole[0], whole[999]]


def test_of_more_than_memory_holds():
    found = shuffled(torch.arange(10_000), 10**12, generator(0))
    assert len(set(found.tolist())) == 10_000
    assert int(found.min()) >= 0 and int(found.max()) < 10**12
    assert abs(float(found.double().mean()) / 10**12 - 0.5) < 0.02


@pytest.mark.medium
@pytest.mark.parametrize(
    ("size", "times"),
    [
        (5, 1000),
        pytest.param(24, 4800, marks=pytest.mark.slow),
        pytest.param(100, 20_000, marks=pytest.mark.slow),
    ],
)
def test_all_things_are_equally_frequent_at_a_place(size, times):
    """And so are neighbours: chi-squared over many orders, at most five standard deviations above its mean."""
    first, second = torch.zeros(size), torch.zeros(size, size)
    for seed in range(times):
        a, b = shuffled(torch.tensor([0, 1]), size, generator(seed)).tolist()
        first[a] += 1
        second[a, b] += 1
    apart = ~torch.eye(size, dtype=torch.bool)
    for counts in (first, second[apart]):
        expected = times / len(counts)
        chi = float((counts - expected).square().sum() / expected)
        free = len(counts) - 1
        assert chi < free + 5 * (2 * free) ** 0.5
