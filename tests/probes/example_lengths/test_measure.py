"""How long a run's examples are, counted from its task."""

from collections import Counter

import pytest

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.probes.example_lengths import measure
from lengthwise.probes.example_lengths.measure import count_lengths, lengths_question
from lengthwise.tasks import SCAN, Addition, Copy, Text


def run_of(make, shortest: int, longest: int, **settings) -> Run:
    return Run(
        encoding=choose(NoPE),
        task=choose(make, **settings),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=longest, min_length=shortest, steps=1, batch_size=1),
        seed=0,
    )


@pytest.mark.parametrize("field", ["input", "target", "length"])
def test_a_given_set_is_counted_whole(field):
    run, task = run_of(SCAN, 4, 10), SCAN()
    assert lengths_question(run, field, []).to_data() == {"probe": "lengths", "field": field}
    found = count_lengths(run, lengths_question(run, field, []))
    expected = {"train": Counter(), "test": Counter()}
    for length in task.lengths():
        for split, pairs in task.whole(length).items():
            if split == "test" or 4 <= length <= 10:
                rows = task.render(task.pack(pairs))
                expected[split].update(row["length"] if field == "length" else len(row[field].split()) for row in rows)
    assert found == {s: {str(n): c for n, c in sorted(counts.items())} for s, counts in expected.items()}


def test_others_are_drawn_as_training_draws_them():
    run = run_of(Copy, 2, 5)
    asked = lengths_question(run, "input", [8, 20, 8])
    assert asked.to_data() == {"probe": "lengths", "field": "input", "examples": 1000, "lengths": [8, 20]}
    found = count_lengths(run, asked)
    assert found["test"] == {"8": 500, "20": 500}
    assert sum(found["train"].values()) == 1000
    assert set(found["train"]) == {"2", "3", "4", "5"}
    assert min(found["train"].values()) > 180  # of 250 expected: five standard deviations below
    assert found == count_lengths(run, asked)


def test_words_of_a_scratchpad_count(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE_SIZE", 100)
    run = run_of(Addition, 3, 3, scratchpad="full")
    plain = run_of(Addition, 3, 3)
    targets = [count_lengths(r, lengths_question(r, "target", [3]))["train"] for r in (run, plain)]
    assert min(map(int, targets[0])) > max(map(int, targets[1]))


@pytest.mark.parametrize(
    ("run", "field", "tested", "says"),
    [
        (run_of(Copy, 2, 5), "inptu", [8], "no field 'inptu'; did you mean 'input'"),
        (run_of(Copy, 2, 5), "input", [], "no study evaluates run"),
        (run_of(Text, 8, 8), "input", [8], "Text has no questions and answers"),
    ],
)
def test_what_cannot_be_counted(run, field, tested, says):
    with pytest.raises(ConfigError, match=says):
        lengths_question(run, field, tested)
