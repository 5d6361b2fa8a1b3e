"""Layouts: which positions they may claim, what moves them and what does not."""

import doctest
import importlib
import inspect
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import positions as schemes
from lengthwise.config import choose, settings_of
from lengthwise.positions import (
    POSITION_SCHEMES,
    Consecutive,
    Digits,
    Grid,
    Randomized,
    RandomPositions,
    Shift,
    Skip,
    consecutive,
)
from lengthwise.tasks import Addition, CopyColumn

DRAWN = [
    Randomized(max_length=40),
    Randomized(max_length=40, at_evaluation="consecutive"),
    Shift(max_shift=7),
    Skip(target_length=40),
    Skip(target_length=40, chunks=5),
]
ALL = [Consecutive(), *DRAWN, Digits(max_offset=7)]


def named(scheme):
    return type(scheme).__name__


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_bytes(rows: int, tokens: int, seed: int = 0) -> torch.Tensor:
    """Text with many numbers in it."""
    return torch.randint(44, 60, (rows, tokens), generator=seeded(seed))


def laid_out(scheme, inputs, documents=None, *, seed=0, training=True):
    found = scheme.positions(inputs, documents, seeded(seed), training)
    if found is None:
        return consecutive(torch.zeros(inputs.shape[:2], dtype=torch.int64) if documents is None else documents)
    return found


@pytest.mark.parametrize("scheme", ALL, ids=named)
@settings(max_examples=40)
@given(rows=st.integers(0, 4), tokens=st.integers(5, 40), seed=st.integers(0, 2**32), training=st.booleans())
def test_positions_lie_below_the_reach(scheme, rows, tokens, seed, training):
    inputs = some_bytes(rows, tokens, seed)
    scheme.require(tokens, training)
    positions = laid_out(scheme, inputs, seed=seed, training=training)
    assert positions.shape == inputs.shape
    assert positions.dtype == torch.int64
    assert bool(((positions >= 0) & (positions < scheme.num_positions(tokens, training))).all())


@pytest.mark.parametrize("scheme", DRAWN, ids=named)
@given(tokens=st.integers(5, 40), seed=st.integers(0, 2**32))
def test_drawn_positions_grow_strictly(scheme, tokens, seed):
    assert bool((laid_out(scheme, some_bytes(3, tokens), seed=seed).diff(dim=1) >= 1).all())


@pytest.mark.parametrize("scheme", ALL, ids=named)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), training=st.booleans())
def test_the_generator_alone_decides(scheme, seed, rows, training):
    inputs = some_bytes(5, 12)
    torch.manual_seed(seed)  # whatever the global generator is at
    whole = laid_out(scheme, inputs, seed=seed, training=training)
    torch.manual_seed(0)
    assert torch.equal(whole, laid_out(scheme, inputs, seed=seed, training=training))
    fewer = laid_out(scheme, inputs[:rows], seed=seed, training=training)
    assert torch.equal(whole[:rows], fewer), "how many rows follow changes a row"


def test_the_same_numbers_on_every_machine():
    """Written down once; only a change of torch's CPU generator may move them."""
    inputs = torch.tensor([list(b"12+345=")])
    found = {named(scheme): laid_out(scheme, inputs, seed=1).tolist() for scheme in ALL[::-1]}
    assert found == EXPECTED


EXPECTED = {
    "Consecutive": [[0, 1, 2, 3, 4, 5, 6]],
    "Randomized": [[20, 21, 22, 27, 33, 34, 36]],
    "Shift": [[5, 6, 7, 8, 9, 10, 11]],
    "Skip": [[0, 1, 2, 3, 18, 19, 20]],
    "Digits": [[6, 7, 0, 6, 7, 8, 0]],
}


@pytest.mark.parametrize("scheme", DRAWN, ids=named)
def test_every_sequence_draws_its_own_and_every_seed_another(scheme):
    inputs = some_bytes(20, 12)
    first, second = (laid_out(scheme, inputs, seed=seed) for seed in (0, 1))
    assert len({tuple(row) for row in first.tolist()}) > 4
    assert not torch.equal(first, second)


