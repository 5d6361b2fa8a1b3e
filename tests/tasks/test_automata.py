"""Probabilistic finite automata: walks by hand, what sequences say against a plain reading of them, and the score."""

import math
from collections import Counter

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.evaluation import Division, evaluate
from lengthwise.tasks import PFA, TASKS, Batch, generator
from lengthwise.tasks.automata import Automata
from lengthwise.training import build

A, B, C, END = range(4)


def automaton():
    """State 0: a to itself, b to 1. State 1: c to 0 only. Before a string: as state 0."""
    symbols = torch.tensor([[[A, B], [C, A], [A, B]]])
    targets = torch.tensor([[[0, 1], [0, 0], [0, 1]]])
    return Automata(symbols, targets, torch.tensor([[2, 1, 2]]))


def test_a_walk_by_hand():
    draws = torch.tensor([[0.6, 0.99, 0.4, 0.7, 0.0, 0.5]])
    ends = torch.tensor([[True, False, False, True, True, False]])  # the first one comes when nothing was said yet
    said, states = automaton().walk(draws, ends)
    assert said.tolist() == [[B, C, A, -1, A, B]]
    assert states.tolist() == [[2, 1, 0, 0, 2, 0]]


def test_what_states_say_by_hand():
    got = automaton().next_symbol(0.1, 4)
    assert got.dtype == torch.float64
    want = [[0.45, 0.45, 0, 0.1], [0, 0, 0.9, 0.1], [0.5, 0.5, 0, 0]]
    assert got[0].tolist() == [pytest.approx(row) for row in want]


def test_the_truth_is_that_of_the_automaton_that_spoke():
    """Each row read again, symbol by symbol, with dictionaries instead of tables."""
    task = PFA(states=6, symbols=7, edges=3, ends=0.2)
    batch = task.sample(generator(3), 40, 60)
    tables = task.draw(generator(3), 40)  # the same draw
    truth = batch.target_probabilities()
    for row in range(40):
        go = [
            {int(tables.symbols[row, s, k]): int(tables.targets[row, s, k]) for k in range(tables.edges[row, s])}
            for s in range(6)
        ]
        state, begins = 0, True
        for place, target in enumerate(batch.targets[row].tolist()):
            ends = 0.0 if begins else 0.2
            want = [(1 - ends) / len(go[state]) if n in go[state] else 0.0 for n in range(7)] + [ends]
            assert truth[row, place].tolist() == pytest.approx(want)
            assert want[target] > 0
            begins = target == 7
            state = 0 if begins else go[state][target]


def test_automata_are_drawn_as_said():
    task = PFA()
    tables = task.draw(generator(0), 20_000)
    assert tables.symbols.shape == tables.targets.shape == (20_000, 13, 4)
    assert all(part[:, 0].equal(part[:, 12]) for part in (tables.symbols, tables.targets, tables.edges))
    edges = Counter(tables.edges[:, :12].flatten().tolist())
    assert set(edges) == {1, 2, 3, 4}
    assert all(abs(n / 240_000 - 1 / 4) < 0.005 for n in edges.values())
    assert all(len(set(ways)) == 4 for ways in tables.symbols[:200].flatten(0, 1).tolist())
    # The highest of 48 targets among n states is n - 1 in all but (1 - 1/n)^48 of the draws: 1.5 % for 12.
    highest = Counter((tables.targets.flatten(1).amax(1) + 1).tolist())
    assert set(highest) <= set(range(3, 13))
    assert all(abs(highest[n] / 20_000 - 1 / 9) < 0.012 for n in range(4, 13))
    letters = Counter(len(set(row)) for row in tables.symbols[:, :12].flatten(1).tolist())
    assert set(letters) <= set(range(4, 19)) and len(letters) == 15
    assert abs(sum(letters[n] for n in range(4, 10)) / 20_000 - 6 / 15) < 0.03
    counts = torch.bincount(tables.symbols.flatten(), minlength=18) / tables.symbols.numel()
    assert (counts - 1 / 18).abs().max() < 0.003


def test_symbols_are_as_frequent_as_the_truth_says():
    batch = PFA().sample(generator(1), 2_000, 50)
    q = batch.target_probabilities()
    said = q.gather(2, batch.targets[..., None])[..., 0].log()
    each = -(q * q.clamp(min=1e-300).log()).sum(2)  # entropies
    spread = (q * (q.clamp(min=1e-300).log() + each[..., None]).square()).sum(2)
    z = (said + each).sum() / spread.sum().sqrt()
    assert abs(z) < 4
    ends, expected = batch.targets == 18, q[..., 18]
    assert abs(ends.sum() - expected.sum()) / (expected * (1 - expected)).sum().sqrt() < 4


