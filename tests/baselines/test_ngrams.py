"""Counts of what followed what: by hand, against a plain count of each prefix, and against automata."""

import numpy as np
import pytest
import torch

from lengthwise.baselines.ngrams import NGRAMS, ngram
from lengthwise.evaluation.untrained import baseline_scores
from lengthwise.tasks import PFA


def plain(row, vocab, order):
    """The definition: for the longest context that was seen before, shares of what followed it."""
    found = []
    for t in range(len(row)):
        prefix = row[: t + 1]
        share = [1 / vocab] * vocab
        for n in range(order):
            if n > len(prefix):
                break
            last = prefix[len(prefix) - n :]
            after = [prefix[i] for i in range(max(n, 1), len(prefix)) if prefix[i - n : i] == last]
            if after:
                share = [after.count(v) / len(after) for v in range(vocab)]
        found.append(share)
    return found


def test_counts_by_hand():
    row = [[2, 0, 1, 0]]  # the first one is given: nothing is known after it
    third = [1 / 3] * 3
    assert ngram(row, 3, 1)[0] == pytest.approx(np.array([third, [1, 0, 0], [1 / 2, 1 / 2, 0], [2 / 3, 1 / 3, 0]]))
    assert ngram(row, 3, 2)[0] == pytest.approx(np.array([third, [1, 0, 0], [1 / 2, 1 / 2, 0], [0, 1, 0]]))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_counts_are_those_of_each_prefix(order, monkeypatch):
    monkeypatch.setattr("lengthwise.baselines.ngrams.MAX_COUNTS", 200)  # several parts
    tokens = np.random.default_rng(order).integers(0, 3, (7, 40))
    want = np.array([plain(row, 3, order) for row in tokens.tolist()])
    np.testing.assert_allclose(ngram(tokens, 3, order), want, atol=1e-12)


def test_counts_of_what_came_before_alone():
    tokens = np.random.default_rng(0).integers(0, 4, (3, 30))
    np.testing.assert_array_equal(ngram(tokens[:, :12], 4, 3), ngram(tokens, 4, 3)[:, :12])


@pytest.mark.medium
def test_the_distances_that_the_task_s_docstring_promises():
    task = PFA()
    batch = task.examples(0, 1280, 400)
    for name, say in NGRAMS.items():
        said = say(batch.inputs, 19)
        means = task.distance(torch.from_numpy(said), batch).mean(0)
        figures = "  ".join(f"{means[n - 1]:.2f}" for n in (1, 10, 50, 100, 400))
        (line,) = [line for line in PFA.__doc__.splitlines() if name in line]
        assert line.split(name)[1].strip() == figures


def test_their_scores_beside_a_model_s():
    task = PFA(symbols=6)
    batch, asked = task.examples(1, 150, 30), []
    found = baseline_scores(task, batch, [3, 30], lambda: asked.append(1))
    assert list(found) == list(NGRAMS)
    for name, say in NGRAMS.items():
        means = task.distance(torch.from_numpy(say(batch.inputs, 7)), batch).mean(0)
        assert found[name] == {n: pytest.approx(float(means[n - 1]), rel=1e-5) for n in (3, 30)}
    assert len(asked) == 12  # three parts of each
    assert (
        baseline_scores(task, batch, [30, 7], lambda: asked.append(1))["counts of pairs"][30]
        == found["counts of pairs"][30]
    )
    assert len(asked) == 12  # known


def test_the_same_symbols_of_another_truth_are_scored_anew():
    scores = []
    for ends in (0.0, 0.001):
        task = PFA(ends=ends)
        batch = task.examples(2, 3, 4)
        scores.append((batch.targets.tolist(), baseline_scores(task, batch, [4])["every symbol alike"][4]))
    assert scores[0][0] == scores[1][0]
    assert scores[0][1] != scores[1][1]