def test_all_digits_of_a_batch_have_one_offset():
    scheme = Digits(max_offset=50)
    inputs = some_bytes(20, 12)
    plain = laid_out(scheme, inputs, training=False)
    moved = {tuple((laid_out(scheme, inputs, seed=seed) - plain)[plain > 0].unique().tolist()) for seed in range(40)}
    assert all(len(offsets) == 1 for offsets in moved)
    assert len(moved) > 20


@pytest.mark.parametrize("scheme", ALL, ids=named)
def test_evaluation_is_consecutive_but_where_it_says_otherwise(scheme):
    inputs = some_bytes(3, 12)
    found = scheme.positions(inputs, None, seeded(0), False)
    if isinstance(scheme, Digits):
        assert torch.equal(found, laid_out(Digits(max_offset=0), inputs))
        assert scheme.num_positions(12, training=False) == 13
    elif isinstance(scheme, Randomized) and scheme.at_evaluation == "random":
        assert torch.equal(found, laid_out(scheme, inputs, training=True))
        assert scheme.num_positions(12, training=False) == 40
    else:
        assert found is None
        assert scheme.num_positions(12, training=False) == 12
    assert (scheme.positions(inputs, None, seeded(0), True) is None) == isinstance(scheme, Consecutive)


DOCUMENTS = st.lists(st.lists(st.integers(-1, 2), min_size=10, max_size=10), min_size=1, max_size=4).map(torch.tensor)


@pytest.mark.parametrize("scheme", ALL, ids=named)
@settings(max_examples=40)
@given(documents=DOCUMENTS, seed=st.integers(0, 2**32), training=st.booleans())
def test_a_document_is_laid_out_by_itself(scheme, documents, seed, training):
    if isinstance(scheme, Skip) and scheme.chunks > 2:  # rows need documents as long as there are chunks
        documents = documents.clamp(max=0)
    inputs = some_bytes(*documents.shape, seed)
    positions = laid_out(scheme, inputs, documents, seed=seed, training=training)
    for row, one in itertools.product(range(len(documents)), range(-1, 3)):
        own = documents[row] == one
        n = int(own.sum())
        if not n:
            continue
        mine = positions[row, own]
        if isinstance(scheme, Digits):
            offset = positions.max() - laid_out(scheme, inputs, documents, training=False).max()
            alone = laid_out(scheme, inputs[row : row + 1, own], training=False)[0]
            assert torch.equal(mine, alone + offset * (alone > 0))
        else:
            assert bool((mine.diff() >= 1).all())
            assert int(mine.max()) < scheme.num_positions(n, training)
            if isinstance(scheme, Skip):
                assert int(mine[0]) == 0


@pytest.mark.parametrize("scheme", ALL, ids=named)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), training=st.booleans())
def test_one_document_is_as_good_as_none(scheme, seed, training):
    inputs = some_bytes(3, 12)
    for documents in (torch.full((3, 12), 5), torch.full((1, 12), 5)):
        given_one = scheme.positions(inputs, documents, seeded(seed), training)
        given_none = scheme.positions(inputs, None, seeded(seed), training)
        assert (given_one is None) == (given_none is None)
        assert given_one is None or torch.equal(given_one, given_none)


# ---- what each draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [None, 1])  # all numbers of the range drawn, or those of the tokens alone
def test_all_subsets_are_equally_likely(block, monkeypatch):
    if block:
        monkeypatch.setattr("lengthwise.positions.randomized.BLOCK", block)
    drawn = Randomized(max_length=5).draw(20_000, 2, seeded(0))
    counts = torch.zeros(5, 5, dtype=torch.int64).index_put(
        (drawn[:, 0], drawn[:, 1]), torch.tensor(1), accumulate=True
    )
    expected = 20_000 / 10
    found = counts[counts > 0].double()
    assert len(found) == 10
    chi_squared = float(((found - expected) ** 2 / expected).sum())
    assert chi_squared < 27.9  # 9 degrees of freedom: exceeded once in 1,000


def test_a_long_range_is_drawn_in_blocks_and_means_the_same(monkeypatch):
    scheme = Randomized(max_length=30)
    whole = scheme.draw(9, 6, seeded(4))
    monkeypatch.setattr("lengthwise.positions.randomized.BLOCK", 60)
    assert torch.equal(scheme.draw(9, 6, seeded(4)), whole)


