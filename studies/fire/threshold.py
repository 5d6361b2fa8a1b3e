"""FIRE's threshold L: which initial value extrapolates best?

FIRE divides a distance by psi(max(L, i)), where i is the query's position. With L at or above the training length T,
max(L, i) is L for every query of the training, so the denominator is constant there and changes for the first time
beyond T. With L below T the model sees changing denominators in training. The paper starts from L = 512 with T = 2048.

Question: trained at T tokens, does an L of 2T, T, T/4, T/16 or 1,024 (or FIRE's default, 512) score best at longer
lengths?
Expectation (written before the first run): an audit that compared L = 8 with the default on small models found the
default ahead at 2T and beyond, contrary to this project's advice until then ("choose L below the training length"). We
expect the same
here: on text, T/16 and T/4 are worst beyond the training length, by at most 0.1 nats per byte; on copying, 2T, 512 and
1,024 are clearly ahead of T/4 and T/16 just beyond the training length; all are equal at the training length.
Outcome: L of 512 and 1,024 are ahead at twice the training length and beyond, on both tasks and at both lengths; on
text by more than expected (trained at 64 bytes, scored at 2,048: 1.66 nats per byte with L = 1,024, 2.10 with T/16). On
copying 2T is no better than T, which was not expected. Every score: benchmarks/results/study-fire-threshold.json; the
tables: docs/log/2026-11-24.md.
Cost: about half an hour of two CPU cores (93 runs).
Command: lengthwise run fire/threshold

A copy of n symbols has 2n + 2 tokens, so T is 18 and 34 tokens for 8 and 16 symbols; positions count tokens. The text
is Python's own manual, docstrings and source.
"""

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.encodings import FIRE
from lengthwise.studies import Study, grid

MODEL = ModelConfig(d_model=64, num_layers=2, num_heads=4)
TEXT = {length: TrainingConfig(train_length=length, steps=600, batch_size=2048 // length, learning_rate=3e-3)
        for length in (64, 256)}  # fmt: skip
COPY = {length: TrainingConfig(train_length=length, min_length=1, steps=steps, batch_size=32, learning_rate=4e-3)
        for length, steps in ((8, 1000), (16, 2000))}  # fmt: skip


def thresholds(tokens: int) -> list[float]:
    """Return the values of L for a training length of `tokens`, in increasing order, including FIRE's default."""
    return sorted({tokens / 16, tokens / 4, float(tokens), 2.0 * tokens, 512.0, 1024.0})


def runs(task: str, training: TrainingConfig, tokens: int, seeds: int):
    return grid([choose(FIRE, L=L) for L in thresholds(tokens)], [task], seeds, training=training, model=MODEL)


study = Study(
    name="fire: threshold",
    question="Trained at T tokens, which initial threshold L of FIRE (2T, T, T/4, T/16, 512, 1024) scores best at "
    "longer lengths?",
    expectation=(
        "L of T/16 and T/4 is worst beyond the training length on text, by at most 0.1 nats per byte; on copying 2T, "
        "512 and 1024 are clearly ahead of T/4 and T/16 just beyond the training length; all are equal at the training "
        "length."
    ),
    cost="about half an hour of 2 CPU cores",
    command="lengthwise run fire/threshold",
    runs=(
        *(run for length, training in COPY.items() for run in runs("copy", training, 2 * length + 2, seeds=5)),
        *(run for length, training in TEXT.items() for run in runs("text", training, length, seeds=3)),
    ),
    evaluation={
        "copy": EvaluationConfig(lengths=(8, 9, 10, 12, 16, 18, 20, 24, 32), examples=256),
        "text": EvaluationConfig(lengths=(64, 128, 256, 512, 1024, 2048), tokens=65_536),
    },
)
