"""Robust addition on a laptop: which of four ingredients lets a small model add longer numbers than it was trained on?

Question: how much longer numbers than in training does a model add, with and without each of FIRE, randomized positions, reversed
digits and index hints, and how much does this depend on the seed of the weights and on the order of the data?
Expectation (written before the first run). Published: with all four, 25 million parameters trained on 1 to 40 digits reach 100
digits (an extension ratio of 2.5, for more than 98 % exact matches), every ingredient is necessary, and runs with other seeds or
another order of the data differ widely although their training losses are equal. Here models are 200 times smaller, and see 600 times
fewer examples of 1 to 3 digits. So we expect (1) a ratio of 1.0 in most runs, also with all four ingredients, and at most 1.67 in the
best one; (2) a ratio above 1.0 only with hints; (3) without reversed digits, fewer runs that learn the training lengths; (4) in the
combinations that extrapolate at all, ratios that differ between seeds by at least 0.33, and between two orders of the data as much as
between two seeds. Without hints, consecutive positions and reversed, padded sums of 1 to 5 digits, it was known before that nothing
extrapolates at all.
Outcome: not run yet.
Cost: not measured yet.
Command: lengthwise run addition/robust

Options: `seeds`: the number of seeds of the weights. `orders`: the number of orders of the data, each with all of these seeds.
`steps`: the number of training steps. Table of ratios: python benchmarks/extension_ratio.py "addition: robust" --results FOLDER

Source: Zhou et al. 2024, "Transformers Can Achieve Length Generalization But Not Robustly".
Differs, besides the size: all numbers are padded with zeros (`Addition(pad=true)`). The list of hints is a circle. RoPE stands for the
encodings that FIRE is compared with. Size, learning rate and number of steps were chosen with seed 100, which is not among the seeds
here, by looking at the lengths of training alone.
"""

import dataclasses
from itertools import product

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.positions import Randomized
from lengthwise.studies import Study, grid
from lengthwise.tasks import Addition

TRAINED, LONGEST = 3, 9
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
HINTS = LONGEST + 1
TASKS = [
    choose(Addition, pad=True, reverse=reverse, reverse_operands=reverse, hints=HINTS if hints else None)
    for reverse, hints in product((True, False), repeat=2)
]
POSITIONS = [choose(Randomized, max_length=64), "consecutive"]  # a sum of 9 digits with hints has 59 tokens


def study(seeds: int = 5, orders: int = 2, steps: int = 1200) -> Study:
    training = TrainingConfig(train_length=TRAINED, min_length=1, steps=steps, batch_size=64, learning_rate=3e-3)
    runs = [
        run
        for order in range(orders)
        for run in grid(
            ["fire", "rope"],
            TASKS,
            seeds,
            model=MODEL,
            training=dataclasses.replace(training, data_seed=order),
            positions=POSITIONS,
        )
    ]
    return Study(
        name="addition: robust",
        question="Which of FIRE, randomized positions, reversed digits and index hints lets a model add longer numbers?",
        expectation=(
            "The ratio is 1.0 in most runs, at most 1.67, and above 1.0 only with hints. Fewer runs learn sums whose digits are not "
            "reversed. Seeds and orders of the data change the ratio equally, by at least 0.33 where it is above 1.0."
        ),
        cost="not measured yet",
        command="lengthwise run addition/robust",
        runs=tuple(sorted(runs, key=lambda run: (run.seed, run.data_seed))),
        evaluation=EvaluationConfig(lengths=tuple(range(1, LONGEST + 1)), examples=200),
    )