def test_a_range_that_no_memory_holds_is_drawn_from():
    scheme = Randomized(max_length=2**31)
    drawn = scheme.draw(300, 64, seeded(0))
    assert torch.equal(drawn, scheme.draw(300, 64, seeded(0)))
    assert bool((drawn.diff(dim=1) > 0).all())
    assert int(drawn.max()) < 2**31
    assert drawn.double().mean() / 2**31 == pytest.approx(0.5, abs=4 * (1 / 12 / 300 / 64) ** 0.5)
    assert scheme.draw(0, 64, seeded(0)).shape == (0, 64)


def test_what_a_seed_gives_stays():
    """A run's key says nothing about how positions are drawn."""
    assert Randomized(max_length=1000).draw(1, 5, seeded(0)).tolist() == [[48, 63, 330, 786, 844]]
    assert Shift().draw(3, 1, seeded(0)).flatten().tolist() == [182, 408, 266]
    assert Skip(target_length=1000).draw(1, 6, seeded(0)).tolist() == [[0, 846, 847, 848, 849, 850]]
    assert Digits().positions(torch.tensor([[48, 48]]), None, seeded(0), True).tolist() == [[45, 46]]


def test_shifts_are_uniform_up_to_and_with_the_greatest():
    drawn = Shift(max_shift=3).draw(4000, 2, seeded(0))
    assert drawn.diff(dim=1).unique().tolist() == [1]
    counts = drawn[:, 0].bincount()
    assert len(counts) == 4
    assert int(counts.min()) > 900


def test_two_chunks_are_those_of_the_authors():
    """The first has 1 ... ceil(t / 2) tokens, the gap is 0 ... target - t, each uniform."""
    t, target = 7, 17
    drawn = Skip(target_length=target).draw(40_000, t, seeded(0))
    gaps = drawn.diff(dim=1)
    assert int((gaps > 1).sum(1).max()) == 1
    skipped = (drawn[:, -1] - (t - 1)).bincount()
    assert len(skipped) == target - t + 1
    assert int(skipped.min()) > 0.9 * 40_000 / 11
    jumps = gaps[drawn[:, -1] > t - 1]
    first = ((jumps > 1) * torch.arange(1, t)).sum(1).bincount()[1:]
    assert len(first) == 4
    assert int(first.min()) > 0.9 * len(jumps) / 4


def test_more_chunks_skip_more_often_and_reach_the_target():
    drawn = Skip(target_length=60, chunks=4).draw(2000, 20, seeded(0))
    assert int((drawn.diff(dim=1) > 1).sum(1).max()) == 3
    assert int(drawn.max()) == 59
    assert drawn[:, 0].unique().tolist() == [0]


# ---- what is said about them ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*POSITION_SCHEMES], ids=lambda make: make.__name__)
def test_a_position_scheme_says_what_it_is(make):
    text = inspect.getdoc(make) or ""
    assert "Source:" in text
    assert ">>>" in text
    assert make.__name__ in schemes.__all__
    assert make.kind == "position scheme"
    scheme = choose(make).build().for_task(CopyColumn() if make is Grid else Addition(reverse=True))
    assert scheme.num_positions(10, training=True) >= scheme.num_positions(10, training=False) >= 5
    assert all(p.annotation is not p.empty for p in settings_of(make).values())
    assert make.__init__ is not object.__init__


@pytest.mark.parametrize("make", [*POSITION_SCHEMES], ids=lambda make: make.__name__)
def test_the_examples_in_docstrings_are_true(make):
    known = {**vars(schemes), **vars(importlib.import_module(make.__module__)), "torch": torch}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(recurse=False).find(make, make.__name__, globs=known):
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries


def test_a_drawn_position_scheme_needs_one_method_only():
    class Reversed(RandomPositions):
        def draw(self, rows, tokens, generator):
            return torch.arange(tokens).flip(0).expand(rows, -1)

        def num_positions(self, tokens, training):
            return tokens

    assert laid_out(Reversed(), some_bytes(1, 4)).tolist() == [[3, 2, 1, 0]]
    assert laid_out(Reversed(), some_bytes(1, 4), torch.tensor([[0, 1, 1, 0]])).tolist() == [[1, 1, 0, 0]]
