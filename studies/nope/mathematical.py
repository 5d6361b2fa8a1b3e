"""Figure E.3 at the published scale: addition, polynomials, sorting, sums, parity, chains of variables, no scratchpad.

Question: which position encodings calculate and reason on inputs up to twice as long as any in training?
Expectation (theirs): NoPE and T5 lead, all fall fast; parity and summation stay near chance beyond training.
Outcome: none yet; these runs have not been trained.
Cost: 105 trainings of a model of 85 million parameters, 40,000 steps each: some hours each on one GPU.
Command: lengthwise run nope/mathematical --device cuda

For these tasks only plots are published, so the only published numbers beside ours are mean reciprocal ranks over all
their tasks.
Shortest lengths: 4, the default of their scripts (parity 3, addition 1); the actual ones are not recorded.
"""

from kazemnejad import ENCODINGS, PAPER, SEEDS, WEIGHTS, paper_training, published

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

TASKS = ["addition", "polynomial", "sorting", "sorting:items=numbers", "summation", "parity", "lego"]
SHORTEST = {"Addition": 1, "Polynomial": 4, "Sorting": 4, "Summation": 4, "Parity": 3, "LEGO": 4}

study = Study(
    name="nope: mathematical and reasoning tasks",
    question="Which position encodings calculate and reason on inputs up to twice as long as any in training?",
    expectation="NoPE and T5 lead, all fall fast; parity and summation stay near chance beyond training.",
    cost="105 trainings of 40,000 steps, some hours each on one GPU",
    command="lengthwise run nope/mathematical --device cuda",
    runs=grid(
        ENCODINGS,
        TASKS,
        SEEDS,
        model=PAPER,
        training={name: paper_training(shortest, 8) for name, shortest in SHORTEST.items()},
    ),
    evaluation=EvaluationConfig(lengths=(4, 6, 8, *range(9, 17)), examples=1250),
    published=published(
        {},
        "ranks over all their tasks without scratchpad, not over these alone; " + WEIGHTS.format(bits=13),
    ),
)
