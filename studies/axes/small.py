"""Positions with two axes on a laptop: one column of a grid is copied, trained on 1 to 6 rows, evaluated on up to 24.

Question: do the row and the column as position IDs help a model to copy a column of a grid that is longer than in
training?
Expectation (written before the first run): to copy the next symbol, a model must find the symbol below the last one.
With consecutive positions, that is the symbol four tokens on, an offset that does not change with the number of rows;
but the first symbol depends on the column that is asked for, and the answer is as far from the grid as the grid is
long. With `Grid`, the answer has the rows of the grid, so the same offset (0 rows, some columns) works at every length.
We expect every model to learn the task (more than 0.9 at 6 rows). At 12 rows, we expect AxialRoPE and RoPE-Mixed with
`Grid` above 0.5, and RoPE and NoPE with consecutive positions below 0.2. At 24 rows we expect less than half of the
score at 12 rows, because the rotations of the rows have not been trained there. The learning rate (of 1e-3 and 4e-3)
was chosen afterwards with seed 100, which is not among the seeds here, with RoPE and AxialRoPE: with the smaller one,
RoPE does not learn the task.
Outcome (200 examples of each length, two seeds; benchmarks/results/study-axes-small.json): less than expected at twice
the length, where nothing is right. At 8 rows, a third more than in training, AxialRoPE with `Grid` has 0.43 and 0.22
and RoPE-Mixed 0.36 and 0.24; RoPE with consecutive positions has 0 in both, although it has learned the task (0.99 and
0.95 at 6 rows). So the axes help, but only a little beyond the training length: rows that were never trained have new
angles. FIRE (0.15 and 0.02 at 6 rows) and NoPE (0 and 0.01) have not learned the task in 2,000 steps, against the
expectation.
Cost: about 5 minutes of one CPU core.
Command: lengthwise run axes/small
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.positions import Grid
from lengthwise.studies import Study, grid
from lengthwise.tasks import CopyColumn

TASK = choose(CopyColumn, symbols=16, columns=4)
MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)


def study(seeds: int = 2, steps: int = 2000) -> Study:
    training = TrainingConfig(train_length=6, min_length=1, steps=steps, batch_size=32, learning_rate=4e-3)
    return Study(
        name="axes: small",
        question="Do the row and the column as position IDs help to copy a column that is longer than in training?",
        expectation=(
            "All models learn the task. At twice the training length, rotations of both axes are right in more than "
            "half of the examples, and consecutive positions in less than a fifth."
        ),
        cost="about 5 minutes of 1 CPU core",
        command="lengthwise run axes/small",
        runs=(
            *grid(["axialrope", "ropemixed"], [TASK], seeds, model=MODEL, training=training, positions=[choose(Grid)]),
            *grid(["rope", "nope", "fire"], [TASK], seeds, model=MODEL, training=training),
        ),
        evaluation=EvaluationConfig(lengths=(3, 6, 8, 12, 18, 24), examples=200),
    )