def test_strings_have_the_mean_length_that_ends_says():
    batch = PFA(ends=0.1).sample(generator(2), 200, 2_000)
    strings = (batch.targets == 18).sum()
    assert not ((batch.inputs == 18) & (batch.targets == 18)).any()  # none is empty
    assert (batch.targets != 18).sum() / strings == pytest.approx(10, rel=0.02)
    assert not (PFA(ends=0).sample(generator(2), 20, 500).targets == 18).any()


def test_the_score_by_hand():
    task = PFA(states=2, symbols=3, edges=2, ends=0.1)
    batch = task.sample(generator(0), 1, 3)
    object.__setattr__(batch, "probabilities", automaton().next_symbol(0.1, 4))
    object.__setattr__(batch, "states", torch.tensor([[2, 0, 1]]))
    said = torch.tensor([0.25, 0.25, 0.25, 0.25]).log().expand(1, 3, 4)
    assert task.curve(said, batch)[0].tolist() == pytest.approx([0.5, 0.4, 0.65])
    assert task.score(said, batch).tolist() == pytest.approx([0.65])


def test_who_knows_the_truth_has_a_score_of_nothing():
    task = PFA()
    batch = task.examples(0, 8, 30)
    got = task.curve(batch.target_probabilities().clamp(min=1e-30).log().float(), batch)
    assert got.shape == (8, 30)
    assert got.dtype == torch.float64
    assert got.abs().max() < 1e-6
    assert task.distance(torch.eye(19)[torch.zeros(8, 30, dtype=torch.long)], batch).max() <= 1
    entropy = task.loss(batch.target_probabilities().clamp(min=1e-30).log().float(), batch)
    assert entropy < task.loss(torch.zeros(8, 30, 19), batch) == pytest.approx(math.log(19))


def test_logits_that_are_no_numbers_have_no_score():
    task = PFA()
    batch = task.examples(0, 2, 3)
    logits = torch.zeros(2, 3, 19)
    logits[1, 2, 5] = math.nan
    assert task.score(logits, batch).isnan().tolist() == [False, True]


def test_parts_of_a_batch_keep_their_truth():
    batch = PFA().examples(0, 6, 10)
    part = batch[2:5].to("cpu")
    assert len(part) == 3
    assert part.target_probabilities().equal(batch.target_probabilities()[2:5])
    with pytest.raises(TypeError, match="which keep the automata"):
        PFA.distance(batch.target_probabilities(), Batch(batch.inputs, batch.targets, batch.scored))


def test_one_forward_scores_every_length():
    run = Run(
        encoding=choose(NoPE),
        task=choose(PFA, symbols=5, edges=2),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=8),
    )
    model, task = build(run)
    config = EvaluationConfig(lengths=(1, 5, 12), examples=9)
    scores = evaluate(model, task, config, division=Division(24))
    assert all("counts of pairs" in [b["name"] for b in s.details["baselines"]] for s in scores)
    whole = task.examples(0, 9, 12)
    with torch.no_grad():
        curve = task.distance(model.eval()(whole.inputs).softmax(-1), whole)
    assert [s.mean for s in scores] == pytest.approx([float(curve[:, n - 1].mean()) for n in (1, 5, 12)], rel=1e-4)


def test_the_smallest_automata_there_are():
    batch = PFA(states=1, symbols=1, edges=1, ends=0).sample(generator(0), 2, 4)
    assert batch.inputs.tolist() == [[1, 0, 0, 0]] * 2
    assert batch.targets.tolist() == [[0] * 4] * 2
    assert batch.target_probabilities().tolist() == [[[1.0, 0.0]] * 4] * 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"states": 0}, "states"),
        ({"symbols": 3}, "PFA.edges must be at most symbols=3, got 4"),
        ({"edges": 0}, "edges"),
        ({"states": 10**20}, "at most 10,000"),
        ({"symbols": 10**20}, "at most 10,000"),
        ({"ends": 1.0}, "below 1, got 1.0"),
        ({"ends": -0.1}, "below 1, got -0.1"),
        ({"ends": math.nan}, "finite number, got nan"),
    ],
)
def test_settings_that_cannot_be(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        PFA(**settings)
    assert "\n" not in str(caught.value)


def test_it_is_on_the_list():
    assert TASKS.find("pfa") is PFA
