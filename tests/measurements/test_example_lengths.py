"""How long a run's examples are, counted from its task."""

from collections import Counter
from typing import Any

import pytest

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.measurements import example_lengths
from lengthwise.measurements.example_lengths import length_rows, lengths_options
from lengthwise.tasks import SCAN, Addition, Copy, Text


def counted(run: Run, options: Any) -> dict[str, dict[int, int]]:
    counts: dict[str, dict[int, int]] = {"training": {}, "test": {}}
    for row in length_rows(run, options):
        counts[row["split"]][row["length"]] = row["count"]
    return counts


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
    assert lengths_options(run, field, []).to_data() == {"field": field}
    found = counted(run, lengths_options(run, field, []))
    expected = {"training": Counter(), "test": Counter()}
    for length in task.lengths():
        for split, pairs in task.whole(length).items():
            if split == "test" or 4 <= length <= 10:
                rows = task.render(task.pack(pairs))
                expected["test" if split == "test" else "training"].update(
                    row["length"] if field == "length" else len(row[field].split()) for row in rows
                )
    assert found == expected


def test_others_are_drawn_as_training_draws_them():
    run = run_of(Copy, 2, 5)
    asked = lengths_options(run, "input", [8, 20, 8])
    assert asked.to_data() == {"field": "input", "examples": 1000, "lengths": [8, 20]}
    found = counted(run, asked)
    assert found["test"] == {8: 500, 20: 500}
    assert sum(found["training"].values()) == 1000
    assert set(found["training"]) == {2, 3, 4, 5}
    assert min(found["training"].values()) > 180  # of 250 expected: five standard deviations below
    assert found == counted(run, asked)


def test_words_of_a_scratchpad_count(monkeypatch):
    monkeypatch.setattr(example_lengths, "SAMPLE_SIZE", 100)
    run = run_of(Addition, 3, 3, scratchpad="full")
    plain = run_of(Addition, 3, 3)
    targets = [counted(r, lengths_options(r, "target", [3]))["training"] for r in (run, plain)]
    assert min(targets[0]) > max(targets[1])


@pytest.mark.parametrize(
    ("run", "field", "tested", "says"),
    [
        (
            run_of(Copy, 2, 5),
            "inptu",
            [8],
            "field must be one of 'input', 'target', 'length', got 'inptu'; did you mean 'input'",
        ),
        (run_of(Copy, 2, 5), "input", [], "no study evaluates run"),
        (run_of(Text, 8, 8), "input", [8], "Text has no questions and answers"),
    ],
)
def test_what_cannot_be_counted(run, field, tested, says):
    with pytest.raises(ConfigError, match=says):
        lengths_options(run, field, tested)
