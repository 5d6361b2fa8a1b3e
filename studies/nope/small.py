"""The NoPE study on a laptop: copy and reverse with 0.2 million parameters, trained on 2 to 10 symbols, tested to 20.

Question: do models this small reproduce the published order of the encodings?
Expectation (written before the first run, from the published numbers): NoPE copies repeated and replaced symbols
furthest, T5 next, ALiBi less far. On random symbols and on reversing, T5 and ALiBi are as good as NoPE or better, and
all fall to zero by twice the length. Rotary and sinusoidal fail at the first longer length everywhere. Mean reciprocal
ranks in the published order: NoPE, T5, ALiBi, Rotary, sinusoidal.
Outcome: NoPE leads, Rotary and sinusoidal come last, and T5 and ALiBi do not differ significantly. Mean reciprocal
ranks of three full runs (only the order of sums or the processor changed between them): NoPE 0.74, 0.74 and 0.73, T5
0.54, 0.48 and 0.52, ALiBi 0.49, 0.54 and 0.49, Rotary 0.31, 0.31 and 0.33, sinusoidal 0.21, 0.22 and 0.22 (published
0.69, 0.55, 0.50, 0.33, 0.22). NoPE is at 0.85, 0.88 and 0.83 on repeated and 0.97, 0.95 and 0.96 on replaced symbols
(published 0.99 and 0.97), but T5 at 0.05, 0.02 and 0.02, and 0.32, 0.20 and 0.19 (published 0.77 and 0.94), which was
not expected; in the first run one seed of Rotary still reversed at twice the length, in the third one seed 5 % of the
questions. The scores of the first two runs, task by task: docs/log/2026-11-24.md. Every score of the third:
benchmarks/results/study-nope-small.json. Differences from the published runs besides the size: examples are new at
every step and all examples of a batch have one length, whereas theirs are a fixed set of 100,000 (25.6 epochs) in
batches of mixed lengths; no dropout; the last checkpoint. Size and number of steps were chosen with seed 0, which is
not among the seeds here.
Cost: 12 minutes on two idle CPU cores (60 runs, two workers); 37 minutes on two cores under other load.
Command: lengthwise run nope/small
"""

from kazemnejad import ENCODINGS, SMALL, published, small_training

from lengthwise.config import EvaluationConfig
from lengthwise.studies import Study, grid

TASKS = {
    "copy:pattern=repeated,symbols=200": ("Copy(symbols=200, pattern=repeated)", "copy, repeated"),
    "copy:pattern=replaced,symbols=40": ("Copy(symbols=40, pattern=replaced)", "copy, replaced"),
    "copy:symbols=20": ("Copy(symbols=20)", "copy, random"),
    "reverse:symbols=20": ("Reverse(symbols=20)", "reverse"),
}

study = Study(
    name="nope: small",
    question="Does the published order of encodings on copying and reversing show in models of 0.2 million parameters?",
    expectation=(
        "NoPE copies repeated and replaced symbols furthest, then T5, then ALiBi. On random symbols and on reversing "
        "T5 and ALiBi are at NoPE's height or above it, and all fall to nothing by twice the length. Rotary and "
        "sinusoidal fail at "
        "the first longer length everywhere."
    ),
    cost="about 12 minutes on 2 idle CPU cores, 37 on 2 that others use too",
    command="lengthwise run nope/small",
    runs=grid(ENCODINGS, TASKS, seeds=[1, 2, 3], model=SMALL, training=small_training(2, 10, steps=1500)),
    evaluation=EvaluationConfig(lengths=(6, 10, *range(11, 21)), examples=200),
    published=published(
        dict(TASKS.values()),
        "models of 85 million parameters, trained on 2 to 20 symbols and asked at 21 to 40, at each as often; ranks "
        "over all their tasks; their ceiling for random copies is 0.737; of repeated symbols we have all that are held "
        "out, 18 to 28 at a "
        "length, of replaced ones 180 to 200",
        differs="they have dropout of 0.1, ours none; their checkpoint is the best one on validation, ours the last; "
        "they train on a fixed set of 100,000 examples, 25.6 times, in batches of mixed lengths, ours on fresh "
        "examples at every step, where all examples of a batch have one length",
    ),
)
