import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import Copy, generator
from lengthwise.tasks.sequences import ENUMERABLE
from lengthwise.tasks.splits import held_out


def copied(task, batch):
    """The symbols of each example, after checking the frame around them."""
    length = (batch.inputs.shape[1] - 2) // 2
    symbols = batch.inputs[:, 1 : length + 1]
    assert (batch.inputs[:, 0] == task.bos).all()
    assert (batch.inputs[:, length + 1] == task.sep).all()
    assert batch.inputs[:, length + 2 :].equal(symbols)
    assert batch.targets[:, length + 1 : -1].equal(symbols)
    assert (batch.targets[:, -1] == task.eos).all()
    assert batch.scored.tolist() == [[t > length for t in range(2 * length + 2)]] * len(batch)
    assert symbols.min() >= 0
    assert symbols.max() < task.symbols
    return symbols


@given(st.integers(2, 100), st.integers(1, 40), st.sampled_from(["train", "test"]))
def test_a_sequence_is_what_the_docstring_shows(symbols, length, split):
    task = Copy(symbols=symbols)
    copied(task, task.sample(generator(length), 4, length, split))


def test_the_example_of_the_docstring():
    task = Copy()
    batch = task.pack(task.make_pairs(torch.tensor([[0, 1, 2]]), 3))
    assert batch.inputs.tolist() == [[task.bos, 0, 1, 2, task.sep, 0, 1, 2]]
    assert batch.targets.tolist() == [[0, 1, 2, task.sep, 0, 1, 2, task.eos]]
    assert task.render(batch) == [{"input": "a b c", "target": "a b c", "length": 3}]


def test_many_symbols_are_shown_as_numbers():
    task = Copy(symbols=100)
    assert task.render(task.pack(task.make_pairs(torch.tensor([[99, 0]]), 2)))[0]["input"] == "99 0"


@given(st.integers(2, 12), st.integers(1, 12))
def test_train_and_test_never_share_a_sequence(symbols, length):
    task = Copy(symbols=symbols)
    seen = {
        split: {tuple(s) for s in copied(task, task.sample(generator(0), 300, length, split)).tolist()}
        for split in ("train", "test")
    }
    assert bool(seen["train"] & seen["test"]) == ("share" in (task.note(length) or ""))


def test_one_sequence_in_eight_is_held_out_wherever_it_lies():
    every = torch.tensor(list(itertools.product(range(4), repeat=8)))
    test = held_out(every)
    assert test.double().mean() == pytest.approx(1 / 8, abs=0.005)
    for place, symbol in itertools.product(range(8), range(4)):
        assert test[every[:, place] == symbol].double().mean() == pytest.approx(1 / 8, abs=0.012)
    # a change of any one symbol decides anew
    for place in range(8):
        moved = every.clone()
        moved[:, place] = (moved[:, place] + 1) % 4
        assert held_out(moved)[test].double().mean() == pytest.approx(1 / 8, abs=0.02)


def test_the_split_is_fixed_for_all_time():
    """Models trained with it are tested with it, in other versions too: the hash in plain integers."""
    whole = (1 << 64) - 1

    def mixed(value):
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & whole
        value = (value ^ value >> 27) * 0x94D049BB133111EB & whole
        return value ^ value >> 31

    def is_test(symbols):
        multipliers = [mixed((place + 1) * 0x9E3779B97F4A7C15 & whole) | 1 for place in range(len(symbols))]
        return mixed(sum((s + 1) * m for s, m in zip(symbols, multipliers, strict=True)) & whole) % 8 == 0

    every = list(itertools.product(range(3), repeat=5))
    assert held_out(torch.tensor(every)).tolist() == [is_test(symbols) for symbols in every]
    assert any(map(is_test, every))


def test_symbols_are_uniform():
    task = Copy(symbols=5)
    counts = copied(task, task.sample(generator(1), 20_000, 10)).flatten().bincount()
    assert (counts / counts.sum()).tolist() == pytest.approx([0.2] * 5, abs=0.005)


def test_a_space_too_small_to_split_is_shared_and_it_is_said():
    task = Copy(symbols=2)
    assert "share" in task.note(1)
    for split in ("train", "test"):
        assert set(copied(task, task.sample(generator(0), 100, 1, split)).flatten().tolist()) == {0, 1}
    assert task.note(40) is None


def test_a_small_test_split_is_asked_once_each_and_it_is_said():
    task = Copy(symbols=4)
    available = task.available(3)
    assert 0 < available < 20
    assert f"only {available} different" in task.note(3)
    asked = copied(task, task.examples(0, 1000, 3)).tolist()
    assert len(asked) == len({tuple(s) for s in asked}) == available
    some = copied(task, task.examples(0, available - 1, 3)).tolist()
    assert len({tuple(s) for s in some}) == available - 1


def test_listed_and_drawn_splits_are_the_same_split():
    length = 6
    assert 4**length == ENUMERABLE  # the longest that is listed
    task = Copy(symbols=4)
    for split, wanted in (("train", False), ("test", True)):
        assert (held_out(copied(task, task.sample(generator(0), 500, length, split))) == wanted).all()
        assert (held_out(copied(task, task.sample(generator(0), 500, length + 1, split))) == wanted).all()
    assert task.available(length) + task.available(length, "train") == ENUMERABLE
    assert task.available(length + 1) is None


def test_exact_match_equals_greedy_decoding():
    """A table of next tokens stands for a model; both ways of scoring see the same answers."""
    task = Copy(symbols=3)
    batch = task.sample(generator(0), 64, 3, "test")
    length = 3

    def logits(tokens):
        """Copies well, and is wrong where the prefix' sum says so: what it says depends on all that it saw."""
        places = tokens.shape[1]
        out = torch.zeros(len(tokens), places, task.output_size)
        for t in range(places):
            k = t - length  # which symbol comes next
            right = tokens[:, k] if 1 <= k <= length else torch.full_like(tokens[:, 0], task.eos)
            wrong = tokens[:, : t + 1].sum(1) % 5 == 0
            out[torch.arange(len(tokens)), t, torch.where(wrong, (right + 1) % task.output_size, right)] = 1
        return out

    fast = task.score(logits(batch.inputs), batch)
    prefix = batch.inputs[:, : length + 2]
    for _ in range(length + 1):
        prefix = torch.cat([prefix, logits(prefix)[:, -1:].argmax(-1)], 1)
    greedy = (prefix[:, length + 2 :] == batch.targets[:, length + 1 :]).all(1).double()
    assert 0 < fast.mean() < 1
    assert fast.equal(greedy)


def test_chance_and_certainty():
    task = Copy()
    batch = task.sample(generator(0), 8, 4)
    perfect = torch.nn.functional.one_hot(batch.targets, task.output_size).float() * 50
    assert task.score(perfect, batch).tolist() == [1.0] * 8
    assert task.loss(perfect, batch).item() == pytest.approx(0, abs=1e-6)
    assert task.loss(torch.zeros_like(perfect), batch).item() == pytest.approx(
        torch.tensor(29.0).log().item(), rel=1e-6
    )


@pytest.mark.parametrize("symbols", [-1, 0, 1, 65_537])
def test_too_few_or_many_symbols(symbols):
    with pytest.raises(ConfigError, match=r"Copy.symbols must be between 2 and 65536, got "):
        choose(Copy, symbols=symbols)
